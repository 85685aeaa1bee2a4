"""Appends to a topic the messages that exchanges route to it.

All runs of one turn of the loop are appended together to one partition, those of the next turn
to the next partition: messages have no record keys. A run that the topic refuses is refused alone.
A large message is written in slices; runs that are published after it wait for it.
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
from entrepot.broker.queue.record_batches import encode_runs
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.turns import Turns
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Worker

Published = tuple[Run, Publication | None]


class TopicFeed:
    def __init__(
        self,
        served_partitions: Callable[[], Sequence[ServedPartition]],
        worker: Worker,
        turns: Turns,
    ) -> None:
        self.served_partitions = (
            served_partitions  # Returns the topic's partitions; none if it is deleted.
        )
        self._worker = worker  # Compresses, if the topic is set to.
        self._turns = turns
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

    def _next_partition(self) -> ServedPartition | None:
        """Return the partition to append to next. None means: the topic is deleted."""
        served_partitions = self.served_partitions()
        self._turn += 1
        return served_partitions[self._turn % len(served_partitions)] if served_partitions else None

    def _append_some(self, gathered: Sequence[Published]) -> None:
        served = self._next_partition() if gathered else None
        if served is None:
            _answer(gathered, Refused("the topic is gone"))
            return
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
        served = self._next_partition()
        try:
            if served is None:
                _answer([large], Refused("the topic is gone"))
                return
            (encoded,) = encode_runs([large[0]])
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
        batches = encode_runs([run for run, _ in published])
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
