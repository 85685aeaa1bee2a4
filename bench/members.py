"""Members of consumer groups, by the thousand: one thread, a plain socket for each.

They do what consumers do, in the versions librdkafka speaks: come, learn their partitions,
and say at a fixed pace that they are there. A heartbeat is built once and sent again and
again, and an answer that is byte for byte the one before it is not looked into, so that ten
thousand members cost this process a fraction of a core.
"""

import heapq
import select
import socket
import struct
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, NamedTuple

from kio.schema.consumer_group_heartbeat.v1 import request as modern
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.join_group.v5.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.sync_group.v3.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta

from bench.brokers import Broker
from bench.wire import TIMEOUT, Refused, decode, frame

_INT = struct.Struct(">i")
_PROTOCOL = "range"
_JOINS = 0
_AGAIN = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)


class Share(NamedTuple):
    """What a member is to have its part of."""

    group: str
    topic: str
    partitions: int
    session_ms: int  # Until a silent member is given up, where that is the member's to say.


class Crowd:
    """Members and when they are next heard of."""

    def __init__(self, broker: Broker, beat_s: float) -> None:
        self.beat_s = beat_s
        self.members: list[Member] = []
        self.beats = 0  # Answers to heartbeats that said nothing new.
        self._broker = broker
        self._poll = select.epoll()
        self._by_descriptor: dict[int, Member] = {}
        self._due: list[tuple[float, int, Member]] = []
        self._serial = 0

    def add(self, kind: type["Member"], share: Share) -> "Member":
        """Connect and join; what others are told meanwhile is read."""
        member = kind(self, self._broker.connect().socket, share)
        self.members.append(member)
        self._by_descriptor[member.socket.fileno()] = member
        self._poll.register(member.socket, select.EPOLLIN)
        member.join()
        self._turn(0)
        return member

    def cut(self, member: "Member") -> None:
        """It is gone without a word."""
        self.members.remove(member)
        self._due = [each for each in self._due if each[2] is not member]
        heapq.heapify(self._due)
        del self._by_descriptor[member.socket.fileno()]
        member.socket.close()

    def close(self) -> None:
        for member in self.members:
            member.socket.close()
        self._poll.close()

    def beat_at(self, when: float, member: "Member") -> None:
        self._serial += 1
        heapq.heappush(self._due, (when, self._serial, member))

    def spread(self) -> None:
        """The next heartbeats at even distances, which helps a broker least."""
        waiting = [member for _, _, member in self._due]
        start = time.monotonic()
        self._due.clear()
        for number, member in enumerate(waiting):
            self.beat_at(start + self.beat_s * number / len(waiting), member)

    def run(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._turn(left)

    def run_until(self, reached: Callable[[], bool], seconds_max: float, what: str) -> None:
        end = time.monotonic() + seconds_max
        while not reached():
            self._turn(0.01)
            if time.monotonic() > end:
                raise Refused(f"{what} took more than {seconds_max:g} s")

    def _turn(self, wait_s: float) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now:
            heapq.heappop(self._due)[2].beat()
        if self._due:
            wait_s = min(wait_s, max(0, self._due[0][0] - now))
        for descriptor, _ in self._poll.poll(wait_s, 1_000):
            self._by_descriptor[descriptor].read()


class Member(ABC):
    """Has at most one request unanswered."""

    def __init__(self, crowd: Crowd, connected: socket.socket, share: Share) -> None:
        self.socket = connected
        self.socket.setblocking(False)  # We read when there is something, and write little.
        self.owned: frozenset[int] = frozenset()
        self.sent_at = 0.0
        self._crowd = crowd
        self._share = share
        self._group = GroupId(share.group)
        self._held = b""
        self._then: tuple[Any, Callable[[Any], None]] | None = None  # None: a heartbeat.
        self._beat = b""
        self._calm = b""  # The answer to a heartbeat that says nothing new.

    @abstractmethod
    def join(self) -> None: ...

    @abstractmethod
    def _told(self, answer: bytes) -> None:
        """The answer to a heartbeat, which says something."""

    def beat(self) -> None:
        self._send(self._beat)

    def read(self) -> None:
        data = self.socket.recv(1 << 16)
        if not data:
            raise Refused("the broker closed a member's connection")
        self._held += data
        if len(self._held) < _INT.size:
            return
        end = _INT.size + _INT.unpack_from(self._held)[0]
        if len(self._held) >= end:
            answer, self._held = self._held[_INT.size : end], self._held[end:]
            self._answered(answer)

    def _answered(self, answer: bytes) -> None:
        if self._then is not None:
            request, then = self._then
            self._then = None
            then(decode(request, answer))
        elif answer == self._calm:
            self._crowd.beats += 1
            self._beat_later()
        else:
            self._told(answer)

    def _ask(self, request: Any, then: Callable[[Any], None]) -> None:
        self._then = request, then
        self._send(frame(request))

    def _send(self, data: bytes) -> None:
        self.sent_at = time.monotonic()
        if self.socket.send(data) != len(data):
            raise Refused("the broker does not read what a member says")

    def _beat_later(self) -> None:
        self._crowd.beat_at(self.sent_at + self._crowd.beat_s, self)


class ClassicMember(Member):
    """Lets go of everything when there is a rebalance; the leader deals."""

    def __init__(self, crowd: Crowd, connected: socket.socket, share: Share) -> None:
        super().__init__(crowd, connected, share)
        self._session = i32Timedelta.parse(timedelta(milliseconds=share.session_ms))
        self._id = ""
        self._generation = i32(-1)
        self._calm = bytes(10)  # Correlation id, throttle time, error code.

    def join(self) -> None:
        self.owned = frozenset()
        wanted = JoinGroupRequestProtocol(name=_PROTOCOL, metadata=_subscription(self._share.topic))
        request = JoinGroupRequest(
            group_id=self._group,
            session_timeout=self._session,
            rebalance_timeout=TIMEOUT,
            member_id=self._id,
            protocol_type="consumer",
            protocols=(wanted,),
        )
        self._ask(request, self._joined)

    def _joined(self, answer: Any) -> None:
        self._id = answer.member_id
        if answer.error_code == ErrorCode.member_id_required:
            self.join()
            return
        _check(answer, "join")
        self._generation = answer.generation_id
        total = self._share.partitions
        names = [each.member_id for each in answer.members]  # Empty, but for the leader.
        request = SyncGroupRequest(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._id,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member_id=name,
                    assignment=_assignment(self._share.topic, range(i, total, len(names))),
                )
                for i, name in enumerate(names)
            ),
        )
        self._ask(request, self._synced)

    def _synced(self, answer: Any) -> None:
        if answer.error_code in _AGAIN:
            self.join()
            return
        _check(answer, "sync")
        self.owned = frozenset(_assigned(answer.assignment))
        request = HeartbeatRequest(
            group_id=self._group, generation_id=self._generation, member_id=self._id
        )
        self._beat = frame(request)
        self._beat_later()

    def _told(self, answer: bytes) -> None:
        code = ErrorCode(struct.unpack_from(">h", answer, 8)[0])
        if code not in _AGAIN:
            raise Refused(f"heartbeat: {code.name}")
        self.join()


