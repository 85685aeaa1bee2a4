"""Identities: a queue that remembers the ids of its messages takes each id once in a while.

An id is compared with those of the last minutes (`identity_ms`), of the whole queue or of the
message's group. A duplicate is not appended; its publisher is answered as if it were, once the
first message is committed, and on enough nodes of a cluster, and can ask where that is.

Ids are not stored separately: the stored message has its id. When the first message comes after a
start, the ids of the last minutes are read from the log, settled messages included, and messages
that come meanwhile wait for that. Only what comes through `publish` is compared and remembered:
a dead letter, or a message that is moved, has an id from another queue and must not be dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from entrepot.broker.queue.message import Failure, Pending, Publication, Refused, Run
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import NotEnoughReplicasAfterAppend, StorageError
from entrepot.core.message import Envelope
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps

if TYPE_CHECKING:
    from entrepot.broker.queue.queue import Queue

_READ_AT_ONCE = 16  # Messages: they may be large.


class TooManyIdentities(Refused):
    """More messages came in a short time than a queue can remember ids of."""


class Identities:
    """The ids of one queue, which has one lane and `identity_ms`."""

    def __init__(self, queue: Queue, clock: Clock, turns: Turns) -> None:
        self._queue = queue
        self._clock = clock
        self._turns = turns
        # By key: offset and time of the message. The oldest first, as far as clocks are right.
        self._known: dict[bytes, tuple[int, int]] = {}
        # Keys of messages that are not committed yet, and the duplicates that wait for them.
        self._arriving: dict[bytes, list[Publication]] = {}
        self._is_complete = False  # Whether the ids from before the start are known.
        self._waiting: list[Callable[[Failure | None], None]] = []  # For these ids.

    def offset_of(self, envelope: Envelope) -> int | None:
        """Return the offset of the message that has the id in this envelope; None if none has."""
        found = self._known.get(self._key(envelope))
        return None if found is None else found[0]

    def publish(self, run: Run, publication: Publication) -> None:
        """Publish a run of one message, unless it is a duplicate. It must have an id."""
        publication.expect()
        if self._is_complete:
            self._publish(run, publication, None)
            return
        self._waiting.append(partial(self._publish, run, publication))
        if len(self._waiting) == 1:
            self._turns.start(self._read_known())

    def _publish(self, run: Run, publication: Publication, failure: Failure | None) -> None:
        if failure is not None:
            publication.arrived(failure)
            return
        key = self._key(run.messages[0][0])
        self._forget_old()
        if key in self._arriving:
            self._arriving[key].append(publication)
        elif key in self._known:
            self._queue.when_safe(publication.arrived)
        elif len(self._known) + len(self._arriving) >= limits.QUEUE_IDENTITIES_MAX:
            text = "more messages in a short time than the queue can remember the ids of"
            publication.arrived(TooManyIdentities(text))
        else:
            self._arriving[key] = [publication]
            first = Publication(lambda failure: self._arrived(key, pending, failure))
            pending = self._queue.publish(run, first)
            first.arrived()

    def _arrived(self, key: bytes, pending: Pending, failure: Failure | None) -> None:
        if failure is None or isinstance(failure, NotEnoughReplicasAfterAppend):
            self._known[key] = (pending.offsets.start, pending.run.time_ms)
        for each in self._arriving.pop(key):
            each.arrived(failure)

    def _forget_old(self) -> None:
        lasts_ms = self._queue.settings.identity_ms
        assert lasts_ms is not None
        now_ms = self._clock.now_ms()
        while self._known:
            key = next(iter(self._known))
            if self._known[key][1] + lasts_ms > now_ms:
                break
            del self._known[key]

    def _key(self, envelope: Envelope) -> bytes:
        handling = envelope.handling
        assert handling.deduplication_id is not None
        digest = blake2b(handling.deduplication_id, digest_size=16)
        if self._queue.settings.identity_per_group:
            digest.update(b"\0" + (handling.group or "").encode("utf-8", "surrogateescape"))
        return digest.digest()

    # --- after a start

    def _read_known(self) -> Steps[None]:
        """Read the ids of the last minutes from the log, and publish what waits for that."""
        failure: StorageError | None = None
        try:
            yield from self._read()
            self._is_complete = True
        except StorageError as error:
            failure = error
        except Exception as error:  # A bug: who waits gets an answer.
            failure = StorageError("internal error")
            self._queue.guard(_raise, error)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each(failure)

    def _read(self) -> Steps[None]:
        lane, lasts_ms = self._queue.lanes[0], self._queue.settings.identity_ms
        assert lasts_ms is not None
        first_ms = self._clock.now_ms() - lasts_ms
        first, end = lane.offset_for_time(first_ms), lane.offset_end
        first = max(first, lane.offset_start, end - limits.QUEUE_IDENTITIES_MAX)
        for start in range(first, end, _READ_AT_ONCE):
            for offsets, run in lane.read(range(start, min(end, start + _READ_AT_ONCE))):
                for offset, (envelope, _) in zip(offsets, run.messages, strict=True):
                    if run.time_ms >= first_ms and _came_here_first(envelope):
                        self._known[self._key(envelope)] = (offset, run.time_ms)
            yield


def _came_here_first(envelope: Envelope) -> bool:
    """Return whether a stored message came through `publish`, and not from another queue."""
    handling = envelope.handling
    if handling.deduplication_id is None or handling.group is None:
        return False
    return not envelope.format.deaths(envelope.head)


def _raise(error: Exception) -> None:
    raise error
