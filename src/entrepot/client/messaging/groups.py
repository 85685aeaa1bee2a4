"""Process groups: who is a member, and messages that all members get in one order.

A group's messages and its views, lists of the members, are records of one topic with one
partition, so all members see one sequence of both (virtual synchrony). The order is total; and
since a member's records keep their order, and whoever answers a message appends behind it, it is
also FIFO and causal.

Members say that they are there by events that nobody stores. Who hears nothing of another, while he
hears himself, suspects it and appends that; the first suspicion in the log makes a new view without
it. A member that was only slow is told that it is no member any more, and may join again. Nobody is
suspected because the broker is away: then nobody hears himself.

In a closed group only members send; in an open one everybody does. A durable group's messages are
on disk when they are sent, and who was away may ask for what it missed; in a volatile one they are
not synced, and who is away misses them.

A state machine is given to a group as a function, which is called with every message from the first
on, in the one order. So states that follow from it alone are equal in all processes, also in those
that come later.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from entrepot.client.errors import ClientError
from entrepot.client.messaging.message import Message
from entrepot.client.messaging.replica import Replica
from entrepot.client.messaging.replicated_space import ReplicatedSpaceVerbs
from entrepot.client.messaging.subjects import Subscription
from entrepot.client.messaging.topics import Entry
from entrepot.core.clock import SystemEntropy
from entrepot.core.record import Record

MEMBERS_MAX = 1_000
BEAT_S, BEATS_MISSED_MAX = 0.5, 6
_ID_BYTES = 8

logger = logging.getLogger("entrepot.client")


class View(NamedTuple):
    """The members at one time, the oldest first. That one may lead: all agree on who it is."""

    number: int
    members: tuple[str, ...]


class Sent(NamedTuple):
    """A message to a group."""

    sender: str
    value: Any


OnEvent = Callable[[View | Sent], Any]
Machine = Callable[[Sent], Any]


class _Applied(NamedTuple):
    """What a message was answered by the state machine."""

    result: Any
    failure: Exception | None = None


class Group:
    """A group, and perhaps our membership. Made by `AsyncClient.group`."""

    def __init__(
        self,
        verbs: ReplicatedSpaceVerbs,
        name: str,
        member: str | None,
        on_event: OnEvent | None,
        *,
        is_closed: bool,
        is_durable: bool,
        machine: Machine | None = None,
        after: int | None = None,
    ) -> None:
        self.name = name
        self.member = member or SystemEntropy().token(_ID_BYTES).hex()
        self.view = View(0, ())
        self.is_closed = is_closed  # Until the record that says how the group was made.
        self.is_durable = is_durable  # The same.
        self.was_excluded = False
        self.position = -1 if after is None else after  # Of the last event that we were told.
        self._is_made = False
        self._is_told = False  # Since our joining, and not what is read before it.
        self._after = after  # Not None: everything behind it is told, whether members or not.
        self._verbs = verbs
        self._on_event = on_event
        self._machine = machine
        self._events: deque[tuple[int, View | Sent]] = deque()
        self._wake = asyncio.Event()
        self._replica = Replica(verbs, f"group.{name}", self._apply, settings=_kept(is_durable))
        self._beats: dict[str, int] = {}  # Our own that we heard since the last of each member.
        self._listening: Subscription | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_member(self) -> bool:
        return self.member in self.view.members

    @property
    def leader(self) -> str | None:
        """Return the oldest member: every member gives the same answer in the same view."""
        return self.view.members[0] if self.view.members else None

    async def start(self) -> None:
        await self._replica.start()
        await self._change("make", closed=self.is_closed, durable=self.is_durable)
        if self._after is not None and not self.is_durable:
            raise ClientError(f"group '{self.name}' is volatile: what was missed is not told")
        self._tasks.append(asyncio.create_task(self._tell()))
        self._verbs.stops(self)

    async def join(self) -> View:
        """Become a member; return the view that begins with it. Raises ClientError."""
        if self._listening is None:
            subject = f"group-beats.{self.name}"
            self._listening = await self._verbs.subscribe(subject, self._hear_beat)
            self._tasks.append(asyncio.create_task(self._beat(subject)))
        was_told = self._is_told
        self.was_excluded, self._is_told = False, True
        found = await self._change("join")
        if not isinstance(found, View):
            self._is_told = was_told
            raise ClientError(f"group '{self.name}' has {MEMBERS_MAX} members, or us already")
        return found

    async def leave(self) -> None:
        """Be no member any more."""
        await self._change("leave")

    async def send(self, value: Any) -> Any:
        """Send a message to all members, ourselves included; it is in its place in the order when
        this returns. Return what our state machine answered, if there is one, or raise what it
        raised. Raises ClientError if the group is closed and we are no member of it."""
        applied = await self._change("send", value=value)
        if not isinstance(applied, _Applied):
            raise ClientError(f"group '{self.name}' is closed, and '{self.member}' no member of it")
        if applied.failure is not None:
            raise applied.failure
        return applied.result

    async def stop(self) -> None:
        """End without leaving: the others will suspect us."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # --- the sequence

    async def _change(self, kind: str, **facts: Any) -> object:
        body = json.dumps({"kind": kind, "member": self.member, **facts}).encode()
        return await self._replica.change(Record(None, body))

    def _apply(self, entry: Entry) -> object:
        """Apply a record. Return the view or the message that it makes, or None."""
        try:
            said = json.loads(entry.body)
            kind, member = said["kind"], said["member"]
        except (ValueError, TypeError, KeyError):
            return None  # Somebody wrote something else there.
        members = self.view.members
        if kind == "make" and not self._is_made:
            self._is_made, self.is_closed = True, bool(said.get("closed"))
            self.is_durable = bool(said.get("durable", True))
        elif kind == "join" and member not in members and len(members) < MEMBERS_MAX:
            return self._change_view((*members, member), entry.offset)
        elif kind == "leave" and member in members:
            return self._without(member, entry.offset)
        elif kind == "suspect" and member in members and said.get("view") == self.view.number:
            return self._without(str(said.get("whom")), entry.offset)
        elif kind == "send" and (member in members or not self.is_closed):
            sent = Sent(member, said.get("value"))
            self._happened(entry.offset, sent, self.is_member)
            return self._applied(sent)
        return None

    def _applied(self, sent: Sent) -> _Applied:
        """Let the state machine answer a message."""
        if self._machine is None:
            return _Applied(None)
        try:
            return _Applied(self._machine(sent))
        except Exception as error:  # All others raise it as well; it is the sender's.
            return _Applied(None, error)

    def _without(self, member: str, place: int) -> View | None:
        members = self.view.members
        if member not in members:
            return None
        if member == self.member:
            self.was_excluded = True
        return self._change_view(tuple(each for each in members if each != member), place)

    def _change_view(self, members: tuple[str, ...], place: int) -> View:
        was_member = self.is_member
        self.view = View(self.view.number + 1, members)
        self._beats = dict.fromkeys(members, 0)
        # The last view that we are told is the one without us.
        self._happened(place, self.view, was_member or self.is_member)
        return self.view

    def _happened(self, place: int, event: View | Sent, is_ours: bool) -> None:
        if self._after is None:
            is_told = is_ours and self._is_told
        else:
            is_told = place > self._after
        if is_told:
            self._events.append((place, event))
            self._wake.set()

    async def _tell(self) -> None:
        """Call the callback with one event after the other."""
        while True:
            while self._events:
                place, event = self._events.popleft()
                try:
                    result = None if self._on_event is None else self._on_event(event)
                    if inspect.isawaitable(result):
                        await result
                except Exception:
                    logger.exception("an event of group '%s' was not handled", self.name)
                self.position = place
            self._wake.clear()
            if not self._events:
                await self._wake.wait()

    # --- who is there

    async def _beat(self, subject: str) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            if self.is_member:
                try:
                    await self._verbs.publish(subject, self.member)
                except ClientError as error:
                    logger.warning("group '%s': %s", self.name, error)

    async def _hear_beat(self, _: Subscription, beat: Message) -> None:
        member = beat.text
        if member not in self._beats:
            return
        self._beats[member] = 0
        if member != self.member:
            return
        for other in self.view.members:
            if other != member:
                self._beats[other] += 1
        missed = [each for each, count in self._beats.items() if count > BEATS_MISSED_MAX]
        for each in missed:
            await self._change("suspect", whom=each, view=self.view.number)


