"""Runs: messages that were published at the same time, and are handled together.

A run of a thousand messages costs little more than a run of one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.message import Message


class Run(NamedTuple):
    """Messages in the order of publishing."""

    time_ms: int  # When they were published.
    messages: Sequence[Message]


def is_large(run: Run) -> bool:
    """Return whether it is one large message, which is written in slices before it is appended."""
    messages = run.messages
    return len(messages) == 1 and len(messages[0][1]) > limits.LARGE_BYTES


class Taken(NamedTuple):
    """Messages that are delivered to a consumer."""

    offsets: range  # As many as the run has messages; the range may have any step.
    run: Run
    attempts: Sequence[int] | None  # How often each was delivered before. None means: never.

    def part(self, which: slice) -> Taken:
        """Return those of the messages that the slice selects."""
        offsets, (time_ms, messages), attempts = self
        run = Run(time_ms, messages[which])
        return Taken(offsets[which], run, None if attempts is None else attempts[which])


class Refused(Exception):
    """A queue refused messages: it is full, or deleted."""

    def __init__(self, text: str, places: Sequence[int] | None = None) -> None:
        super().__init__(text)
        self.places = places  # Indexes of the refused messages in the run. None means: all.


Failure = StorageError | Refused


class Publication:
    """Counts the answers that a published run still waits for, and calls back after the last one.

    It begins with one for the publisher itself, so that it cannot end before the run is published
    to all queues: then the publisher calls `arrived`.
    """

    __slots__ = ("_done", "_failure", "waiting")

    def __init__(self, done: Callable[[Failure | None], None] | None) -> None:
        """Make a publication that calls `done` at its end, with the failure or None."""
        self._done = done
        self.waiting = 1  # Answers that it waits for.
        self._failure: Failure | None = None

    def part(self, places: Sequence[int]) -> Publication:
        """Return a publication for the messages at these places of the run.

        This one waits for it. Places of refused messages are translated to those of this run.
        """
        self.expect()

        def done(failure: Failure | None) -> None:
            if isinstance(failure, Refused):
                within = range(len(places)) if failure.places is None else failure.places
                failure = Refused(str(failure), [places[place] for place in within])
            self.arrived(failure)

        return Publication(done)

    def expect(self) -> None:
        """Wait for one more answer."""
        self.waiting += 1

    def arrived(self, failure: Failure | None = None) -> None:
        """Take the answer of one queue: the messages are committed, or `failure` says why not."""
        if failure is not None:
            self._failure = _worse(self._failure, failure)
        self.waiting -= 1
        if self.waiting == 0:
            self._end(self._failure)

    def _end(self, failure: Failure | None) -> None:
        """Call back. Gateways override this in subclasses."""
        if self._done is not None:
            self._done(failure)


class Pending:
    """A run that was published to a queue and is not committed there yet."""

    __slots__ = ("due_ms", "is_plain", "offsets", "publication", "run", "until_settled")

    def __init__(
        self,
        run: Run,
        publication: Publication | None,
        until_settled: bool = False,
        due_ms: int | None = None,
    ) -> None:
        self.run = run
        self.publication = publication
        self.until_settled = until_settled  # The publisher waits until they are consumed.
        self.due_ms = due_ms  # Until when they are deferred. None means: they are not.
        # Whether it can be appended without further checks.
        messages = run.messages
        self.is_plain = (
            due_ms is None
            and not until_settled
            and (len(messages) != 1 or len(messages[0][1]) <= limits.LARGE_BYTES)
        )
        self.offsets = range(0)  # Of its messages, once it is appended.

    def part(self, messages: Sequence[Message]) -> Pending:
        """Return a pending run of some of its messages, with the same publication.

        The publication must expect an answer for it.
        """
        run = Run(self.run.time_ms, messages)
        return Pending(run, self.publication, self.until_settled, self.due_ms)

    def arrived(self, failure: Failure | None = None) -> None:
        if self.publication is not None:
            self.publication.arrived(failure)


def _worse(one: Failure | None, other: Failure) -> Failure:
    """Combine two failures: one of the whole run if there is one, otherwise one of all places."""
    if one is None:
        return other
    if not isinstance(one, Refused) or one.places is None:
        return one
    if not isinstance(other, Refused) or other.places is None:
        return other
    return Refused(str(one), sorted({*one.places, *other.places}))
