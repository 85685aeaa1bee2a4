"""A replicated tuple space after Xu and Liskov: the steps of write, read and take, without I/O.

Each *site* has a copy of the space. Whoever wants something is a *requester*, and asks all sites of
the view; here the view does not change, a site that is away is waited for.

    write  1  the requester multicasts the write to all sites
           2  a site inserts the tuple, and acknowledges that
           3  step 1 is repeated until all have acknowledged
    read   1  the requester multicasts the read
           2  a site returns a tuple that matches
           3  the first answer is the result, the others are ignored
           4  step 1 is repeated until there is one
    take, phase 1: which tuple
           1  the requester multicasts the take
           2  a site locks the set of tuples, or rejects the take if somebody else has it locked
           3  sites that accept return all tuples that match
           4  step 1 is repeated until all have accepted; the intersection must not be empty
           5  one tuple of the intersection is chosen at random
           6  if only a minority accepts, it is asked to release its locks, and phase 1 is repeated
    take, phase 2: it is removed
           1  the requester multicasts which tuple is to be removed
           2  a site removes it, acknowledges that, and releases the lock
           3  step 1 is repeated until all have acknowledged

What the algorithm leaves open, and how it is here: messages may be repeated and come late, so each
attempt has a name of its own, and sites remember what they removed. A requester may die, so a lock
that is old may be broken, and two requesters may each believe that they hold all locks. So phase 2
begins at one site, the first, which removes a tuple once; its answer decides whose the tuple is,
and the other sites are asked then. A requester that dies in between has taken the tuple with it;
copies of it may be left at the others, where they can be read, and never be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Any, NamedTuple, Protocol

from entrepot.client.messaging.templates import Tuple, is_open, matches

DECIDING = 0  # The site that says whose a tuple is.
LOCK_MS = 5_000  # So old, and a lock may be broken.
GONE_MAX = 100_000  # Tuples that a site remembers to have removed.
ENDED_MAX = 10_000  # Attempts that a site remembers to have ended.
PAUSE_TICKS_MAX = 8

Send = tuple[int, Any]  # To which site, and a message.
Trace = Callable[[str, str], None]  # A step, such as "take 1.3", and who does it.


class Write(NamedTuple):
    request: str
    id: str
    value: Tuple


class Read(NamedTuple):
    request: str
    template: Tuple


class Take(NamedTuple):
    request: str
    template: Tuple


class Release(NamedTuple):
    request: str


class Remove(NamedTuple):
    request: str
    id: str
    is_decided: bool  # The first site has removed it: no lock is needed.


class Done(NamedTuple):
    """A site has inserted the tuple, or released its lock."""

    request: str


class Found(NamedTuple):
    request: str
    value: Tuple | None


class Accepted(NamedTuple):
    request: str
    tuples: dict[str, Tuple]


class Rejected(NamedTuple):
    request: str


class Removed(NamedTuple):
    request: str
    is_so: bool


class Chance(Protocol):
    def below(self, end: int) -> int:
        """Return a number from 0 on, below the end."""


class _Lock(NamedTuple):
    request: str
    length: int
    first: Any  # The first field of the set's tuples; `...` is any.
    until_ms: int


class Site:
    """One copy of the space."""

    def __init__(self, trace: Trace | None = None, name: str = "a site") -> None:
        self.tuples: dict[str, Tuple] = {}
        self._name = name
        self._trace = trace
        self._locks: dict[str, _Lock] = {}
        self._gone: dict[str, str] = {}  # Removed tuples, and in which attempt.
        self._ended: dict[str, None] = {}  # Attempts that may lock no more.

    @property
    def is_locked(self) -> bool:
        return bool(self._locks)

    def receive(self, message: Any, now_ms: int) -> Any:
        """Return the answer."""
        if isinstance(message, Write):
            self._note("write 2")
            if message.id not in self._gone:
                self.tuples[message.id] = message.value
            return Done(message.request)
        if isinstance(message, Read):
            self._note("read 2")
            found = (value for value in self.tuples.values() if matches(message.template, value))
            return Found(message.request, next(found, None))
        if isinstance(message, Take):
            return self._take(message, now_ms)
        if isinstance(message, Remove):
            return self._remove(message)
        assert isinstance(message, Release), message
        self._end(message.request)
        return Done(message.request)

    def _take(self, take: Take, now_ms: int) -> Accepted | Rejected:
        self._note("take 1.2")
        wanted = _lock_for(take, now_ms)
        against = [lock for lock in self._locks.values() if _collide(lock, wanted)]
        if take.request in self._ended or any(lock.until_ms > now_ms for lock in against):
            return Rejected(take.request)
        for lock in against:
            self._end(lock.request)  # Its owner has been away for too long.
        self._locks.setdefault(take.request, wanted)
        self._note("take 1.3")
        found = {id: value for id, value in self.tuples.items() if matches(take.template, value)}
        return Accepted(take.request, found)

    def _remove(self, remove: Remove) -> Removed:
        if remove.id in self._gone:
            is_so = remove.is_decided or self._gone[remove.id] == remove.request
        else:
            has_lock = remove.request in self._locks and remove.id in self.tuples
            is_so = remove.is_decided or has_lock
            if is_so:
                self._note("take 2.2")
                self.tuples.pop(remove.id, None)
                _remember(self._gone, remove.id, remove.request, GONE_MAX)
        self._end(remove.request)
        return Removed(remove.request, is_so)

    def _end(self, request: str) -> None:
        self._locks.pop(request, None)
        _remember(self._ended, request, None, ENDED_MAX)

    def _note(self, step: str) -> None:
        if self._trace is not None:
            self._trace(step, self._name)


def _lock_for(take: Take, now_ms: int) -> _Lock:
    first = take.template[0] if take.template else ...
    first = ... if is_open(first) or isinstance(first, list | tuple) else first
    return _Lock(take.request, len(take.template), first, now_ms + LOCK_MS)


def _collide(one: _Lock, other: _Lock) -> bool:
    """Return whether two attempts want the same set of tuples."""
    if one.request == other.request or one.length != other.length:
        return False
    return one.first is ... or other.first is ... or bool(one.first == other.first)


def _remember(memory: dict[str, Any], key: str, value: Any, count_max: int) -> None:
    memory.setdefault(key, value)
    if len(memory) > count_max:
        del memory[next(iter(memory))]


class Request(Protocol):
    """An operation on its way. `result` counts when `is_over`."""

    is_over: bool
    result: Any

    def start(self) -> Sequence[Send]: ...

    def receive(self, site: int, answer: Any) -> Sequence[Send]: ...

    def tick(self) -> Sequence[Send]:
        """Repeat what was not answered."""


class Writing:
    """A write: over when all sites have the tuple."""

    def __init__(self, name: str, sites: int, write: Write, trace: Trace | None = None) -> None:
        self.is_over, self.result = False, None
        self._name = name
        self._write = write
        self._missing = set(range(sites))
        self._trace = trace

    def start(self) -> Sequence[Send]:
        _note(self._trace, "write 1", self._name)
        return [(site, self._write) for site in sorted(self._missing)]

    def receive(self, site: int, answer: Any) -> Sequence[Send]:
        if isinstance(answer, Done) and answer.request == self._write.request:
            self._missing.discard(site)
            self.is_over = not self._missing
        return ()

    def tick(self) -> Sequence[Send]:
        _note(self._trace, "write 3", self._name)
        return self.start()


class Reading:
    """A read: over with the first tuple, or when all sites have said that they have none."""

    def __init__(self, name: str, sites: int, read: Read, trace: Trace | None = None) -> None:
        self.is_over = False
        self.result: Tuple | None = None
        self._name = name
        self._read = read
        self._asked = set(range(sites))
        self._trace = trace

    def start(self) -> Sequence[Send]:
        _note(self._trace, "read 1", self._name)
        return [(site, self._read) for site in sorted(self._asked)]

    def receive(self, site: int, answer: Any) -> Sequence[Send]:
        if self.is_over or not isinstance(answer, Found) or answer.request != self._read.request:
            return ()
        self._asked.discard(site)
        if answer.value is not None:
            _note(self._trace, "read 3", self._name)
            self.result, self.is_over = answer.value, True
        elif not self._asked:
            self.is_over = True
        return ()

    def tick(self) -> Sequence[Send]:
        _note(self._trace, "read 4", self._name)
        return self.start()


class _Phase(Enum):
    SELECTING = 1
    RELEASING = 2
    PAUSING = 3
    REMOVING = 4


class Taking:
    """A take, in two phases. The result is None if no tuple was at all sites."""

    def __init__(
        self, name: str, sites: int, template: Tuple, chance: Chance, trace: Trace | None = None
    ) -> None:
        self.is_over = False
        self.result: Tuple | None = None
        self.attempts = 0
        self._name = name
        self._sites = range(sites)
        self._template = template
        self._chance = chance
        self._trace = trace
        self._phase = _Phase.SELECTING
        self._unreleased: set[int] = set()
        self._is_last = False  # When all is released it is over, without a tuple.
        self._pause = 0  # Ticks.
        self._request = ""
        self._answers: dict[int, Accepted | Rejected] = {}
        self._chosen: tuple[str, Tuple] | None = None
        self._removed: set[int] = set()

    def start(self) -> Sequence[Send]:
        """Begin phase 1."""
        self.attempts += 1
        self._request = f"{self._name}/{self.attempts}"
        self._phase, self._answers = _Phase.SELECTING, {}
        return self._ask(self._sites)

    def receive(self, site: int, answer: Any) -> Sequence[Send]:
        if self.is_over or answer.request != self._request:
            return ()
        if self._phase is _Phase.SELECTING and isinstance(answer, Accepted | Rejected):
            self._answers[site] = answer
            return self._select() if len(self._answers) == len(self._sites) else ()
        if self._phase is _Phase.REMOVING and isinstance(answer, Removed):
            return self._remove_next(site, answer.is_so)
        if self._phase is _Phase.RELEASING and isinstance(answer, Done):
            self._unreleased.discard(site)
            self._go_on()
        return ()

    def tick(self) -> Sequence[Send]:
        if self._phase is _Phase.SELECTING:
            _note(self._trace, "take 1.4", self._name)
            missing = [site for site in self._sites if not self._has_accepted(site)]
            self._answers = {site: self._answers[site] for site in self._sites
                             if site not in missing}  # fmt: skip
            return self._ask(missing)
        if self._phase is _Phase.REMOVING:
            _note(self._trace, "take 2.3", self._name)
            return self._ask_to_remove()
        if self._phase is _Phase.RELEASING:
            return self._ask_to_release()
        self._pause -= 1
        return self.start() if self._pause < 0 else ()

    def _has_accepted(self, site: int) -> bool:
        return isinstance(self._answers.get(site), Accepted)

    def _ask(self, sites: Iterable[int]) -> Sequence[Send]:
        _note(self._trace, "take 1.1", self._name)
        return [(site, Take(self._request, self._template)) for site in sites]

    def _select(self) -> Sequence[Send]:
        """Go on when all sites have accepted or rejected."""
        found = [each.tuples for each in self._answers.values() if isinstance(each, Accepted)]
        if 2 * len(found) <= len(self._sites):
            _note(self._trace, "take 1.6", self._name)
            return self._release(site for site in self._sites if self._has_accepted(site))
        if len(found) < len(self._sites):
            return ()  # The others are asked again.
        common = sorted(set.intersection(*map(set, found)))
        if not common:
            self._is_last = True
            return self._release(self._sites)
        id = common[self._chance.below(len(common))]
        _note(self._trace, "take 1.5", self._name)
        self._chosen = id, found[0][id]
        self._phase, self._removed = _Phase.REMOVING, set()
        return self._ask_to_remove()

    def _release(self, sites: Iterable[int]) -> Sequence[Send]:
        """Give the locks back, and begin again after a while, or end."""
        self._phase, self._unreleased = _Phase.RELEASING, set(sites)
        self._go_on()
        return self._ask_to_release()

    def _ask_to_release(self) -> Sequence[Send]:
        return [(site, Release(self._request)) for site in sorted(self._unreleased)]

    def _go_on(self) -> None:
        if self._unreleased:
            return
        self.is_over = self._is_last
        self._phase = _Phase.PAUSING
        self._pause = self._chance.below(min(2**self.attempts, PAUSE_TICKS_MAX))

    def _ask_to_remove(self) -> Sequence[Send]:
        _note(self._trace, "take 2.1", self._name)
        assert self._chosen is not None
        is_decided = DECIDING in self._removed
        left = (
            [site for site in self._sites if site not in self._removed]
            if is_decided
            else [DECIDING]
        )
        return [(site, Remove(self._request, self._chosen[0], is_decided)) for site in left]

    def _remove_next(self, site: int, is_removed: bool) -> Sequence[Send]:
        """Go on when a site has removed it, or refused to."""
        assert self._chosen is not None
        is_first = site == DECIDING and site not in self._removed
        if not is_removed:  # Our lock was broken, and it may be somebody else's.
            others = (each for each in self._sites if each != DECIDING)
            return self._release(others) if is_first else ()
        self._removed.add(site)
        if len(self._removed) == len(self._sites):
            self.result, self.is_over = self._chosen[1], True
            return ()
        return self._ask_to_remove() if is_first else ()


def _note(trace: Trace | None, step: str, who: str) -> None:
    if trace is not None:
        trace(step, who)
