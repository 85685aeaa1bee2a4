"""The topics of the broker's own under `$SYS/`, with Mosquitto's names.

They are retained messages that nobody keeps: who subscribes gets the values of that moment, and
afterwards, in intervals, those that have changed. Values that nobody listens to are not computed,
but for the averages, which take a few multiplications in each interval.

All of it is of QoS 0, so that a session whose client is away does not fill up with statistics.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from entrepot.broker.broker import Broker
from entrepot.broker.subject.filter import Filter
from entrepot.broker.subject.name import levels_of
from entrepot.broker.subject.name_index import NameIndex
from entrepot.broker.subject.retained import RetainedMessage
from entrepot.core.measures import MessageCount, Traffic
from entrepot.core.message import Envelope
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps
from entrepot.gateway.mqtt.format import MQTT, RETAIN

SYSTEM = "$SYS"
_STEP_SESSIONS = 500  # Looked at in one step.
_MINUTES = (1, 5, 15)
_STATIC = ("version",)


class Sources(NamedTuple):
    """Where the values come from. Both are of the ports of MQTT only."""

    traffic: Callable[[], Sequence[Traffic]]
    messages: Sequence[MessageCount]


class _Load:
    """Moving averages of a counter, per minute, over one, five and fifteen minutes."""

    __slots__ = ("_before", "averages")

    def __init__(self) -> None:
        self._before = 0
        self.averages = [0.0] * len(_MINUTES)

    def update(self, total: int, interval_s: float) -> None:
        per_minute = (total - self._before) * 60 / interval_s
        self._before = total
        for place, minutes in enumerate(_MINUTES):
            weight = math.exp(-interval_s / (60 * minutes))
            self.averages[place] = per_minute + weight * (self.averages[place] - per_minute)


class SystemTopics:
    def __init__(
        self, broker: Broker, sources: Sources, version: str, interval_s: int, clock: Clock
    ) -> None:
        """With an interval of 0 there are no such topics."""
        self._broker = broker
        self._sources = sources
        self._version = version
        self._interval_s = interval_s
        self._clock = clock
        self._started_s = clock.monotonic()
        self._loads: dict[str, _Load] = {}
        self._clients_max = 0
        self._told: dict[str, str] = {}  # Values that those who listen know, by topic.
        self._envelopes: dict[str, Envelope] = {}  # By topic.
        self._timer: asyncio.TimerHandle | None = None
        if interval_s:
            self._subjects = broker.vhosts.default.subjects
            self._subjects.retained.add_source(SYSTEM, self._matching)
            for topic in self._names():
                self._envelope(topic)
            self._set_timer()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    # --- in intervals

    def _set_timer(self) -> None:
        loop, guard = asyncio.get_running_loop(), self._broker.faults.guard
        self._timer = loop.call_later(
            self._interval_s, guard, "the topics under $SYS", self._on_time
        )

    def _on_time(self) -> None:
        self._set_timer()
        for name, total in self._totals().items():
            self._loads.setdefault(name, _Load()).update(total, self._interval_s)
        heard = [
            topic
            for topic, envelope in self._envelopes.items()
            if topic not in _STATIC and self._subjects.is_heard(envelope.subject)
        ]
        if heard:
            self._broker.turns.start(self._tell(heard))
        else:
            self._told.clear()

    def _tell(self, heard: Sequence[str]) -> Steps[None]:
        values = yield from self._values()
        for topic in heard:
            value = values[topic]
            if self._told.get(topic) != value:
                self._told[topic] = value
                self._subjects.tell((self._envelopes[topic], value.encode()))
                yield

    # --- for new subscribers

    def _matching(self, filter: Filter) -> Steps[list[RetainedMessage]]:
        values = yield from self._values()
        now_ms = self._clock.now_ms()
        index = NameIndex[RetainedMessage]()
        for topic, value in values.items():
            envelope = self._envelopes[topic]
            message = RetainedMessage(now_ms, (envelope, value.encode()))
            index.put(levels_of(envelope.subject), message)
        return [each for each in index.walk(filter) if each is not None]

    # --- values

    def _names(self) -> Iterator[str]:
        yield from _STATIC
        yield "uptime"
        for name in ("connected", "disconnected", "maximum", "total", "active", "inactive"):
            yield f"clients/{name}"
        for name in self._totals():
            if name != "sockets":
                yield name.replace("publish/", "publish/messages/")
            yield from (f"load/{name}/{minutes}min" for minutes in _MINUTES)
        yield from ("messages/inflight", "messages/stored")
        yield "store/messages/count"
        yield from ("subscriptions/count", "shared_subscriptions/count", "retained messages/count")

    def _envelope(self, topic: str) -> None:
        subject = f"{SYSTEM}.broker.{topic.replace('/', '.')}"
        exchange = self._subjects.exchange
        self._envelopes[topic] = Envelope(exchange, subject, bytes((RETAIN,)), MQTT)

    def _totals(self) -> Mapping[str, int]:
        traffic, messages = self._sources.traffic(), self._sources.messages
        return {
            "sockets": sum(each.opened for each in traffic),
            "bytes/received": sum(each.bytes_received for each in traffic),
            "bytes/sent": sum(each.bytes_sent for each in traffic),
            "publish/received": sum(each.published for each in messages),
            "publish/sent": sum(each.delivered for each in messages),
        }

    def _values(self) -> Steps[dict[str, str]]:
        """Return all values, by topic."""
        uptime_s = self._clock.monotonic() - self._started_s
        values: dict[str, object] = {
            "version": f"entrepot version {self._version}",
            "uptime": f"{uptime_s:.0f} seconds",
        }
        for name, total in self._totals().items():
            if name != "sockets":
                values[name.replace("publish/", "publish/messages/")] = total
            averages = self._loads.setdefault(name, _Load()).averages
            for minutes, average in zip(_MINUTES, averages, strict=True):
                values[f"load/{name}/{minutes}min"] = f"{average:.2f}"
        values |= yield from self._of_sessions()
        return {topic: str(value) for topic, value in values.items()}

    def _of_sessions(self) -> Steps[dict[str, int]]:
        vhost = self._broker.vhosts.default
        connected = total = subscriptions = shared = unacked = ready = 0
        for session in vhost.sessions:
            total += 1
            connected += session.receiver is not None
            shared += len(session.members)
            subscriptions += len(session.subscriptions)
            queue = session.queue
            if queue is not None and not queue.is_gone:
                unacked += queue.unacked_count
                ready += queue.ready_count
            if total % _STEP_SESSIONS == 0:
                yield
        self._clients_max = max(self._clients_max, connected)
        stored = ready + unacked + vhost.retained.count
        return {
            "clients/connected": connected,
            "clients/disconnected": total - connected,
            "clients/maximum": self._clients_max,
            "clients/total": total,
            "clients/active": connected,
            "clients/inactive": total - connected,
            "messages/inflight": unacked,
            "messages/stored": stored,
            "store/messages/count": stored,
            "subscriptions/count": subscriptions - shared,
            "shared_subscriptions/count": shared,
            "retained messages/count": vhost.retained.count,
        }
