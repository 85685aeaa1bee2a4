"""Virtual hosts: made, found, deleted with everything in them."""

import asyncio

import pytest

from entrepot.broker.permissions import Permission, permission_record
from entrepot.broker.sessions import ConnectionFacts
from entrepot.core import limits
from entrepot.core.errors import StorageError, UnknownVhost, VhostRefused
from tests.unit.broker.virtual_host.bed import Host
from tests.unit.log.bed import simulated

ends = pytest.mark.parametrize("end", ["stop", "kill", "crash"])


class Connection:
    def __init__(self, vhost: str) -> None:
        self._vhost = vhost
        self.reason = ""

    def facts(self) -> ConnectionFacts:
        return ConnectionFacts("c", "127.0.0.1:1", "guest", self._vhost, "AMQP 0-9-1", 0)

    def close(self, reason: str) -> None:
        self.reason = reason


async def enter(bed: Host, name: str) -> None:
    bed.vhost = await bed.do(bed.broker.vhosts.create(name))


@simulated
async def test_the_first_is_always_there(bed: Host) -> None:
    await bed.start()
    assert bed.broker.vhosts.names == ["/"]
    assert bed.broker.vhosts.get("/") is bed.broker.vhosts.default
    with pytest.raises(UnknownVhost, match="vhost 'other' not found"):
        bed.broker.vhosts.get("other")
    with pytest.raises(VhostRefused, match="always there"):
        await bed.do(bed.broker.vhosts.delete("/"))


@ends
@simulated
async def test_each_has_its_own_names(bed: Host, end: str) -> None:
    await bed.start()
    await bed.declare("work")
    await bed.publish("", "work", b"/")
    await enter(bed, "other")
    await bed.declare("work", max_length=5)
    await bed.exchange("e", "fanout")
    await bed.bind("e", "work")
    await bed.publish("e", "", b"other")
    await bed.create("topic")
    assert bed.vhost.stream("topic") is None
    assert await bed.publish("", "topic", b"x") == [b"x"]
    await bed.restart(end)
    assert bed.bodies("work") == [b"/"]
    assert bed.vhost.router.exchange("e") is None
    await enter(bed, "other")
    assert bed.broker.vhosts.names == ["/", "other"]
    assert bed.bodies("work") == [b"other"]
    assert bed.values("work") == [b"/"]


@ends
@simulated
async def test_a_stream_of_its_own(bed: Host, end: str) -> None:
    await bed.start()
    await enter(bed, "other")
    made = await bed.declare("orders", queue_type="stream")
    assert bed.vhost.stream("orders") == made
    assert "orders" not in bed.broker.topics
    await bed.publish("", "orders", b"a")
    await bed.restart(end)
    assert bed.vhost.stream("orders") is None
    await enter(bed, "other")
    topic = bed.vhost.stream("orders")
    assert topic is not None
    assert bed.broker.served_partition(topic, 0).partition.offset_end == 1


@ends
@simulated
async def test_everything_goes_with_it(bed: Host, end: str) -> None:
    await bed.start()
    await enter(bed, "other")
    await bed.declare("work")
    await bed.declare("orders", queue_type="stream")
    await bed.declare("here", durable=False)
    await bed.exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    await bed.bind("later", "work")
    await bed.publish("", "work", b"a")
    await bed.publish("", "orders", b"a")
    broker, everything = bed.broker, Permission(".*", ".*", ".*")
    await bed.do(broker.change_security(permission_record("ana", "other", everything)))
    mine, others = Connection("other"), Connection("/")
    broker.sessions.add(mine)
    broker.sessions.add(others)
    await bed.do(broker.vhosts.delete("other"))
    assert (mine.reason, others.reason) == ("vhost 'other' is deleted", "")
    assert broker.vhosts.names == ["/"]
    assert not broker.permissions.entries
    with pytest.raises(UnknownVhost, match="vhost 'other' is deleted"):
        await bed.declare("late")
    assert await bed.publish("", "work", b"b") == [b"b"]
    await bed.restart(end)
    assert bed.broker.vhosts.names == ["/"]
    assert not bed.broker.catalog.queues
    assert not bed.broker.permissions.entries
    assert [n for n in bed.disk.names("partitions") if not n.startswith("__")] == []
    await enter(bed, "other")
    assert not bed.vhost.queues
    assert bed.vhost.router.exchange("later") is None
    assert not bed.vhost.router.bindings()


