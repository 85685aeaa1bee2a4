"""A consumer of a stream, which is a topic: it reads from a place on, and takes nothing away.

Where it begins is said with `x-stream-offset`: first, last (the newest batch), next, a number,
a time, or how long ago. Every message carries its offset in a header of that name. An
acknowledgement makes room for more, and that is all it does. A topic with several partitions
is read side by side, and an offset is one of each.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING

from entrepot.broker.catalog import Topic
from entrepot.broker.queue.lane import Piece, Waiter
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.stream_reader import StreamReader, Where, offset_at, offset_of
from entrepot.broker.sessions import ConsumerFacts
from entrepot.broker.stream import Stream
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message
from entrepot.core.errors import StorageError
from entrepot.gateway.amqp.consumer import Delivering
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.table import Int64, Timestamp, field

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel

log = logging.getLogger("entrepot.amqp")

OFFSET = "x-stream-offset"

_UNITS_MS = {"Y": 31_536_000_000, "M": 2_592_000_000, "D": 86_400_000}
_UNITS_MS |= {"h": 3_600_000, "m": 60_000, "s": 1_000}
_AGO = re.compile(r"([0-9]{1,12})([YMDhms])")
_NUMBER = Struct(">q")
_TURN_PIECES_MAX = 10  # Then the others have their turn.


class StreamConsumer(Delivering):
    def __init__(
        self, channel: Channel, topic: Topic, tag: str, arguments: Mapping[str, object]
    ) -> None:
        """Raises AmqpError, StorageError."""
        super().__init__(channel, tag)
        self._topic = topic
        self._arguments = arguments
        self.prefetch = channel.prefetch
        self._is_started = False
        self._is_woken = False  # `_work` is about to be called.
        self._turn = 0  # The reader that is asked first.
        context = channel.connection.context
        streams = [context.broker.stream(topic, index) for index in range(topic.partition_count)]
        self._readers = [
            StreamReader(stream, context.reader, self._offset(stream)) for stream in streams
        ]

    def _offset(self, stream: Stream) -> int:
        wanted = self._arguments.get(OFFSET)
        if wanted is None:
            return offset_of(stream, Where.NEXT)
        if isinstance(wanted, Timestamp):
            return offset_at(stream, wanted * 1_000)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            return max(0, int(wanted))
        if isinstance(wanted, str):
            if wanted in tuple(Where):
                return offset_of(stream, Where(wanted))
            ago = _AGO.fullmatch(wanted)
            if ago is not None:
                clock = self._channel.connection.context.clock
                return offset_at(stream, clock.now_ms() - int(ago[1]) * _UNITS_MS[ago[2]])
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"failed consuming from stream {self._where}: {{invalid_offset_arg,{wanted!r}}}",
        )

    @property
    def _where(self) -> str:
        return f"queue '{self._topic.name}' in vhost '{self._channel.connection.vhost.name}'"

    # --- the channel's side

    def start(self) -> None:
        self._is_started = True
        for reader in self._readers:
            reader.listen(self.wake)
        connection = self._channel.connection
        gone = partial(connection.guard, self._gone)
        connection.vhost.watch_stream(self._topic.name, self, gone)
        self.wake()

    def stop(self) -> None:
        self._is_started = False
        for reader in self._readers:
            reader.close()
        self._channel.connection.vhost.unwatch_stream(self._topic.name, self)

    def _gone(self) -> None:
        """Nothing more can be read."""
        self.stop()
        self.cancelled()

    def release(self) -> None:
        """Nothing was taken."""

    def settle(self, lane: int, offsets: range) -> None:
        self.unacked -= len(offsets)
        self._channel.unacked_consumed -= len(offsets)
        self.wake()

    def reject(self, lane: int, offsets: range) -> None:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"basic.nack and basic.reject not supported by stream queues {self._where}",
        )

    def requeue(self, lane: int, offsets: range) -> None:
        self.reject(lane, offsets)

    def when_settled(self, waiter: Waiter) -> None:
        waiter(None)

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(
            self.tag, self._topic.name, prefetch=self.prefetch, arguments=self._arguments
        )

    # --- reading

    def wake(self) -> None:
        """There may be more, or more room."""
        if self._is_started and not self._is_woken:
            self._is_woken = True
            guard = self._channel.connection.guard
            asyncio.get_running_loop().call_soon(guard, self._work)

    def _room(self) -> int:
        """A channel's unacknowledged are bounded by the prefetch here, which there must be."""
        room = min(self.prefetch - self.unacked, self._channel.connection.room())
        return min(room, limits.AMQP_READ_AHEAD_MAX)

    def _work(self) -> None:
        self._is_woken = False
        try:
            for _ in range(_TURN_PIECES_MAX):
                behind = self._behind()
                room = self._room() if behind is not None else 0
                if behind is None or room <= 0 or not self._is_started:
                    return
                for piece in self._readers[behind].read(room):
                    self._deliver(behind, piece)
        except StorageError as error:
            log.error("%s cannot be read: %s", self._where, error)
            self._gone()
            return
        self.wake()

    def _behind(self) -> int | None:
        """A reader that has more; they take turns."""
        count = len(self._readers)
        for lane in range(self._turn, self._turn + count):
            if self._readers[lane % count].is_behind:
                self._turn = lane % count + 1
                return lane % count
        return None

    def _deliver(self, lane: int, piece: Piece) -> None:
        offsets, run = piece
        messages = _with_offsets(offsets, run.messages)
        first = self.send(Taken(offsets, run._replace(messages=messages), None))
        self.unacked += len(offsets)
        self._channel.unacked_consumed += len(offsets)
        self._channel.unacked.add(first, self, lane, offsets)


def _with_offsets(offsets: range, messages: Sequence[Message]) -> list[Message]:
    """Each with its offset in a header. Where it goes is found once for equal properties."""
    found: list[Message] = []
    known, before, after = b"", b"", b""
    for offset, ((exchange, key, properties), body) in zip(offsets, messages, strict=True):
        if properties != known:
            known = properties
            before, after = _around_offset(properties)
        numbered = before + _NUMBER.pack(offset) + after
        found.append((Envelope(exchange, key, numbered), body))
    return found


def _around_offset(properties: bytes) -> tuple[bytes, bytes]:
    """The properties with such a header, before and after the number in it."""
    written = PropertyView(properties).patch_headers({OFFSET: Int64(0)})
    header = field(OFFSET, Int64(0))
    start = written.rindex(header)
    end = start + len(header)
    return written[: end - _NUMBER.size], written[end:]
