"""Every API in every version, over the bytes of kio's own writer and reader."""

import asyncio
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from random import Random
from typing import Any

import pytest

from entrepot.broker.catalog import Topic
from entrepot.core.ports import Chunk, FileRange
from entrepot.gateway.kafka import apis
from entrepot.gateway.kafka.fetch import WAIT_MS_MAX
from entrepot.gateway.pump import Cancellable
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import RequestHeader
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.wire.kafka.oracle import kio_bytes, kio_read, make

pytestmark = pytest.mark.pure  # A compiled handler takes no answer but a real one.

EVERY_VERSION = [
    pytest.param(entry.api, version, id=f"{entry.api.name.lower()}-v{version}")
    for entry in apis.SERVED
    for version in range(entry.api.version_first, entry.api.version_last + 1)
]


class Answer:
    """Where a handler leaves its answer."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.is_over = False

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)

    def send(self, chunks: list[Chunk], size: int) -> None:
        assert not self.is_over
        self.is_over = True
        self.body = b"".join(
            each.file.read(each.position, each.size) if isinstance(each, FileRange) else each
            for each in chunks
        )
        assert len(self.body) == size

    def hold(self, work: Cancellable) -> None:
        """The answer comes later."""

    def go_on(self) -> None:
        assert self.is_over

    def omit(self) -> None:
        self.is_over = True

    def refuse(self, reason: str) -> None:
        self.is_over = True


def aimed(message: Any, topic: Topic) -> Any:
    """The same request, but about the first partition of this topic."""
    if isinstance(message, tuple):
        return tuple(aimed(each, topic) for each in message)
    if not is_dataclass(message) or isinstance(message, type):
        return message
    changes = {each.name: aimed(getattr(message, each.name), topic) for each in fields(message)}
    for name, value in changes.items():
        if name in ("name", "topic", "topic_name", "resource_name") and value is not None:
            changes[name] = topic.name
        elif name == "topic_names":
            changes[name] = (topic.name,)
        elif name in ("partition_index", "partition", "index"):
            changes[name] = 0
        elif name == "topic_id" and value is not None:
            changes[name] = topic.id
    return replace(message, **changes)


@pytest.mark.parametrize("is_aimed", [False, True], ids=["anything", "aimed"])
@pytest.mark.parametrize(("api", "version"), EVERY_VERSION)
@on_node()
async def test_answers_any_request(node: Node, api: Api, version: int, is_aimed: bool) -> None:
    """Whatever is asked, the answer is one that kio can read."""
    topic = await node.context.broker.create_topic("one", 2)
    await node.append("one", [1_000, 2_000])
    serve = apis.find(api, version)
    assert serve is not None
    for seed in range(10):
        request: Any = make(request_class(api, version), Random(seed))
        frame = memoryview(kio_bytes(aimed(request, topic) if is_aimed else request))
        answer = Answer()
        header = RequestHeader(api, version, 1, "test")
        pending = serve(node.context, header, frame, 0, answer)  # type: ignore[arg-type]
        if pending is not None:
            await pending
        if not answer.is_over:
            await asyncio.sleep(WAIT_MS_MAX / 1_000)
        assert answer.is_over
        if answer.body is not None:
            kio_read(response_class(api, version), answer.body)


def test_what_is_not_served_is_not_found() -> None:
    assert apis.find(Api.VOTE, 0) is None
    assert apis.find(9_999, 0) is None
    for entry in apis.SERVED:
        assert apis.find(entry.api, entry.api.version_last + 1) is None
        assert apis.find(entry.api, entry.api.version_first - 1) is None
