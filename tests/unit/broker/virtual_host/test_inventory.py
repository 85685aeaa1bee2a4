"""Queues: how they come, are found, and go; and what is left of them after a crash."""

import asyncio
import errno

import pytest
from msgspec.structs import replace

from entrepot.core import limits
from entrepot.core.errors import (
    InvalidPartitions,
    InvalidQueue,
    QueueHasConsumers,
    QueueLocked,
    QueueMismatch,
    QueueNameRefused,
    QueueNotEmpty,
    QueuesUnavailable,
    StorageError,
    UnknownQueue,
)
from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from tests.unit.broker.virtual_host.bed import Host, message
from tests.unit.broker.virtual_host.taker import Taker
from tests.unit.log.bed import simulated

ends = pytest.mark.parametrize("end", ["stop", "kill", "crash"])
ANA, BEN = "ana's connection", "ben's connection"

# --- coming


@ends
@simulated
async def test_a_durable_queue_survives_with_its_messages(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work", max_length=10)
    await bed.publish("", "work", b"a", b"b")
    await bed.restart(end)
    assert bed.vhost.queue("work").spec.arguments == (("x-max-length", 10),)
    assert bed.bodies("work") == [b"a", b"b"]


@ends
@simulated
async def test_what_is_settled_does_not_come_back(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work")
    await bed.publish("", "work", b"a", b"b")
    queue = bed.vhost.queue("work")
    assert bed.call(lambda: queue.get(ANA, auto_ack=True)) is not None
    await asyncio.sleep(0.1)
    await bed.restart(end)
    assert bed.bodies("work") == [b"b"]


@ends
@simulated
async def test_a_transient_queue_does_not_survive(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work", durable=False)
    await bed.bind("amq.direct", "work", "k")
    await bed.publish("amq.direct", "k", b"a")
    assert bed.vhost.queue("work").ready_count == 1
    await bed.restart(end)
    with pytest.raises(UnknownQueue, match=r"^no queue 'work' in vhost '/'$"):
        bed.vhost.queue("work")
    assert await bed.publish("amq.direct", "k", b"a") == [b"a"]


@pytest.mark.parametrize("name", ["work", "with space/and ~ more", "amq.x", "Ünicode", "\udcff"])
@simulated
async def test_any_name_survives(bed: Host, name: str) -> None:
    await bed.start()
    await bed.queue(name)
    await bed.publish("", name, b"a")
    await bed.restart("crash")
    assert bed.bodies(name) == [b"a"]


@simulated
async def test_declared_again(bed: Host) -> None:
    await bed.start()
    first = await bed.queue("work", message_ttl=5)
    assert await bed.queue("work", message_ttl=5) is first
    with pytest.raises(QueueMismatch, match="inequivalent arg 'x-message-ttl' for queue 'work'"):
        await bed.declare("work", message_ttl=6)
    with pytest.raises(QueueMismatch, match="received 'false' but current is 'true'"):
        await bed.declare("work", message_ttl=5, durable=False)


@pytest.mark.parametrize("durable", [True, False])
@simulated
async def test_declared_by_many_at_once(bed: Host, durable: bool) -> None:
    await bed.start()
    made = await asyncio.gather(*(bed.declare("work", durable=durable) for _ in range(5)))
    assert [each is made[0] for each in made] == [True] * 5


@simulated
async def test_declared_differently_at_once(bed: Host, seed: int) -> None:
    await bed.start()
    made = await asyncio.gather(
        bed.declare("next"), bed.declare("next", max_length=1), return_exceptions=True
    )
    assert sorted(type(each).__name__ for each in made) == ["Queue", "QueueMismatch"]


@simulated
async def test_what_cannot_be_is_not_made(bed: Host) -> None:
    await bed.start()
    with pytest.raises(InvalidQueue, match="invalid arg 'x-message-ttl' for queue 'work'"):
        await bed.declare("work", message_ttl=-1)
    with pytest.raises(InvalidQueue, match="a queue's name has 1 to 255 bytes"):
        await bed.declare("")
    for name in ("__consumer_offsets", "amq.delayed"):
        with pytest.raises(QueueNameRefused, match="the broker's own"):
            await bed.declare(name)
    assert not bed.vhost.queues
    assert await bed.publish("", "work", b"a") == [b"a"]


@simulated
async def test_there_are_not_too_many(bed: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    await bed.start()
    await bed.declare("a")
    monkeypatch.setattr(limits, "QUEUES_PER_VHOST_MAX", 2)
    await bed.declare("b", durable=False)
    with pytest.raises(QueuesUnavailable, match="queue limit of 2 is reached"):
        await bed.declare("c")
    monkeypatch.setattr(limits, "QUEUES_PER_VHOST_MAX", 9)
    monkeypatch.setattr(limits, "PARTITIONS_MAX", 6)
    with pytest.raises(InvalidPartitions, match="more than 6 partitions in all"):
        await bed.declare("c", max_priority=5)
    await bed.declare("c")


@simulated
async def test_messages_do_not_outlive_their_queue(bed: Host) -> None:
    """A queue that is not permanent yet takes none."""
    await bed.start()
    spec = QueueDeclaration("/", "work")
    declaring = asyncio.ensure_future(bed.do(bed.vhost.declare_queue(spec, None)))
    while not declaring.done():
        nowhere, _ = bed.send("", "work", b"a")
        assert nowhere == [b"a"] or "work" in bed.vhost.queues
        await asyncio.sleep(0.0001)
    assert await bed.publish("", "work", b"b") == []


@simulated
async def test_a_disk_that_takes_nothing(bed: Host) -> None:
    await bed.start()
    await bed.declare("kept")
    await bed.publish("", "kept", b"a")
    bed.disk.fail_next("write", errno.ENOSPC, "partitions/__catalog-0/*", 99)
    for name in ("work", "kept"):
        with pytest.raises(StorageError):
            await (bed.declare(name) if name == "work" else bed.delete_queue(name))
    assert list(bed.vhost.queues) == ["kept"]
    await bed.queue("here", durable=False)
    assert await bed.delete_queue("here") == 0
    assert bed.bodies("kept") == [b"a"]


@ends
@simulated
async def test_priorities_survive(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work", max_priority=2)
    await bed.publish("", "work", b"low", message(b"high", priority=2))
    await bed.restart(end)
    assert bed.bodies("work") == [b"high", b"low"]


# --- whose it is


@simulated
async def test_an_exclusive_queue_is_its_connections(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("mine", owner=ANA, exclusive=True)
    assert bed.vhost.queue("mine", ANA) is queue
    assert bed.vhost.queue("mine") is queue
    assert await bed.declare("mine", owner=ANA, exclusive=True) is queue
    locked = "cannot obtain exclusive access to locked queue 'mine' in vhost '/'. It could be"
    with pytest.raises(QueueLocked, match=locked):
        bed.vhost.queue("mine", BEN)
    with pytest.raises(QueueLocked):
        await bed.declare("mine", owner=BEN, exclusive=True)
    with pytest.raises(QueueLocked):  # Not even its own, otherwise.
        await bed.declare("mine", owner=ANA)
    with pytest.raises(QueueLocked):
        await bed.delete_queue("mine", BEN)
    await bed.declare("everybody's")
    with pytest.raises(QueueLocked):
        await bed.declare("everybody's", owner=ANA, exclusive=True)


@simulated
async def test_an_exclusive_queue_goes_with_its_connection(bed: Host) -> None:
    await bed.start()
    await bed.declare("mine", owner=ANA, exclusive=True)
    await bed.declare("also mine", owner=ANA, exclusive=True)
    await bed.declare("other", owner=BEN, exclusive=True)
    await bed.bind("amq.fanout", "mine")
    await bed.delete_queue("also mine", ANA)
    bed.call(bed.vhost.connection_gone, ANA)
    bed.call(bed.vhost.connection_gone, ANA)
    assert list(bed.vhost.queues) == ["other"]
    assert not bed.vhost.router.bindings()
    assert await bed.publish("amq.fanout", "", b"a") == [b"a"]


@simulated
async def test_an_exclusive_queue_does_not_survive_a_crash(bed: Host) -> None:
    await bed.start()
    await bed.declare("mine", owner=ANA, exclusive=True)
    await bed.bind("amq.fanout", "mine")
    await bed.restart("kill")
    assert not bed.vhost.queues
    await bed.declare("mine")


# --- going


@ends
@simulated
async def test_a_deleted_queue_is_gone_for_good(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work")
    await bed.bind("amq.direct", "work", "k")
    await bed.publish("amq.direct", "k", b"a", b"b")
    assert await bed.delete_queue("work") == 2
    assert not bed.vhost.router.bindings()
    assert await bed.publish("amq.direct", "k", b"c") == [b"c"]
    await bed.restart(end)
    assert not bed.vhost.queues
    assert not bed.vhost.router.bindings()
    assert not bed.broker.catalog.queues
    assert [n for n in bed.disk.names("partitions") if not n.startswith("__")] == []


@simulated
async def test_a_queue_made_anew_is_another(bed: Host) -> None:
    await bed.start()
    await bed.queue("work")
    await bed.publish("", "work", b"a", b"b")
    assert bed.bodies("work") == [b"a", b"b"]

    async def delete_and_declare() -> None:
        deleting = asyncio.ensure_future(bed.vhost.delete_queue("work", None))
        for _ in range(9):
            await asyncio.sleep(0)
        assert "work" not in bed.vhost.queues
        spec = QueueDeclaration("/", "work")
        await bed.vhost.declare_queue(spec, None)
        assert deleting.done()

    await bed.do(delete_and_declare())
    await bed.publish("", "work", b"c")
    await bed.restart("crash")
    assert bed.bodies("work") == [b"c"]


@simulated
async def test_a_deletion_that_a_crash_cuts_short(bed: Host, seed: int) -> None:
    """The queue is there as it was, or it is gone: nothing that was settled comes back."""
    await bed.start()
    await bed.queue("work")
    await bed.publish("", "work", b"a", b"b")
    queue = bed.vhost.queue("work")
    bed.call(lambda: queue.get(ANA, auto_ack=True))
    await asyncio.sleep(1)
    deleting = asyncio.ensure_future(bed.delete_queue("work"))
    await bed.sleep_up_to(0.02)
    was_answered = deleting.done()
    deleting.cancel()
    await bed.restart("crash")
    if "work" in bed.vhost.queues:
        assert not was_answered
        assert bed.bodies("work") == [b"b"]
    await bed.declare("work")
    await bed.publish("", "work", b"c")
    assert bed.bodies("work") == [b"c"]


@simulated
async def test_deleted_only_if(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("work")
    taker = Taker()
    bed.call(queue.add_consumer, taker)
    with pytest.raises(QueueHasConsumers, match=r"^queue 'work' in vhost '/' in use$"):
        await bed.delete_queue("work", if_unused=True)
    bed.call(queue.remove_consumer, taker)
    await bed.publish("", "work", b"a")
    with pytest.raises(QueueNotEmpty, match=r"^queue 'work' in vhost '/' not empty$"):
        await bed.delete_queue("work", if_empty=True)
    assert bed.bodies("work") == [b"a"]
    assert await bed.delete_queue("work", if_empty=True, if_unused=True) == 0
    assert await bed.delete_queue("work") == 0


@pytest.mark.parametrize("durable", [True, False])
@simulated
async def test_consumers_are_told(bed: Host, durable: bool) -> None:
    await bed.start()
    queue, taker = await bed.queue("work", durable=durable), Taker()
    bed.call(queue.add_consumer, taker)
    await bed.delete_queue("work")
    assert taker.is_cancelled


@pytest.mark.parametrize("durable", [True, False])
@simulated
async def test_auto_delete(bed: Host, durable: bool) -> None:
    await bed.start()
    queue, taker = await bed.queue("work", durable=durable, auto_delete=True), Taker()
    await bed.bind("amq.fanout", "work")
    bed.call(queue.add_consumer, taker)
    bed.call(queue.remove_consumer, taker)
    await asyncio.sleep(0.1)
    assert "work" not in bed.vhost.queues
    await bed.restart("crash")
    assert "work" not in bed.vhost.queues
    assert not bed.vhost.router.bindings()


@simulated
async def test_a_queue_that_nobody_uses_expires(bed: Host) -> None:
    await bed.start()
    await bed.queue("work", expires=5_000)
    await asyncio.sleep(4)
    await bed.declare("work", expires=5_000)
    await asyncio.sleep(4)
    assert "work" in bed.vhost.queues
    await asyncio.sleep(2)
    assert "work" not in bed.vhost.queues
    await bed.restart("crash")
    assert "work" not in bed.vhost.queues


# --- without queues


@simulated
async def test_a_broker_without_queues_keeps_them(bed: Host) -> None:
    await bed.start()
    await bed.queue("work", retention_ms=0)
    await bed.bind("amq.fanout", "work")
    await bed.publish("amq.fanout", "", b"a", b"b")
    await bed.stop()
    await bed.start(queues=False)
    await asyncio.sleep(100)
    assert not bed.vhost.queues
    with pytest.raises(QueuesUnavailable):
        await bed.declare("other")
    await bed.stop()
    await bed.start()
    assert bed.bodies("work") == [b"a", b"b"]
    await bed.publish("amq.fanout", "", b"c")
    assert bed.bodies("work") == [b"c"]


@simulated
async def test_very_many_queues_go_with_their_connection_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "QUEUES_AT_ONCE_MAX", 10)
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await bed.start()
    owner = object()
    for number in range(20):
        await bed.declare(f"q{number}", exclusive=True, owner=owner)
    bed.call(bed.vhost.connection_gone, owner)
    assert 0 < len(bed.vhost.queues) < 20
    await asyncio.sleep(0.1)
    assert not bed.vhost.queues


# --- changing


@ends
@simulated
async def test_changed_settings_survive(bed: Host, end: str) -> None:
    await bed.start()
    await bed.queue("work", max_length=10)
    await bed.publish("", "work", b"a")
    labels = (("team", "one"),)
    await bed.vhost.change_queue(
        "work", lambda old: replace(old, ttl_ms=60_000, lease_ms=5_000, labels=labels)
    )
    await bed.restart(end)
    spec = bed.vhost.queue("work").spec
    settings = spec.settings
    assert (settings.ttl_ms, settings.lease_ms, settings.labels) == (60_000, 5_000, labels)
    assert (settings.length_max, spec.arguments) == (10, (("x-max-length", 10),))
    assert bed.bodies("work") == [b"a"]


@simulated
async def test_settings_of_a_queue_in_memory_and_of_none(bed: Host) -> None:
    await bed.start()
    await bed.queue("work", durable=False)
    queue = await bed.vhost.change_queue("work", lambda old: replace(old, delay_ms=1_000))
    assert queue.settings.delay_ms == queue.spec.settings.delay_ms == 1_000
    with pytest.raises(UnknownQueue):
        await bed.vhost.change_queue("play", lambda old: old)
