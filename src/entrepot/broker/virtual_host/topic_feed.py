"""A topic as a queue that is never emptied: what is published to it is appended.

What came in one turn of the loop is appended together, to one partition, and the next turn's
to the next: messages have no keys. What the topic does not take is refused, for that run only.
A large message is written in slices; what is published after it waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from entrepot.broker.queue.message import (
    PropertyReader,
    Publication,
    Refused,
    Run,
    is_large,
)
from entrepot.broker.queue.record_batches import RunEncoder
from entrepot.broker.stream import Stream
from entrepot.broker.turns import Turns
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Worker

Published = tuple[Run, Publication | None]


class TopicFeed:
    def __init__(
        self,
        streams: Callable[[], Sequence[Stream]],
        reader: PropertyReader,
        worker: Worker,
        turns: Turns,
    ) -> None:
        self.streams = streams  # The topic's; none when it is gone.
        self._encoder = RunEncoder(reader)
        self._worker = worker  # Compresses, where the topic wants that.
        self._turns = turns
        self._gathered: list[Published] = []  # In this turn, or behind a large message.
        self._is_writing_large = False
        self._turn = 0

    def publish(self, run: Run, publication: Publication | None) -> None:
        if not self._gathered:
            asyncio.get_running_loop().call_soon(self._append_gathered)
        if publication is not None:
            publication.expect()
        self._gathered.append((run, publication))

    def _append_gathered(self) -> None:
        """All that came, but for what comes after a large message."""
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

    def _next_stream(self) -> Stream | None:
        """None: the topic is gone."""
        streams = self.streams()
        self._turn += 1
        return streams[self._turn % len(streams)] if streams else None

    def _append_some(self, gathered: Sequence[Published]) -> None:
        stream = self._next_stream() if gathered else None
        if stream is None:
            _answer(gathered, Refused("the topic is gone"))
            return
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

    async def _append_large(self, large: Published) -> None:
        stream = self._next_stream()
        try:
            if stream is None:
                _answer([large], Refused("the topic is gone"))
                return
            (encoded,) = self._encoder.encode([large[0]])
            appended = await stream.append_large(encoded.chunks, self._worker, self._turns)
            stream.when_committed(appended.offset_end, lambda failure: _answer([large], failure))
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
