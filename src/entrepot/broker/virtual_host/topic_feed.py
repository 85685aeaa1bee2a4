"""A topic as a queue that is never emptied: what is published to it is appended.

What came in one turn of the loop is appended together, to one partition, and the next turn's
to the next: messages have no keys. What the topic does not take is refused, for that run only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from entrepot.broker.queue.message import PropertyReader, Publication, Refused, Run
from entrepot.broker.queue.record_batches import RunEncoder
from entrepot.broker.stream import Stream
from entrepot.core.errors import PeerError, StorageError

Published = tuple[Run, Publication | None]


class TopicFeed:
    def __init__(self, streams: Callable[[], Sequence[Stream]], reader: PropertyReader) -> None:
        self.streams = streams  # The topic's; none when it is gone.
        self._encoder = RunEncoder(reader)
        self._gathered: list[Published] = []  # In this turn.
        self._turn = 0

    def publish(self, run: Run, publication: Publication | None) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        if publication is not None:
            publication.expect()
        self._gathered.append((run, publication))

    def _append_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        streams = self.streams()
        if not streams:
            _answer(gathered, Refused("the topic is gone"))
            return
        self._turn += 1
        stream = streams[self._turn % len(streams)]
        try:
            self._append(stream, gathered)
        except PeerError:  # One run's fault is not the others'.
            for each in gathered:
                try:
                    self._append(stream, [each])
                except PeerError as error:
                    _answer([each], Refused(str(error)))
        except Exception:  # Ours: who published is told, and so is the loop.
            _answer(gathered, Refused("internal error"))
            raise

    def _append(self, stream: Stream, published: Sequence[Published]) -> None:
        """Raises a PeerError for what the topic does not take; then nothing is appended."""
        batches = self._encoder.encode([run for run, _ in published])
        try:
            appended = stream.append(
                b"".join([chunk for batch in batches for chunk in batch.chunks])
            )
        except StorageError as error:
            _answer(published, error)
            return
        stream.when_committed(appended.offset_end, lambda failure: _answer(published, failure))


def _answer(published: Sequence[Published], failure: StorageError | Refused | None) -> None:
    for _, publication in published:
        if publication is not None:
            publication.arrived(failure)