class ModernMember(Member):
    """Is told its partitions in the answers to its heartbeats, and says that it has them."""

    def __init__(self, crowd: Crowd, connected: socket.socket, share: Share) -> None:
        super().__init__(crowd, connected, share)
        self._id = str(uuid.uuid4())
        self._epoch = i32(_JOINS)

    def join(self) -> None:
        request = self._heartbeat(
            rebalance_timeout=TIMEOUT,
            subscribed_topic_names=(TopicName(self._share.topic),),
            topic_partitions=(),
        )
        self._ask(request, self._heard)

    def _heartbeat(self, **said: Any) -> modern.ConsumerGroupHeartbeatRequest:
        said.setdefault("topic_partitions", None)
        return modern.ConsumerGroupHeartbeatRequest(
            group_id=self._group, member_id=self._id, member_epoch=self._epoch, **said
        )

    def _told(self, answer: bytes) -> None:
        self._calm = answer  # If it does say something, the next one will be another.
        self._heard(decode(self._heartbeat(), answer))

    def _heard(self, answer: Any) -> None:
        _check(answer, "heartbeat")
        self._epoch = answer.member_epoch
        self._beat = frame(self._heartbeat())
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            owned = frozenset(number for row in rows for number in row.partitions)
            if owned != self.owned:
                self.owned = owned
                held = tuple(
                    modern.TopicPartitions(topic_id=row.topic_id, partitions=row.partitions)
                    for row in rows
                )
                self._ask(self._heartbeat(topic_partitions=held), self._heard)
                return
        self._beat_later()


def is_divided(members: Iterable[Member], partitions: int) -> bool:
    """Whether each partition has one owner, and each member has some."""
    parts = [member.owned for member in members]
    owned = [number for part in parts for number in part]
    return all(parts) and len(owned) == len(set(owned)) == partitions


def _check(answer: Any, what: str) -> None:
    if answer.error_code != ErrorCode.none:
        raise Refused(f"{what}: {answer.error_code.name}")


# What consumers say to each other in the classic protocol: version 0 of its two messages.


def _subscription(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, -1)


def _assignment(topic: str, partitions: Iterable[int]) -> bytes:
    name, numbers = topic.encode(), list(partitions)
    head = struct.pack(f">hih{len(name)}si", 0, 1, len(name), name, len(numbers))
    return head + struct.pack(f">{len(numbers)}ii", *numbers, -1)


def _assigned(data: bytes) -> tuple[int, ...]:
    (size,) = struct.unpack_from(">h", data, 6)
    (count,) = struct.unpack_from(">i", data, 8 + size)
    return struct.unpack_from(f">{count}i", data, 12 + size)
