"""Appends to a topic the messages that exchanges route to it.

A message that was published on a subject has the name, as a path, as its record's key: so what
is published on one name is in one partition, and in order. Other messages have no key: all runs
of one turn of the loop are appended together to one partition, those of the next turn to the next
one. A run that the topic refuses is refused alone. A large message is written in slices; runs that
are published after it wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from entrepot.broker.queue.message import (
    Publication,
    Refused,
    Run,
    is_large,
)
from entrepot.broker.queue.record_batches import KeyOf, encode_runs
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.subject.name import to_path
from entrepot.broker.turns import Turns
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.message import Envelope, distinct
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Worker

Published = tuple[Run, Publication | None]


class TopicFeed:
    def __init__(
        self,
        served_partitions: Callable[[], Sequence[ServedPartition]],
        worker: Worker,
        turns: Turns,
        subject_exchange: str,
    ) -> None:
        self.served_partitions = (
            served_partitions  # Returns the topic's partitions; none if it is deleted.
        )
        self._worker = worker  # Compresses, if the topic is set to.
        self._turns = turns
        self._subject_exchange = subject_exchange  # Its messages have keys.
        self._gathered: list[Published] = []  # Runs of this turn, or after a large message.
        self._is_writing_large = False
        self._turn = 0

    @property
    def is_gone(self) -> bool:
        """Return whether the topic is deleted."""
        return not self.served_partitions()

    def publish(self, run: Run, publication: Publication | None) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        if publication is not None:
            publication.expect()
        self._gathered.append((run, publication))

    def publish_now(self, run: Run, publication: Publication | None) -> None:
        """Publish, and do not leave the append for the end of the turn.

        For who publishes to very many topics in turns: the appends are most of the work.
        """
        if publication is not None:
            publication.expect()
        self._gathered.append((run, publication))
        self._append_gathered()

    def _append_gathered(self) -> None:
        """Append all runs up to the first large message, and begin to write that one."""
        if self._is_writing_large:
            return
        gathered, self._gathered = self._gathered, []
        place = next((at for at, (run, _) in enumerate(gathered) if is_large(run)), len(gathered))
        self._gathered = gathered[place + 1 :]
        try:
            self._append_some(gathered[:place])
        finally:
            for large in gathered[place : place + 1]:
                self._is_writing_large = True
                work = asyncio.ensure_future(self._append_large(large))
                work.add_done_callback(lambda done: done.cancelled() or done.result())

    def _key_of(self, envelope: Envelope) -> bytes | None:
        if envelope.exchange != self._subject_exchange:
            return None
        return to_path(envelope.subject).encode("utf-8", "surrogateescape")

    def _key_if_needed(self, runs: Sequence[Run]) -> KeyOf | None:
        """Return what gives messages their keys. None means: none of these has one."""
        exchange = self._subject_exchange
        is_needed = any(run.messages[0][0].exchange == exchange for run in runs if run.messages)
        return self._key_of if is_needed else None

    def _place(self, envelope: Envelope, count: int) -> int:
        """Return the partition of a message, among `count`."""
        key = self._key_of(envelope)
        return self._turn % count if key is None else partition_of(key, count)

    def _append_some(self, gathered: Sequence[Published]) -> None:
        if not gathered:
            return
        served_partitions = self.served_partitions()
        self._turn += 1
        if not served_partitions:
            _answer(gathered, Refused("the topic is gone"))
            return
        for place, some in self._divided(gathered, len(served_partitions)).items():
            self._append_to(served_partitions[place], some)

    def _divided(self, gathered: Sequence[Published], count: int) -> dict[int, list[Published]]:
        """Return what goes to which partition."""
        found: dict[int, list[Published]] = {}
        if count == 1:
            return {0: [*gathered]}
        for run, publication in gathered:
            known = {id(each): self._place(each, count) for each in distinct(run.messages)}
            places: dict[int, list[int]] = {}
            for at, (envelope, _) in enumerate(run.messages):
                places.setdefault(known[id(envelope)], []).append(at)
            if len(places) == 1:
                found.setdefault(next(iter(places)), []).append((run, publication))
                continue
            for place, own in places.items():
                part = None if publication is None else publication.part(own)
                messages = [run.messages[at] for at in own]
                found.setdefault(place, []).append((run._replace(messages=messages), part))
            if publication is not None:
                publication.arrived()  # It waits for its parts instead.
        return found

    def _append_to(self, served: ServedPartition, gathered: Sequence[Published]) -> None:
        try:
            self._append(served, gathered)
        except PeerError:  # One run is refused: append each alone, so that the others are not.
            for each in gathered:
                try:
                    self._append(served, [each])
                except PeerError as error:
                    _answer([each], Refused(str(error)))
        except Exception:  # A bug: publishers get an answer, the loop gets the error.
            _answer(gathered, Refused("internal error"))
            raise

    async def _append_large(self, large: Published) -> None:
        served_partitions = self.served_partitions()
        self._turn += 1
        try:
            if not served_partitions:
                _answer([large], Refused("the topic is gone"))
                return
            envelope = large[0].messages[0][0]
            served = served_partitions[self._place(envelope, len(served_partitions))]
            (encoded,) = encode_runs([large[0]], self._key_if_needed([large[0]]))
            appended = await served.append_large(encoded.chunks, self._worker, self._turns)
            served.when_committed(appended.offset_end, lambda failure: _answer([large], failure))
        except StorageError as error:
            _answer([large], error)
        except PeerError as error:
            _answer([large], Refused(str(error)))
        except Exception:
            _answer([large], Refused("internal error"))
            raise
        finally:
            self._is_writing_large = False
            self._append_gathered()

    def _append(self, served: ServedPartition, published: Sequence[Published]) -> None:
        """Append these runs. Raises a PeerError if the topic refuses any; then none is appended."""
        runs = [run for run, _ in published]
        batches = encode_runs(runs, self._key_if_needed(runs))
        try:
            appended = served.append(
                b"".join([chunk for batch in batches for chunk in batch.chunks])
            )
        except StorageError as error:
            _answer(published, error)
            return
        served.when_committed(appended.offset_end, lambda failure: _answer(published, failure))


def _answer(published: Sequence[Published], failure: StorageError | Refused | None) -> None:
    for _, publication in published:
        if publication is not None:
            publication.arrived(failure)
