"""Retained messages, shared subscriptions, and queues that sessions consume."""

import asyncio
import errno

import pytest
from msgspec.structs import replace

from entrepot.broker.queue.queue import Queue
from entrepot.broker.session import shared
from entrepot.broker.session.ports import RetainedWanted, Subscription
from entrepot.broker.subject.filter import Filter
from entrepot.broker.subject.retained import Retained, RetainedMessage
from entrepot.core import limits
from entrepot.core.errors import StorageError, TopicDenied
from entrepot.core.partitioner import partition_of
from entrepot.core.steps import Steps
from tests.unit.broker.session.bed import Sessions, on
from tests.unit.broker.virtual_host.bed import addressed, message, properties
from tests.unit.log.bed import simulated


@simulated
async def test_who_subscribes_gets_what_was_retained(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a/b", b"old"), on("a/c", b"c", 0), on("x", b"x"), is_retained=True)
    await bed.tell(on("a/b", b"new"), is_retained=True)
    await bed.tell(on("a/d", b"not kept"))
    for end in ("", "crash", "kill", "stop"):
        if end:
            await bed.restart(end)
        peer = await bed.connect(f"c{end}", "a/#")
        assert peer.got == [("a/b", b"new")]
        assert peer.direct == [("a/c", b"c")]
        assert [parcel.way.is_retained for parcel in peer.parcels] == [True]
        assert [way.is_retained for _, way in peer.casts] == [True]
        bed.call(peer.acknowledge)
        await bed.tell(on("a/b", b"live"))
        assert [parcel.way.is_retained for parcel in peer.parcels] == [True, False]


@simulated
async def test_an_empty_message_clears(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a", b"1"), on("b", b"2"), is_retained=True)
    await bed.tell(on("a", b""), is_retained=True)
    assert bed.vhost.retained.count == 1
    await bed.restart("crash")
    assert bed.vhost.retained.count == 1
    assert bed.vhost.retained.get("a") is None
    assert bed.vhost.retained.size == len("b") + len(b"2") + len(on("b", b"2")[0].head)


@simulated
async def test_a_message_that_clears_nothing_waits_for_the_one_that_did(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a", b"1"), is_retained=True)
    _, first = bed.begin_to_tell(on("a", b""), is_retained=True)
    _, second = bed.begin_to_tell(on("a", b""), is_retained=True)
    assert not first.done()
    assert not second.done()
    assert await second is None
    assert await first is None


@simulated
async def test_retained_messages_that_cannot_be_read_are_not_none(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a", b"1"), is_retained=True)
    bed.kill()
    bed.disk.fail_next("read", errno.EIO, "partitions/__retained-0/*.log")
    await bed.start()
    peer = await bed.connect()
    with pytest.raises(StorageError, match="__retained is damaged"):
        await bed.subscribe(peer, Subscription("a"))
    wanted = Subscription("a", retained=RetainedWanted.NEVER)
    assert [each.quality for each in await bed.subscribe(peer, wanted)] == [0]


@simulated
async def test_who_wants_which(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a", b"1"), is_retained=True)
    peer = await bed.connect()
    always = Subscription("a", 1)
    if_new = always._replace(retained=RetainedWanted.IF_NEW)
    never = always._replace(retained=RetainedWanted.NEVER)
    counts = []
    for wanted in (never, if_new, always, if_new):
        await bed.subscribe(peer, wanted)
        await bed.settle()
        counts.append(len(peer.in_flight))
    await bed.do(peer.own.unsubscribe(["a"]))
    await bed.subscribe(peer, if_new)
    await bed.settle()
    assert [*counts, len(peer.in_flight)] == [0, 0, 1, 1, 2]


@simulated
async def test_what_is_retained_expires(bed: Sessions) -> None:
    await bed.start()
    await bed.tell(on("a", b"1", ttl_ms=1_000), is_retained=True)
    await asyncio.sleep(2)
    assert (await bed.connect("c", "a")).got == []


@simulated
async def test_very_many_come_as_there_is_room(bed: Sessions) -> None:
    await bed.start()
    for some in range(30):
        await bed.tell(*[on(f"a/{some}/{n}", b"x") for n in range(100)], is_retained=True)
    peer = await bed.connect("c", "a/#", window=10)
    found: dict[str, None] = {}
    for _ in range(400):
        if not peer.in_flight:
            break
        found |= dict.fromkeys(path for path, _ in peer.got)
        assert peer.own.queue is not None
        assert peer.own.queue.ready_count < limits.QUEUE_TURN_MESSAGES_MAX + 200
        bed.call(peer.acknowledge)
        await bed.settle()
    assert len(found) == 3_000
    assert not peer.own.feeds


@simulated
async def test_what_has_no_room_is_refused(bed: Sessions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RETAINED_MAX", 2)
        await bed.start()
        hearer = await bed.connect("h", "#")
        await bed.tell(on("a", b"1"), on("b", b"1"), is_retained=True)
        _, answer = bed.begin_to_tell(on("c", b"1"), is_retained=True)
        assert "retained" in str(await answer)
        await bed.settle()
        assert len(hearer.got) == 3
        assert bed.vhost.retained.count == 2
        await bed.tell(on("a", b"2"), is_retained=True)


# --- shared subscriptions


@simulated
async def test_each_message_goes_to_one_of_the_group(bed: Sessions) -> None:
    await bed.start()
    ones = [await bed.connect(f"c{n}", "$share/g/a/+", expiry_ms=0) for n in range(3)]
    other = await bed.connect("o", "$share/h/a/+", expiry_ms=0)
    await bed.tell(*[on("a/b", b"%d" % n, n % 2) for n in range(12)])
    assert [len(each.got) for each in ones] == [4, 4, 4]
    assert len(other.got) == 12
    assert all(number > 32_768 for each in ones for number in each.in_flight)
    bed.call(ones[0].acknowledge)
    bed.call(ones[0].own.detach, ones[0])
    bed.call(ones[1].own.detach, ones[1])  # What it has not acknowledged is for others.
    await bed.settle()
    assert len(ones[2].got) == 8


@simulated
async def test_a_group_that_is_away_misses_nothing(bed: Sessions) -> None:
    await bed.start()
    for end in ("", "crash"):
        peer = await bed.connect("c", "$share/g/a/+", expiry_ms=0)
        bed.call(peer.own.detach, peer)
        await bed.tell(*[on("a/b", b"%d" % n, n % 2) for n in range(12)])
        if end:
            await bed.restart(end)
        ones = [await bed.connect(f"c{n}", "$share/g/a/+", expiry_ms=0, window=6) for n in (1, 2)]
        await bed.settle()
        got = sorted(int(body) for each in ones for body in each.bodies)
        assert got == [*range(12)]
        for each in ones:
            bed.call(each.acknowledge)
            bed.call(each.own.detach, each)
        await bed.settle()


@simulated
async def test_the_last_one_to_unsubscribe_ends_the_group(bed: Sessions) -> None:
    await bed.start()
    one = await bed.connect("c", "$share/g/a")
    two = await bed.connect("d", "$share/g/a")
    await bed.do(one.own.unsubscribe(["$share/g/a"]))
    assert await bed.tell(on("a", b"1")) == []
    await bed.do(two.own.unsubscribe(["$share/g/a"]))
    assert await bed.tell(on("a", b"2")) == [b"2"]
    await bed.settle()
    await bed.restart("crash")
    assert bed.vhost.all_queues == []


@simulated
async def test_a_durable_member_comes_back(bed: Sessions) -> None:
    await bed.start()
    await bed.connect("c", "$share/g/a")
    await bed.restart("crash")
    await bed.tell(on("a", b"1"))
    assert (await bed.connect("c")).bodies == [b"1"]


@simulated
async def test_a_group_that_nobody_comes_back_to_is_deleted(bed: Sessions) -> None:
    await bed.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared, "_SETTINGS", replace(shared._SETTINGS, expires_ms=10_000))
        peer = await bed.connect("c", "$share/g/a", expiry_ms=0)
    bed.call(peer.own.detach, peer)
    await asyncio.sleep(9)
    assert await bed.tell(on("a", b"0")) == []
    await asyncio.sleep(2)
    assert await bed.tell(on("a", b"1")) == [b"1"]
    assert (await bed.connect("c", "$share/g/a", expiry_ms=0)).got == []
    assert await bed.tell(on("a", b"1")) == []


@simulated
async def test_a_queue_is_consumed(bed: Sessions) -> None:
    await bed.start()
    await bed.queue("work")
    await bed.publish("", "work", message(b"1"), message(b"2"))
    peer = await bed.connect("c", "$queue/work", "$queue/none")
    assert peer.bodies == [b"1", b"2"]
    assert [*peer.own.subscriptions] == ["$queue/work"]
    bed.call(peer.acknowledge, next(iter(peer.in_flight)))
    bed.call(peer.own.detach, peer)
    await bed.settle()
    assert bed.bodies("work") == [b"2"]
    await bed.queue("mine", owner=bed, exclusive=True)
    (granted,) = await bed.subscribe(await bed.connect("d"), Subscription("$queue/mine", 1))
    assert granted.quality is None


# --- one namespace


@simulated
async def test_bindings_and_sessions_hear_each_other(bed: Sessions) -> None:
    await bed.start()
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "a.*.#")
    peer = await bed.connect("c", "a/+/c")
    await bed.tell(on("a/b/c", b"1"))
    assert await bed.publish("amq.topic", "a.b.c", message(b"2")) == []
    assert await bed.publish("amq.topic", "a.x.c", message(b"3"), message(b"4")) == []
    assert peer.got == [("a/b/c", b"1"), ("a/b/c", b"2"), ("a/x/c", b"3"), ("a/x/c", b"4")]
    assert bed.bodies("q") == [b"1", b"2", b"3", b"4"]


@simulated
async def test_a_subject_lands_in_what_has_its_name(bed: Sessions) -> None:
    await bed.start()
    await bed.create("orders.eu")
    await bed.queue("work")
    await bed.queue("a/b")
    assert await bed.tell(on("orders/eu", b"1"), on("orders.eu", b"2"), on("work", b"3")) == []
    assert await bed.tell(on("a/b", b"4"), on("nothing", b"5")) == [b"5"]
    assert bed.values("orders.eu") == [b"1", b"2"]
    assert bed.bodies("work") == [b"3"]
    assert bed.bodies("a/b") == [b"4"]
    await bed.delete_queue("work")
    assert await bed.tell(on("work", b"6")) == [b"6"]
    await bed.queue("mine", owner=bed, exclusive=True)
    assert await bed.tell(on("mine", b"7")) == [b"7"]


@simulated
async def test_single_messages_follow_every_change(bed: Sessions) -> None:
    """Where they go is remembered; whatever changes that is noticed by the very next one."""
    await bed.start()
    message = on("a/b", b"x", 0)  # The same envelope each time, as from a gateway.

    async def reached() -> str:
        """Return who gets one."""
        for peer in (one, two):
            peer.direct.clear()
        nowhere = await bed.tell(message)
        found = "1" * len(one.direct) + "2" * len(two.direct)
        found += "q" * bed.call(queue.purge) if queue is not None else ""
        assert (nowhere == [b"x"]) is not bool(found)
        return found

    queue: Queue | None = None
    one = await bed.connect("one", expiry_ms=0)
    two = await bed.connect("two", expiry_ms=0)
    assert await reached() == ""
    await bed.subscribe(one, Subscription("a/+", 0))
    assert await reached() == "1"
    await bed.subscribe(two, Subscription("a/+", 0), Subscription("x", 0))
    assert await reached() == "12"
    queue = await bed.queue("a.b")
    assert await reached() == "12q"
    await bed.do(one.own.unsubscribe(["a/+"]))
    assert await reached() == "2q"
    await bed.delete_queue("a.b")
    queue = None
    assert await reached() == "2"
    queue = await bed.queue("other")
    assert await reached() == "2"
    await bed.bind("amq.topic", "other", "#")
    assert await reached() == "2q"
    await bed.delete_queue("other")
    queue = None
    await bed.do(two.own.unsubscribe(["a/+"]))
    assert await reached() == ""


@simulated
async def test_who_may_not_write_does_not_land(bed: Sessions) -> None:
    def check(name: str) -> None:
        raise TopicDenied(name)

    await bed.start()
    await bed.create("orders")
    await bed.queue("work")
    peer = await bed.connect("c", "#")
    await bed.tell(on("orders", b"1"), on("work", b"2"), check=check)
    assert peer.bodies == [b"1", b"2"]
    assert bed.values("orders") == []
    copied = properties(headers={"CC": ["work"]}), b"3"
    message = addressed("amq.topic", "orders", copied)
    bed.vhost.publish("amq.topic", [message], None, check)
    await bed.settle()
    assert peer.bodies == [b"1", b"2", b"3"]
    assert bed.values("orders") == []
    assert bed.bodies("work") == []


@simulated
async def test_a_long_name_is_for_sessions(bed: Sessions) -> None:
    await bed.start()
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "#")
    peer = await bed.connect("c", "#", quality=0, expiry_ms=0)
    await bed.tell(on("x" * 300, b"1", 0))
    assert len(peer.direct) == 1
    assert bed.bodies("q") == []


@simulated
async def test_a_bound_topic_has_the_names_as_keys(bed: Sessions) -> None:
    await bed.start()
    await bed.create("sensors", 3)
    await bed.bind("amq.topic", "sensors", "sensors.#")
    names = [f"sensors/{number}/heat" for number in range(20)]
    for number in range(4):
        await bed.tell(*[on(name, b"%d" % number, number % 2) for name in names])
    await bed.publish("amq.topic", "sensors.7.heat", message(b"4"))
    found: dict[bytes | None, list[bytes | None]] = {}
    for index in range(3):
        records = bed.records("sensors", index)
        assert records
        for record in records:
            assert record.key is not None
            assert partition_of(record.key, 3) == index
            found.setdefault(record.key, []).append(record.value)
    assert sorted(found) == sorted(name.encode() for name in names)
    assert found.pop(b"sensors/7/heat") == [b"0", b"1", b"2", b"3", b"4"]
    assert all(values == [b"0", b"1", b"2", b"3"] for values in found.values())


@simulated
async def test_a_compacted_topic_takes_what_is_published_on_a_subject(bed: Sessions) -> None:
    await bed.start()
    await bed.create("last", cleanup_policy="compact")
    await bed.bind("amq.topic", "last", "a.#")
    await bed.tell(on("a/b", b"1"), on("a/b", bytes(100)))
    assert [record.key for record in bed.records("last")] == [b"a/b", b"a/b"]


@simulated
async def test_what_many_filters_match_is_looked_for_one_filter_after_the_other(
    bed: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If each began with a turn of its own, one packet would be as many turns at once."""
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await bed.start()
    await bed.tell(*(on(f"a/{number}", b"x") for number in range(20)), is_retained=True)
    begun, matching = list[Filter](), Retained.matching

    def noted(self: Retained, filter: Filter) -> Steps[list[RetainedMessage]]:
        begun.append(filter)
        return (yield from matching(self, filter))

    monkeypatch.setattr(Retained, "matching", noted)
    peer = await bed.connect("c")
    await bed.subscribe(peer, *[Subscription(f"a/{number}/#") for number in range(20)])
    assert len(begun) == 1
    await asyncio.sleep(1)
    assert (len(begun), len(peer.direct)) == (20, 20)


@simulated
async def test_a_session_may_end_while_it_shares_a_subscription_once_more(
    bed: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await bed.start()
    text = "$share/g/a"
    peer = await bed.connect("c", "first", text, "last", expiry_ms=0)
    sessions = bed.vhost.sessions
    await sessions.shared._changing.wait_and_enter(text)  # As another does that joins.
    again = asyncio.ensure_future(bed.do(peer.own.subscribe([Subscription(text)])))
    await asyncio.sleep(0)
    bed.call(sessions.detach, peer.own, peer, 0, False)
    bed.call(sessions.shared._changing.leave, text)
    assert [each.quality for each in await again] == [None]
    await asyncio.sleep(1)
    assert (peer.own.subscriptions, peer.own.members) == ({}, {})
    assert await bed.tell(on("last", b"x")) == [b"x"], "it listened for ever"
