"""The load of consumer groups: thousands of members that do nothing, and one that dies.

Members beat at even distances, which helps the broker least: no two of their requests come
in the same turn of its loop but by chance. How they talk is in `members`.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from bench.brokers import Broker
from bench.members import ClassicMember, Crowd, ModernMember, Share, is_divided
from bench.meter import process_cpu_s
from bench.wire import Refused, await_groups, create_topics

BEATS_MIN = 0.95  # Of those due: fewer, and somebody could not keep up.
SESSION_MS = 45_000  # What clients ask for unless told otherwise.
JOIN_S_MAX = 120
REBALANCE_S_MAX = 30


class Protocol(NamedTuple):
    """One of the two that groups speak."""

    name: str
    beat_s: float  # What clients do by default.
    member: type[ClassicMember] | type[ModernMember]


CLASSIC = Protocol("classic", 3, ClassicMember)
MODERN = Protocol("modern", 5, ModernMember)


def idle_cores(
    broker: Broker, protocol: Protocol, groups: int, size: int, warm_up_s: float, seconds: float
) -> float:
    """How much of a processor the broker needs to hear of so many groups of that size."""
    with _joined(broker, protocol, protocol.beat_s, groups, size, size, SESSION_MS) as crowd:
        crowd.spread()
        crowd.run(max(warm_up_s, 2 * protocol.beat_s))
        before, spent, start = crowd.beats, process_cpu_s(broker.pid), time.perf_counter()
        crowd.run(seconds)
        elapsed = time.perf_counter() - start
        spent = process_cpu_s(broker.pid) - spent
        beats, due = crowd.beats - before, elapsed * groups * size / protocol.beat_s
    if beats < BEATS_MIN * due:
        raise Refused(f"only {beats} of {due:.0f} heartbeats were answered")
    return spent / elapsed


def takeover_s(
    broker: Broker, protocol: Protocol, size: int, partitions: int, session_ms: int, beat_s: float
) -> float:
    """Seconds beyond its session until what a member had, who vanished, is the others'."""
    with _joined(broker, protocol, beat_s, 1, size, partitions, session_ms) as crowd:
        crowd.spread()
        crowd.run(2 * beat_s)
        lost = crowd.members[-1]  # Not the leader of a classic group.
        before = lost.sent_at
        crowd.run_until(lambda: lost.sent_at > before, REBALANCE_S_MAX, "a heartbeat")
        crowd.run(0.01)  # It was heard.
        crowd.cut(lost)
        crowd.run_until(
            lambda: is_divided(crowd.members, partitions), REBALANCE_S_MAX, "a rebalance"
        )
        return time.monotonic() - lost.sent_at - session_ms / 1e3


@contextmanager
def _joined(
    broker: Broker,
    protocol: Protocol,
    beat_s: float,
    groups: int,
    size: int,
    partitions: int,
    session_ms: int,
) -> Iterator[Crowd]:
    """Members of so many groups, which have divided a topic among them."""
    topic = f"{protocol.name}-groups"
    names = [f"{protocol.name}-{number}" for number in range(groups)]
    with broker.connect() as connection:
        create_topics(connection, [topic], partitions)
        await_groups(connection, names)
    crowd = Crowd(broker, beat_s)
    try:
        parts = []
        for name in names:
            share = Share(name, topic, partitions, session_ms)
            parts.append([crowd.add(protocol.member, share) for _ in range(size)])
        crowd.run_until(
            lambda: all(is_divided(part, partitions) for part in parts), JOIN_S_MAX, "joining"
        )
        yield crowd
    finally:
        crowd.close()
