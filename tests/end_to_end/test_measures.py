"""What is asked for as a figure: rates, bytes, clients at once, latency, and a burst of a minute.

Bounds are on what a busy machine changes little: the processor time of a message, and how one part
of a run compares to another. The figures themselves are in `docs/reference/figures.md`.
"""

from __future__ import annotations

import statistics
import threading
import time
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import pytest

from bench import figures
from bench.figures import CLIENTS, LINKEDIN, NETFLIX, Load
from entrepot.testing import Broker, broker

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

SECONDS = 5.0
FEW = Load("few", 100, 100, 10, 0)
TRIES = 3  # Others use the machine, and not always alike.
BURST_S, BURST_RATE, SLOWNESS = 60, 2_000, 10


@pytest.mark.parametrize("load", [LINKEDIN, NETFLIX], ids=["LinkedIn", "Netflix"])
def test_the_share_of_a_broker_takes_less_than_a_core(load: Load) -> None:
    """Proves AD-04, AD-01 in part: messages and bytes a second on as many partitions."""
    found = figures.measure(load, SECONDS)
    assert found.lost == 0
    assert found.cores_at(load.rate) < 1, found.cpu_s


def test_many_clients_at_once() -> None:
    """Proves AD-01: two thousand clients are answered, beside those who are busy."""
    found = figures.measure(CLIENTS, SECONDS)
    assert found.lost == 0
    assert found.clients == CLIENTS.clients


def test_latency_at_high_volume() -> None:
    """Proves AD-02: fifty times as many messages wait hardly longer than a few."""
    medians_ms = []
    for _ in range(TRIES):
        few, many = (figures.measure(each, SECONDS) for each in (FEW, replace(CLIENTS, clients=0)))
        assert few.lost == many.lost == 0
        medians_ms.append((few.median_ms, many.median_ms))
        if many.median_ms < 2 * few.median_ms + 20:
            return
    pytest.fail(f"few and many waited for: {medians_ms}")


class Producing(threading.Thread):
    """Keeps a rate for a minute. `waits` are (when, how long until it was acknowledged)."""

    def __init__(self, server: Broker) -> None:
        super().__init__()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": server.bootstrap, "linger.ms": 5}
        )
        self.waits: list[tuple[float, float]] = []
        self.sent = 0

    def run(self) -> None:
        begun_s = time.monotonic()
        while self.sent < BURST_S * BURST_RATE:
            due = min(BURST_S * BURST_RATE, int((time.monotonic() - begun_s) * BURST_RATE))
            for number in range(self.sent, due):
                self._send(number, time.monotonic(), begun_s)
            self.sent = max(self.sent, due)
            self._producer.poll(0.01)
        assert self._producer.flush(60) == 0

    def _send(self, number: int, now_s: float, begun_s: float) -> None:
        def told(error: object, _: object) -> None:
            assert error is None
            self.waits.append((now_s - begun_s, time.monotonic() - now_s))

        self._producer.produce("burst", b"%08d" % number, partition=0, on_delivery=told)


def test_a_minute_at_ten_times_the_consumers_rate() -> None:
    """Proves A-08: nothing is lost, the producer does not feel the backlog, and it drains."""
    with broker() as server:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": server.bootstrap, "group.id": "slow", "enable.auto.commit": False}
        )
        producing = Producing(server)
        producing.start()
        time.sleep(1)
        consumer.assign([confluent_kafka.TopicPartition("burst", 0, 0)])
        found: list[bytes] = []
        begun_s = time.monotonic()
        while producing.is_alive():
            found += values(consumer.consume(BURST_RATE // SLOWNESS, 1.0))
            time.sleep(max(0.0, begun_s + 1 - time.monotonic()))
            begun_s = time.monotonic()
        producing.join()
        backlog = producing.sent - len(found)
        assert backlog > producing.sent * 0.8
        deadline = time.monotonic() + 60
        while len(found) < producing.sent and time.monotonic() < deadline:
            found += values(consumer.consume(10_000, 1.0))
        consumer.close()
    assert found == [b"%08d" % number for number in range(producing.sent)]
    waits = producing.waits
    assert len(waits) == producing.sent
    early = statistics.median(took for at, took in waits if at < BURST_S / 3)
    late = statistics.median(took for at, took in waits if at > BURST_S * 2 / 3)
    assert late < 3 * early + 0.05, (early, late)


def values(messages: list[confluent_kafka.Message]) -> list[bytes]:
    assert [each.error() for each in messages if each.error()] == []
    return [each.value() for each in messages]


def test_reading_is_served_from_memory_of_the_system() -> None:
    """Proves I-11 in part: what was written a moment ago is not read from the disk again."""
    count, size = 64, 500_000
    with broker() as server:
        producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
        before = counts(server.pid)
        for _ in range(count):
            producer.produce("big", bytes(size), partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0
        settings = {"bootstrap.servers": server.bootstrap, "group.id": "g"}
        consumer = confluent_kafka.Consumer(settings)
        consumer.assign([confluent_kafka.TopicPartition("big", 0, 0)])
        found = consumer.consume(count, 60)
        assert [len(each.value()) for each in found] == [size] * count
        consumer.close()
        after = counts(server.pid)
    assert after["wchar"] - before["wchar"] > count * size
    assert after["read_bytes"] - before["read_bytes"] < size


def counts(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return {name: int(count) for name, count in (line.split(": ") for line in lines)}