class GroupVerbs(ReplicatedSpaceVerbs):
    """The part of a client that is about process groups."""

    async def group(
        self,
        name: str,
        on_event: OnEvent | None = None,
        *,
        member: str | None = None,
        is_closed: bool = True,
        is_durable: bool = True,
        machine: Machine | None = None,
        after: int | None = None,
    ) -> Group:
        """Return a group, made if there is none: then it is closed, or open to all senders, and
        durable or volatile.

        `on_event` is called with each `View` and each `Sent` message while we are a member, in the
        order that is the same for all; the last view is the one in which we are not. `member` is
        our name there. With `after`, a `position` from before, it is called with everything behind
        that, what was missed included; a volatile group refuses that.

        `machine` is called with each message from the group's first on, members or not, in the
        loop: it must be quick, and do the same everywhere. `send` returns what it returns.
        """
        made = Group(
            self,
            name,
            member,
            on_event,
            is_closed=is_closed,
            is_durable=is_durable,
            machine=machine,
            after=after,
        )
        await made.start()
        return made

    async def delete_group(self, name: str) -> None:
        """End a group: its topic is deleted. Members' groups are of no more use."""
        from entrepot.client.admin import Admin

        await Admin(await self.kafka()).delete_topics([f"group.{name}"])


def _kept(is_durable: bool) -> dict[str, str]:
    """Return the settings of a group's topic: it is read from its first record on, for ever."""
    kept = {"retention.ms": "-1", "retention.bytes": "-1"}
    return kept if is_durable else {**kept, "durability": "os"}
