"""Tells all pages that watch what happens now: one sample a second, made once for all of them.

While nobody watches, nothing is computed. Who begins to watch gets the samples of the last
minutes, if others have watched, and the last lines of the log. What is sent is one event of
server-sent events, as bytes, the same for everybody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

import msgspec

from entrepot.broker.broker import Broker
from entrepot.core.ports import Clock, Space
from entrepot.gateway.http.console.feed import Feed
from entrepot.gateway.http.console.samples import Sampler
from entrepot.gateway.http.management.call import Sources
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError

Watcher = Callable[[bytes], None]

_WHERE = "the console's samples"
_OURS = ("http", "http_tls")  # The page itself comes and goes.


class Live:
    def __init__(self, broker: Broker, clock: Clock, sampler: Sampler, feed: Feed) -> None:
        self._broker = broker
        self._clock = clock
        self._sampler = sampler
        self._feed = feed
        self._watchers: dict[Watcher, None] = {}
        self._past: deque[dict[str, Any]] = deque(maxlen=http_limits.WATCH_SAMPLES_MAX)
        self._timer: asyncio.TimerHandle | None = None
        self._told = 0  # The number of the last line of the log that was told.
        self._loading: asyncio.Future[None] | None = None
        self._opened: dict[str, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._watchers)

    def join(self, watcher: Watcher) -> None:
        """Begin to tell somebody. Raises HttpError if there are very many."""
        if len(self._watchers) >= http_limits.WATCHERS_MAX:
            raise HttpError(503, "too many pages watch")
        if self._loading is None:
            self._loading = asyncio.ensure_future(self._load())
        if self._timer is None:
            self._past.clear()  # There is a gap between these and now.
            self._sampler.forget()
            self._opened = {}
            self._look()
        self._watchers[watcher] = None
        lines = self._feed.after(0)
        watcher(event("past", {"samples": list(self._past), "lines": lines}))

    def leave(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)
        if not self._watchers and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _load(self) -> None:
        """Import what tells of the process, by a worker: it takes a tenth of a second."""
        library = await self._broker.codec_worker(lambda: import_module("prometheus_client"))

        def process() -> tuple[float, float]:
            found = {each.name: each.samples for each in library.PROCESS_COLLECTOR.collect()}
            figures = [
                samples[0].value if (samples := found.get(name)) else 0.0
                for name in ("process_cpu_seconds", "process_resident_memory_bytes")
            ]
            return figures[0], figures[1]

        self._sampler.process = process

    def _look(self) -> None:
        """Make a sample, and tell it to everybody."""
        loop, wait_s = asyncio.get_running_loop(), http_limits.WATCH_MS / 1_000
        self._timer = loop.call_later(wait_s, self._broker.faults.guard, _WHERE, self._look)
        self._sampler.sweep_if_due()
        sample = self._sampler.sample()
        self._past.append(sample)
        self._note_connections()
        lines = self._feed.after(self._told)
        if lines:
            self._told = lines[-1].number
        told = event("now", {"sample": sample, "lines": lines})
        for watcher in list(self._watchers):
            watcher(told)

    def _note_connections(self) -> None:
        """Add to the feed who came and went, in numbers."""
        for name, traffic in self._sampler.traffic().items():
            opened, closed = self._opened.get(name, (traffic.opened, traffic.closed))
            came, went = traffic.opened - opened, traffic.closed - closed
            self._opened[name] = traffic.opened, traffic.closed
            said = [f"{count} {what}" for count, what in ((came, "opened"), (went, "closed"))
                    if count]  # fmt: skip
            if said and name not in _OURS:
                text = f"connections: {', '.join(said)}"
                self._feed.add(self._clock.now_ms(), "info", name, text)


def live(
    broker: Broker,
    clock: Clock,
    sources: Sources,
    space: Callable[[], Awaitable[Space]],
    feed: Feed,
) -> Live:
    """Make what tells the pages of all endpoints."""
    return Live(broker, clock, Sampler(broker, clock, sources, space), feed)


def event(name: str, data: object) -> bytes:
    """Return an event as it is sent. JSON has no line breaks of its own."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode(data))
