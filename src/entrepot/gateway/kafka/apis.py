"""Which APIs are served, by which module.

A module serves one API in all versions. Most have `handle(context, request)`,
which takes and returns kio's newest classes, whatever version is on the wire, or
`handle_versioned(context, header, request)` where the version or the client's id counts; they
return the answer, or an awaitable for it, or are generators and make it in steps.
Produce, Fetch and ShareFetch have `serve` and work on the frame; heartbeats are `repeated`.
Modules, and kio's classes with them, are loaded when a client first asks, in a turn of its own:
a client that asks for one API after the other would hold up everybody.
"""

from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from entrepot.core import limits
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.repeated import Repeated
from entrepot.gateway.kafka.throttle import Cost
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps, encode_steps

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

_LIGHT = (Api.API_VERSIONS, Api.PRODUCE, Api.FETCH)  # Nearly everybody's first requests.

Serve = Callable[[Context, RequestHeader, memoryview, int, "Answer"], Awaitable[None] | None]

Handle = Callable[[Context, RequestHeader, Any], Any]

SERVED = (
    Api.PRODUCE,
    Api.FETCH,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.OFFSET_COMMIT,
    Api.OFFSET_FETCH,
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.SYNC_GROUP,
    Api.DESCRIBE_GROUPS,
    Api.LIST_GROUPS,
    Api.SASL_HANDSHAKE,
    Api.API_VERSIONS,
    Api.CREATE_TOPICS,
    Api.DELETE_TOPICS,
    Api.DELETE_RECORDS,
    Api.INIT_PRODUCER_ID,
    Api.OFFSET_FOR_LEADER_EPOCH,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.ADD_OFFSETS_TO_TXN,
    Api.END_TXN,
    Api.TXN_OFFSET_COMMIT,
    Api.DESCRIBE_ACLS,
    Api.CREATE_ACLS,
    Api.DELETE_ACLS,
    Api.DESCRIBE_CONFIGS,
    Api.ALTER_CONFIGS,
    Api.ALTER_REPLICA_LOG_DIRS,
    Api.DESCRIBE_LOG_DIRS,
    Api.SASL_AUTHENTICATE,
    Api.CREATE_PARTITIONS,
    Api.DELETE_GROUPS,
    Api.ELECT_LEADERS,
    Api.INCREMENTAL_ALTER_CONFIGS,
    Api.ALTER_PARTITION_REASSIGNMENTS,
    Api.LIST_PARTITION_REASSIGNMENTS,
    Api.OFFSET_DELETE,
    Api.DESCRIBE_CLIENT_QUOTAS,
    Api.ALTER_CLIENT_QUOTAS,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS,
    Api.ALTER_USER_SCRAM_CREDENTIALS,
    Api.DESCRIBE_QUORUM,
    Api.DESCRIBE_CLUSTER,
    Api.DESCRIBE_PRODUCERS,
    Api.DESCRIBE_TRANSACTIONS,
    Api.LIST_TRANSACTIONS,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.CONSUMER_GROUP_DESCRIBE,
    Api.LIST_CONFIG_RESOURCES,
    Api.DESCRIBE_TOPIC_PARTITIONS,
    Api.SHARE_GROUP_HEARTBEAT,
    Api.SHARE_GROUP_DESCRIBE,
    Api.SHARE_FETCH,
    Api.SHARE_ACKNOWLEDGE,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS,
    Api.ALTER_SHARE_GROUP_OFFSETS,
    Api.DELETE_SHARE_GROUP_OFFSETS,
)


def is_heavy(api_key: int, version: int) -> bool:
    """Say whether it is served, and what it needs takes a while to load."""
    return api_key not in _LIGHT and _is_served(api_key, version)


def _is_served(api_key: int, version: int) -> bool:
    return api_key in SERVED and Api(api_key).version_first <= version <= Api(api_key).version_last


@lru_cache(maxsize=1_000)  # Asked for every request; what clients may ask for is without end.
def find(api_key: int, version: int) -> Serve | None:
    """None when this API or this version of it is not served."""
    return _load(Api(api_key), version) if _is_served(api_key, version) else None


def _load(api: Api, version: int) -> Serve:
    module = import_module(f"entrepot.gateway.kafka.{api.name.lower()}")
    serve: Serve | None = getattr(module, "serve", None)
    return serve or _whole_message(api, version, module)


def _handler(module: Any) -> Handle:
    if hasattr(module, "handle_versioned"):
        handle: Handle = module.handle_versioned
        return handle
    return lambda context, header, request: module.handle(context, request)


def _whole_message(api: Api, version: int, module: Any) -> Serve:
    """Decode, handle, encode. A model version below the newest reads what came before it."""
    model_versions: tuple[int, ...] = getattr(module, "MODEL_VERSIONS", ())
    newest = next((v for v in model_versions if version <= v), api.version_last)
    model, layout = request_class(api, newest), request_class(api, version)
    response = response_class(api, version)

    if hasattr(module, "understand"):
        return Repeated(module, model, layout, response).serve
    handle = _handler(module)

    def serve(
        context: Context, header: RequestHeader, frame: memoryview, position: int, answer: "Answer"
    ) -> Awaitable[None] | None:
        cost = Cost(context, header.client_id)
        if len(frame) - position > limits.REQUEST_BYTES_NARROW:
            steps = decode_steps(model, layout, frame, position)
            work = _handle_long(context, header, steps, handle)
            return _answer_later(cost, context, cost.watch(work), response, answer)
        result = handle(context, header, decode(model, layout, frame, position))
        if isinstance(result, Generator):
            result = context.broker.turns.begin(result)
        if not hasattr(result, "__await__"):
            chunks = context.broker.turns.begin(encode_steps(_throttled(cost, result), response))
            if isinstance(chunks, list):
                _send(chunks, answer)
                return None
            return _send_later(chunks, answer)
        return _answer_later(cost, context, cost.watch(result), response, answer)

    return serve


async def _handle_long(
    context: Context, header: RequestHeader, decoding: Steps[Any], handle: Handle
) -> Any:
    turns = context.broker.turns
    result = handle(context, header, await turns.run(decoding))
    if isinstance(result, Generator):
        return await turns.run(result)
    return await result if hasattr(result, "__await__") else result


async def _answer_later(
    cost: Cost, context: Context, result: Awaitable[Any], layout: type[Any], answer: "Answer"
) -> None:
    told = _throttled(cost, await result)
    _send(await context.broker.turns.run(encode_steps(told, layout)), answer)


async def _send_later(chunks: Awaitable[list[bytes]], answer: "Answer") -> None:
    _send(await chunks, answer)


def _throttled(cost: Cost, result: Any) -> Any:
    """The answer with what it says of the client's quota."""
    throttle_ms = cost.throttle_ms()
    if throttle_ms and hasattr(result, "throttle_time"):
        return replace(result, throttle_time=timedelta(milliseconds=throttle_ms))
    return result


def _send(chunks: list[bytes], answer: "Answer") -> None:
    answer.send(chunks, sum(map(len, chunks)))