@simulated
async def test_a_queue_in_the_making_when_its_virtual_host_goes(bed: Host, seed: int) -> None:
    await bed.start()
    await enter(bed, "other")
    declaring = asyncio.ensure_future(bed.declare("work"))
    await bed.sleep_up_to(0.02)
    await bed.do(bed.broker.vhosts.delete("other"))
    await asyncio.wait([declaring])
    assert declaring.exception() is None or isinstance(declaring.exception(), UnknownVhost)
    await bed.restart("crash")
    assert not bed.broker.catalog.queues
    assert bed.broker.vhosts.names == ["/"]


@simulated
async def test_of_two_who_delete_it_one_finds_none(bed: Host) -> None:
    await bed.start()
    await enter(bed, "other")
    vhosts = bed.broker.vhosts

    async def is_found() -> bool:
        try:
            await vhosts.delete("other")
        except UnknownVhost:
            return False
        return True

    found = await asyncio.gather(bed.do(is_found()), bed.do(is_found()))
    assert sorted(found) == [False, True]
    assert vhosts.names == ["/"]


@pytest.mark.parametrize("end", ["stop", "kill"])
@simulated
async def test_its_queues_go_in_turns_and_one_may_be_deleted_meanwhile(
    bed: Host, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await bed.start()
    await enter(bed, "other")
    vhost = bed.vhost
    for number in range(10):
        await bed.queue(f"q{number}", durable=number % 2 == 0)
    deleting = asyncio.ensure_future(bed.do(bed.broker.vhosts.delete("other")))
    for _ in range(100):
        await asyncio.sleep(0)
        if len(vhost.queues) < 8:
            break
    assert len(vhost.queues) == 7
    for name in ("q8", "q9"):
        await bed.do(vhost.delete_queue(name, None))
    await deleting
    assert (bed.broker.vhosts.names, dict(vhost.queues)) == (["/"], {})
    await bed.restart(end)
    assert bed.broker.vhosts.names == ["/"]
    assert not bed.broker.catalog.queues


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
@simulated
async def test_names_that_cannot_be(bed: Host, name: str) -> None:
    await bed.start()
    with pytest.raises(VhostRefused):
        await enter(bed, name)


@simulated
async def test_there_are_not_too_many(bed: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VHOSTS_MAX", 2)
    await bed.start()
    await enter(bed, "a")
    await enter(bed, "a")
    with pytest.raises(VhostRefused, match="vhost limit of 2 is reached"):
        await enter(bed, "b")


@simulated
async def test_a_disk_that_fails(bed: Host) -> None:
    await bed.start()
    await enter(bed, "a")
    bed.disk.fail_next("write", 28, "partitions/__catalog-0/*", 2)
    with pytest.raises(StorageError):
        await enter(bed, "b")
    with pytest.raises(StorageError):
        await bed.do(bed.broker.vhosts.delete("a"))
    assert bed.broker.vhosts.names == ["/", "a"]
    await bed.declare("work")


@simulated
async def test_memory_is_counted(bed: Host) -> None:
    await bed.start()
    use = bed.broker.vhosts.memory_use
    assert use is not None
    await bed.declare("here", durable=False)
    await bed.publish("", "here", bytes(10_000))
    assert use.size >= 10_000
    await bed.delete_queue("here")
    assert use.size == 0
    await bed.stop()
    await bed.start(queues=False)
    assert bed.broker.vhosts.memory_use is None
