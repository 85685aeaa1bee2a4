"""Which APIs are served, by which module.

A module serves one API in all versions. Most have `handle(context, request)`,
which takes and returns kio's newest classes, whatever version is on the wire;
Produce and Fetch have `serve` and work on the frame. Modules, and kio's classes
with them, are loaded when a client first asks.
"""

from collections.abc import Awaitable, Callable
from functools import cache
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from entrepot.gateway.kafka.context import Context
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, encode

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

Serve = Callable[[Context, RequestHeader, memoryview, int, "Answer"], Awaitable[None] | None]

SERVED = (
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.FIND_COORDINATOR,
    Api.API_VERSIONS,
    Api.CREATE_TOPICS,
    Api.DELETE_TOPICS,
    Api.DELETE_RECORDS,
    Api.INIT_PRODUCER_ID,
    Api.OFFSET_FOR_LEADER_EPOCH,
    Api.DESCRIBE_CONFIGS,
    Api.ALTER_CONFIGS,
    Api.DESCRIBE_LOG_DIRS,
    Api.CREATE_PARTITIONS,
    Api.INCREMENTAL_ALTER_CONFIGS,
    Api.DESCRIBE_CLUSTER,
    Api.DESCRIBE_TOPIC_PARTITIONS,
)


def find(api_key: int, version: int) -> Serve | None:
    """None when this API or this version of it is not served."""
    if api_key not in SERVED:
        return None
    api = Api(api_key)
    return _load(api) if api.version_first <= version <= api.version_last else None


@cache
def _load(api: Api) -> Serve:
    module = import_module(f"entrepot.gateway.kafka.{api.name.lower()}")
    serve: Serve | None = getattr(module, "serve", None)
    return serve or _whole_message(api, module.handle, getattr(module, "MODEL_VERSIONS", ()))


def _whole_message(
    api: Api, handle: Callable[[Context, Any], Any], model_versions: tuple[int, ...]
) -> Serve:
    """Decode, handle, encode. A model version below the newest reads what came before it."""

    def serve(
        context: Context, header: RequestHeader, frame: memoryview, position: int, answer: "Answer"
    ) -> Awaitable[None] | None:
        version = header.version
        newest = next((v for v in model_versions if version <= v), api.version_last)
        model = request_class(api, newest)
        request = decode(model, request_class(api, version), frame, position)
        result = handle(context, request)
        layout = response_class(api, version)
        if isawaitable(result):
            return _answer_later(result, layout, answer)
        _send(answer, result, layout)
        return None

    return serve


async def _answer_later(result: Awaitable[Any], layout: type[Any], answer: "Answer") -> None:
    _send(answer, await result, layout)


def _send(answer: "Answer", result: Any, layout: type[Any]) -> None:
    body = encode(result, layout)
    answer.send([body], len(body))
