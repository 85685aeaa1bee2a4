"""Answers of one type (PUBACK, PUBREC or PUBCOMP), in the order of what they answer.

The messages of a run are committed together, so they share an `Answer`, which is told by those
that the run is published to. Runs may be committed in another order than they came; an answer
waits for those before it, as the specification asks (section 4.6).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from entrepot.broker.queue.message import Failure, Publication, Refused
from entrepot.core.message import Message
from entrepot.wire.mqtt.deliver import packed_ids
from entrepot.wire.mqtt.limits import UNCOMMITTED_BYTES_MAX, UNCOMMITTED_RUNS_MAX
from entrepot.wire.mqtt.packet_reasons import REASONS
from entrepot.wire.mqtt.packets import V5, Ack, write
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.reasons import FAILURE, Reason

Guard = Callable[..., None]  # Calls a function with arguments.

_SHORT = Struct(">BBH").pack
_SHORT_BYTES = 4
_PUBREL_FLAGS = 0x02


class Uncommitted:
    """How much a connection has published that is not committed."""

    __slots__ = ("_bytes", "_runs", "_wake", "guard", "is_any", "is_much")

    def __init__(self, guard: Guard, wake: Callable[[], None]) -> None:
        """`guard` calls a function for this connection; `wake` is called when it is less again."""
        self.guard = guard
        self._wake = wake
        self._bytes = 0
        self._runs = 0
        self.is_any = False  # Whether anything was ever published. Set by its publisher.
        self.is_much = False

    def begun(self, size: int) -> None:
        """Count a run of messages."""
        self._bytes += size
        self._runs += 1
        if self._bytes > UNCOMMITTED_BYTES_MAX or self._runs > UNCOMMITTED_RUNS_MAX:
            self.is_much = True

    def ended(self, size: int) -> None:
        """Stop counting a run that is committed or has failed."""
        self._bytes -= size
        self._runs -= 1
        if self.is_much:
            self.is_much = self._bytes > UNCOMMITTED_BYTES_MAX or self._runs > UNCOMMITTED_RUNS_MAX
            self._wake()


class InFlight(Publication):
    """A run that is published and not committed, and has no answer."""

    __slots__ = ("_size", "_uncommitted", "on_end")

    def __init__(self, uncommitted: Uncommitted) -> None:
        Publication.__init__(self, None)  # Faster than by `super`.
        self._uncommitted = uncommitted
        self.on_end: Callable[[], None] | None = None  # Called when it is committed or has failed.
        self._size = -1  # Of the run. -1 means: it is not counted.

    def sent(self, messages: Sequence[Message]) -> None:
        """Note that the run is published to all. Like `arrived`, for its publisher's own turn.

        If it has to wait for them, its bytes are counted until it is committed or has failed.
        """
        self.waiting -= 1
        if self.waiting:
            self._size = sum([len(body) for _, body in messages])
            self._uncommitted.begun(self._size)
        else:
            self.finish(self._failure)

    def _end(self, failure: Failure | None) -> None:
        self._uncommitted.guard(self.finish, failure)

    def finish(self, failure: Failure | None) -> None:
        """Stop counting the run: it is committed, has failed, or was not published at all."""
        if self._size >= 0:
            self._uncommitted.ended(self._size)
        if self.on_end is not None:
            self.on_end()


class Answer(InFlight):
    """The answer to one run, sent when its messages are committed or have failed."""

    __slots__ = ("_answers", "_before", "ids", "is_known", "reasons")

    def __init__(
        self, answers: Answers, ids: Sequence[int], before: Callable[[Answer], None] | None
    ) -> None:
        # As the classes that it extends do, without a call for each.
        self._done = None
        self.waiting = 1
        self._failure = None
        self._uncommitted = answers.uncommitted
        self.on_end = None
        self._size = -1
        self._answers = answers
        self._before = before
        self.ids = ids
        self.is_known = False
        self.reasons: dict[int, Reason] | None = None  # By place in the run; others succeeded.

    def finish(self, failure: Failure | None) -> None:
        if failure is None and self._before is None:  # Nearly always.
            self.is_known = True
            self._answers.send_known()
        else:
            self.know(failure)
        if self._size >= 0 or self.on_end is not None:
            InFlight.finish(self, failure)

    def know(self, failure: Failure | None = None) -> None:
        """Note the result, and send the answer as soon as all earlier ones are sent."""
        if failure is not None:
            places: Sequence[int] = range(len(self.ids))
            reason = Reason.UNSPECIFIED_ERROR
            if isinstance(failure, Refused):
                reason = Reason.QUOTA_EXCEEDED
                places = places if failure.places is None else failure.places
            self.reasons = (self.reasons or {}) | dict.fromkeys(places, reason)
        self.is_known = True
        if self._before is not None:
            self._before(self)
        self._answers.send_known()


class Answers:
    __slots__ = (
        "_first",
        "_refuse",
        "_send",
        "_type",
        "_version",
        "_waiting",
        "count",
        "uncommitted",
    )

    def __init__(
        self,
        type: PacketType,
        version: int,
        uncommitted: Uncommitted,
        send: Callable[[bytes], None],
        refuse: Callable[[Reason], None],
    ) -> None:
        """`refuse` is called for a failure that the packet has no code for in this version."""
        self._type = type
        self._version = version
        self.uncommitted = uncommitted
        self._first = type << 4 | (_PUBREL_FLAGS if type is PacketType.PUBREL else 0)
        self._send = send
        self._refuse = refuse
        self._waiting: deque[Answer] | None = None  # Made for the first one.
        self.count = 0  # Packets that are not answered.

    def expect(self, ids: Sequence[int], before: Callable[[Answer], None] | None = None) -> Answer:
        """Return the answer for these identifiers, which waits for the result.

        `before` is called with it before the answer is sent.
        """
        answer = Answer(self, ids, before)
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(answer)
        self.count += len(ids)
        return answer

    def send_known(self) -> None:
        """Send all answers that are known and wait for no earlier one."""
        waiting = self._waiting
        while waiting and waiting[0].is_known:
            answer = waiting.popleft()
            self.count -= len(answer.ids)
            if answer.reasons:
                self._send_reasons(answer)
            elif len(answer.ids) == 1:
                self._send(_SHORT(self._first, 2, answer.ids[0]))
            elif answer.ids:
                self._send(short(self._first, answer.ids))

    def _send_reasons(self, answer: Answer) -> None:
        reasons = answer.reasons or {}
        known = REASONS[self._type] if self._version == V5 else ()
        failed = [each for each in reasons.values() if each >= FAILURE]
        unsaid = [each for each in failed if each not in known]
        if unsaid:
            self._refuse(unsaid[0])
            return
        found = []
        for place, packet_id in enumerate(answer.ids):
            reason = reasons.get(place, Reason.SUCCESS)
            found.append(write(Ack(self._type, packet_id, reason), self._version))
        self._send(b"".join(found))


def short(first: int, ids: Sequence[int]) -> bytes:
    """Return acknowledgements without a reason code."""
    count = len(ids)
    if count == 1:
        return _SHORT(first, 2, ids[0])
    packed, data = packed_ids(ids), bytearray(_SHORT_BYTES * count)
    data[0::_SHORT_BYTES] = bytes((first,)) * count
    data[1::_SHORT_BYTES] = b"\2" * count
    data[2::_SHORT_BYTES] = packed[0::2]
    data[3::_SHORT_BYTES] = packed[1::2]
    return bytes(data)
