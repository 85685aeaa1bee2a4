"""Dead letters on their way.

The dead are leased by their queue until their letters are committed where they go, and
settled then. A letter that is refused there is dropped, as RabbitMQ does it, unless the
queue was declared to keep it: then, and when a disk failed, it is sent again later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from entrepot.broker.queue.conservation import DEAD_LETTERED, REFUSED, UNROUTABLE
from entrepot.broker.queue.dead_letter import Death, Letters, letters
from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Failure, PropertyReader, Publication, Refused, Run
from entrepot.broker.queue.settings import QueueSettings, WhenFull
from entrepot.core import limits
from entrepot.core.envelope import Message
from entrepot.core.faults import Faults
from entrepot.core.ports import Clock

# A run, the queues that it must not come to, and who waits for it. Returns what went nowhere.
Publish = Callable[[Run, Sequence[str], Publication | None], Sequence[Message]]
# These messages are done with, for that reason.
Buried = Callable[[range, str], None]


class Burials:
    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        clock: Clock,
        reader: PropertyReader,
        publish: Publish,
        guard: Callable[..., None],
        faults: Faults,
    ) -> None:
        self._name = name
        self._exchange = settings.dead_letter_exchange
        self._key = settings.dead_letter_key
        self._is_at_least_once = settings.dead_letter_at_least_once
        self._clock = clock
        self._reader = reader
        self._publish = publish
        self._guard = guard  # Calls what runs later on the queue's behalf.
        self._faults = faults
        self.buries_refused = (
            settings.when_full is WhenFull.REFUSE_AND_DEAD_LETTER and self.are_held
        )
        self._is_closed = False

    @property
    def are_held(self) -> bool:
        """Whether the dead become letters here. Otherwise there is nothing to bury."""
        return self._exchange is not None

    def bury(self, pieces: Sequence[Piece], reason: str, buried: Buried) -> None:
        """Calls back for those whose letters have arrived, or need not."""
        for offsets, run in pieces:
            for some, places in self._written(run, reason):
                self._send(some, offsets[places], buried)

    def bury_unborn(self, run: Run, reason: str) -> None:
        """They were never in the queue: there is nothing to settle."""
        for some, _ in self._written(run, reason):
            if some.may_go:
                self._publish(some.run, some.avoided, None)

    def close(self) -> None:
        self._is_closed = True

    def _written(self, run: Run, reason: str) -> Iterator[tuple[Letters, slice]]:
        """The letters, with the places of their messages in the run.

        A message that no letter can be made of is set aside: it stays with the queue, in
        nobody's way, until the next start tries again.
        """
        assert self._exchange is not None
        death = Death(self._name, reason, self._clock.now_ms(), self._exchange, self._key)
        try:
            written = list(letters(run, death, self._reader))
        except Exception as error:
            if len(run.messages) == 1:
                self._faults.caught(f"a message of queue {self._name} is set aside", error)
                return
            written = []
        start = 0
        for some in written:
            stop = start + len(some.run.messages)
            yield some, slice(start, stop)
            start = stop
        if not written:  # One of them is at fault; the others have letters.
            for place, message in enumerate(run.messages):
                for some, _ in self._written(run._replace(messages=[message]), reason):
                    yield some, slice(place, place + 1)

    def _send(self, some: Letters, offsets: range, buried: Buried) -> None:
        if self._is_closed:
            return
        if not some.may_go:
            buried(offsets, UNROUTABLE)
            return
        nowhere: Sequence[Message] = ()

        def sent(failure: Failure | None) -> None:
            if failure is None:
                # Which of them went nowhere makes no difference: all are settled.
                buried(offsets[: len(nowhere)], UNROUTABLE)
                buried(offsets[len(nowhere) :], DEAD_LETTERED)
            elif isinstance(failure, Refused) and not self._is_at_least_once:
                buried(offsets, REFUSED)
            else:
                loop, wait = asyncio.get_running_loop(), limits.DEAD_LETTER_RETRY_MS / 1_000
                loop.call_later(wait, self._guard, self._send, some, offsets, buried)

        publication = Publication(partial(self._guard, sent))
        nowhere = self._publish(some.run, some.avoided, publication)
        publication.arrived()
