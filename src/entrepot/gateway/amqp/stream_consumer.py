"""A consumer of a stream, which is a topic: it reads from an offset on and removes nothing.

`x-stream-offset` says where it begins: first, last (the newest batch), next, an offset, a
timestamp, or a time ago. Every message carries its offset in a header of that name. An
acknowledgement only makes room for more deliveries. The partitions of a topic are read in turn,
and `x-stream-offset` applies to each of them.
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
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.sessions import ConsumerFacts
from entrepot.core.errors import StorageError
from entrepot.core.message import Envelope, Message
from entrepot.gateway.amqp.consumer import Delivering
from entrepot.gateway.amqp.format import AMQP
from entrepot.wire.amqp import limits as amqp_limits
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
_TURN_PIECES_MAX = 10  # Delivered before other connections get their turn.


class StreamConsumer(Delivering):
    def __init__(
        self, channel: Channel, topic: Topic, tag: str, arguments: Mapping[str, object]
    ) -> None:
        """Make a consumer that has yet to be started. Raises AmqpError, StorageError."""
        super().__init__(channel, tag)
        self._topic = topic
        self._arguments = arguments
        self.prefetch = channel.prefetch
        self._is_started = False
        self._is_woken = False  # `_work` is scheduled.
        self._turn = 0  # The reader that is tried first.
        context = channel.connection.context
        self._readers = [
            StreamReader(served, context.broker.formats, self._offset(served))
            for served in context.broker.served_partitions(topic)
        ]

    def _offset(self, served: ServedPartition) -> int:
        """Return the offset at which to begin in one partition. Raises AmqpError."""
        wanted = self._arguments.get(OFFSET)
        if wanted is None:
            return offset_of(served, Where.NEXT)
        if isinstance(wanted, Timestamp):
            return offset_at(served, wanted * 1_000)
        if isinstance(wanted, int) and not isinstance(wanted, bool):
            return max(0, int(wanted))
        if isinstance(wanted, str):
            if wanted in tuple(Where):
                return offset_of(served, Where(wanted))
            ago = _AGO.fullmatch(wanted)
            if ago is not None:
                clock = self._channel.connection.context.clock
                return offset_at(served, clock.now_ms() - int(ago[1]) * _UNITS_MS[ago[2]])
        raise AmqpError(
            ReplyCode.PRECONDITION_FAILED,
            f"failed consuming from stream {self._where}: {{invalid_offset_arg,{wanted!r}}}",
        )

    @property
    def _where(self) -> str:
        return f"queue '{self._topic.name}' in vhost '{self._channel.connection.vhost.name}'"

    # --- called by the channel

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
        """Stop and notify the client, because the stream is deleted or cannot be read."""
        self.stop()
        self.cancelled()

    def release(self) -> None:
        """Do nothing: a stream has nothing to requeue."""

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
        """Schedule reading: there may be more messages, or more room."""
        if self._is_started and not self._is_woken:
            self._is_woken = True
            guard = self._channel.connection.guard
            asyncio.get_running_loop().call_soon(guard, self._work)

    def _room(self) -> int:
        """Return how many messages may be read now. Consumers of streams always have a prefetch."""
        room = min(self.prefetch - self.unacked, self._channel.connection.room())
        return min(room, amqp_limits.READ_AHEAD_MAX)

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
        """Return the index of a reader that has more messages, taking turns; None if none has."""
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
    """Return the messages, each with its offset in a header.

    Its place in the properties is found once for consecutive messages with equal ones.
    """
    found: list[Message] = []
    known, before, after = b"", b"", b""
    for offset, (envelope, body) in zip(offsets, messages, strict=True):
        head = AMQP.head_of(envelope)
        if head != known:
            known = head
            before, after = _around_offset(head)
        numbered = before + _NUMBER.pack(offset) + after
        found.append((Envelope(envelope.exchange, envelope.subject, numbered, AMQP), body))
    return found


def _around_offset(properties: bytes) -> tuple[bytes, bytes]:
    """Return the properties with an offset header, up to its number and from there on."""
    written = PropertyView(properties).patch_headers({OFFSET: Int64(0)})
    header = field(OFFSET, Int64(0))
    start = written.rindex(header)
    end = start + len(header)
    return written[: end - _NUMBER.size], written[end:]
