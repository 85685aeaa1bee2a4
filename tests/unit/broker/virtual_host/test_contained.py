"""Our own mistakes: they stop the queue they happen in, and no start fails for what is stored."""

import asyncio
from typing import Any

import pytest

from entrepot.broker.catalog import StoredQueue, queue_record
from entrepot.broker.queue.message import Refused
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.virtual_host.streams import queue_topic
from entrepot.core.errors import InvalidQueue, QueueDown
from entrepot.core.faults import Faults
from entrepot.core.value import freeze_table
from entrepot.gateway.amqp.format import AmqpFormat
from entrepot.wire.amqp.table import Int64
from tests.unit.broker.virtual_host.bed import Host, message
from tests.unit.broker.virtual_host.taker import Taker
from tests.unit.log.bed import simulated

LETTERS = {"dead_letter_exchange": "", "dead_letter_routing_key": "letters"}


@simulated
async def test_a_dead_letter_key_that_no_message_has_is_refused(bed: Host) -> None:
    await bed.start()
    for facts in ({"dead_letter_routing_key": "k" * 256}, {"dead_letter_exchange": "é" * 128}):
        with pytest.raises(InvalidQueue, match="more than 255 bytes"):
            await bed.queue("work", **LETTERS | facts)
    await bed.queue("work", **LETTERS | {"dead_letter_routing_key": "k" * 255})


@simulated
async def test_a_queue_that_was_declared_before_that_does_not_hold_up_a_start(bed: Host) -> None:
    await bed.start()
    await bed.queue("other")
    await bed.publish("", "other", b"a")
    topic = queue_topic("/", "old", QueueSettings(), bed.broker.new_id())
    table = {
        "x-message-ttl": 1,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "k" * 256,
    }
    stored = StoredQueue("/", "old", topic, arguments=freeze_table(table))
    await bed.do(bed.broker.change_security(queue_record(stored)))
    await bed.restart()
    assert bed.bodies("other") == [b"a"]
    old = bed.vhost.queue("old")
    assert old.is_stopped
    with pytest.raises(QueueDown, match="queue 'old' in vhost '/' is down: invalid arg"):
        old.get(bed, auto_ack=True)
    _, failure = await bed.published("", "old", b"b")
    assert isinstance(failure, Refused)
    await bed.delete_queue("old")
    await bed.restart()
    assert list(bed.vhost.queues) == ["other"]


@simulated
async def test_a_count_of_deaths_that_a_publisher_wrote_has_an_end(bed: Host) -> None:
    await bed.start()
    await bed.queue("letters")
    await bed.queue("work", message_ttl=10, **LETTERS)
    death = {"queue": "work", "reason": "expired", "count": Int64(2**63 - 1)}
    await bed.publish("", "work", message(b"a", {"x-death": [death]}))
    await asyncio.sleep(1)
    [headers] = bed.headers("letters")
    assert headers["x-death"][0]["count"] == 2**63 - 1  # type: ignore[index]


@simulated
async def test_a_message_without_a_letter_is_set_aside(bed: Host, monkeypatch: Any) -> None:
    """The others of its run go on, and the start after that, too."""
    await bed.start()
    bed.broker.faults = faults = Faults()
    await bed.queue("letters")
    await bed.queue("work", message_ttl=10, **LETTERS)
    with_deaths = AmqpFormat.with_deaths

    def failing(self: Any, head: bytes, *rest: Any, **options: Any) -> bytes:
        assert b"bad" not in head
        return with_deaths(self, head, *rest, **options)

    monkeypatch.setattr(AmqpFormat, "with_deaths", failing)
    run = [message(b"a"), message(b"b", {"bad": 1}), message(b"c")]
    await bed.publish("", "work", *run)
    await asyncio.sleep(1)
    assert bed.bodies("letters") == [b"a", b"c"]
    assert faults.count == 1
    queue = bed.vhost.queue("work")
    assert (queue.is_stopped, queue.ready_count, queue.unacked_count) == (False, 0, 0)
    monkeypatch.setattr(AmqpFormat, "with_deaths", with_deaths)
    await bed.restart("stop")
    await asyncio.sleep(1)
    assert bed.bodies("letters") == [b"b"]


@pytest.mark.pure
@simulated
async def test_a_mistake_of_ours_stops_one_queue(bed: Host, monkeypatch: Any) -> None:
    await bed.start()
    bed.broker.faults = faults = Faults()
    work, other = await bed.queue("work"), await bed.queue("other")
    taker = Taker()
    bed.call(work.add_consumer, taker)
    monkeypatch.setattr(work, "_hand_out", lambda count: {}["no such thing"])
    await bed.publish("", "work", b"a")
    await bed.publish("", "other", b"b")
    assert faults.count == 1
    assert (work.is_stopped, other.is_stopped) == (True, False)
    assert taker.is_cancelled
    with pytest.raises(QueueDown):
        work.add_consumer(taker)
    assert bed.bodies("other") == [b"b"]
    await bed.restart()
    assert bed.bodies("work") == [b"a"]


@simulated
async def test_one_who_waits_for_a_settlement_and_fails_stops_nobody(bed: Host) -> None:
    await bed.start()
    bed.broker.faults = bed.broker._log._faults = faults = Faults()
    queue = await bed.queue("work")
    await bed.publish("", "work", b"a", b"b")
    told: list[object] = []

    def fail(failure: object) -> None:
        raise RuntimeError("ours")

    for body in (b"a", b"b"):
        assert bed.call(lambda: queue.get(bed, auto_ack=True)) is not None, body
        bed.call(queue.when_settlements_committed, fail)
        bed.call(queue.when_settlements_committed, told.append)
        await asyncio.sleep(1)
    assert told == [None, None]
    assert faults.count >= 1
    await bed.restart()
    assert bed.bodies("work") == []


@simulated
async def test_who_publishes_to_a_topic_is_told_of_our_mistake(bed: Host, monkeypatch: Any) -> None:
    await bed.start()
    await bed.do(bed.broker.create_topic("events"))
    feed = bed.vhost._feed("events")
    monkeypatch.setattr(feed, "_append", lambda *_: {}["ours"])
    bed.loop.call_exception_handler = lambda context: None  # type: ignore[method-assign]
    _, failure = await bed.published("", "events", b"a")
    assert str(failure) == "internal error"
    monkeypatch.undo()
    assert await bed.publish("", "events", b"b") == []
