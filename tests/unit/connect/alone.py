"""Connectors without a broker: what they are handed, and how they are asked."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.interface import Context, Polled, Position, Rejected, Sink, Source
from entrepot.connect.registry import CONNECTORS, find
from entrepot.connect.settings import Settings
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record

PART = TopicPartition("t", 0)

_Result = TypeVar("_Result")


class Bench:
    """Makes connectors, and keeps what they rejected."""

    def __init__(self) -> None:
        self.rejected: list[tuple[int, str]] = []

    def make(self, connector: str, **options: Any) -> Any:
        assert connector in CONNECTORS
        given = {key: str(v) if isinstance(v, Path) else v for key, v in options.items()}
        settings = Settings("test", connector, topic="t", options=given)
        made, chosen = find(settings, "test.toml")
        return made(chosen, Context("test", SystemClock(), self._reject, self._persist))

    async def _reject(self, message: Message, reason: str) -> None:
        self.rejected.append((message.record.offset, reason))

    async def _persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        return await attempt()


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    return asyncio.run(work)


def message(offset: int, value: bytes | None, *, key: bytes | None = None) -> Message:
    return Message(PART, Record(key, value, offset=offset), False)


def drain(source: Source, position: Position | None = None) -> tuple[list[Any], Position | None]:
    """All it has for now, opened at that position, and the position after it."""

    async def work() -> tuple[list[Any], Position | None]:
        found: list[Any] = []
        at = position
        await source.open(position)
        try:
            while (polled := await source.poll(2)) is not None:
                assert isinstance(polled, Polled)
                found += polled.records
                at = polled.position
                await source.committed(at)
        finally:
            await source.close()
        return [each if isinstance(each, Rejected) else each.value for each in found], at

    return run(work())


def write(sink: Sink, *messages: Message) -> dict[TopicPartition, int]:
    """Opened, written to, closed; returns what it had kept."""

    async def work() -> dict[TopicPartition, int]:
        try:
            kept = dict(await sink.open([PART]))
            if messages:
                await sink.write(messages)
        finally:
            await sink.close()
        return kept

    return run(work())
