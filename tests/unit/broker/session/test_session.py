"""Sessions: what is published comes to those who subscribed, as they asked for it."""

import asyncio

import pytest
from msgspec.structs import replace

from entrepot.broker.session import registry
from entrepot.broker.session.ports import Subscription, Will
from entrepot.core import limits
from entrepot.core.errors import SessionRefused
from tests.unit.broker.session.bed import Peer, Sessions, on
from tests.unit.log.bed import simulated


@simulated
async def test_at_most_once_is_one_object_for_all(bed: Sessions) -> None:
    await bed.start()
    peers = [await bed.connect(f"c{n}", "a/+", expiry_ms=0, quality=n % 2) for n in range(5)]
    await bed.connect("other", "b/#", expiry_ms=0)
    assert await bed.tell(on("a/b", b"1", 0), on("a/b", b"2", 0)) == []
    assert all(peer.direct == [("a/b", b"1"), ("a/b", b"2")] for peer in peers)
    assert len({id(peer.casts[0][0]) for peer in peers}) == 1
    assert await bed.tell(on("c", b"", 0)) == [b""]


@simulated
async def test_at_least_once_until_it_is_acknowledged(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a/#")
    await bed.tell(on("a", b"1"), on("a/b", b"2"))
    assert peer.got == [("a", b"1"), ("a/b", b"2")]
    assert peer.own.queue is not None
    assert peer.own.queue.unacked_count == 2
    bed.call(peer.acknowledge)
    assert peer.own.queue.unacked_count == 0


@simulated
async def test_a_window(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", window=2)
    await bed.tell(*[on("a", b"%d" % n) for n in range(5)])
    assert peer.bodies == [b"0", b"1"]
    bed.call(peer.acknowledge, next(iter(peer.in_flight)))
    assert peer.bodies == [b"1", b"2"]


@simulated
async def test_what_waits_in_memory_counts_until_the_session_ends(bed: Sessions) -> None:
    """While it is too much, publishers are not read from. What is in the log does not count."""
    await bed.start()
    memory = bed.broker.vhosts.memory_use
    assert memory is not None
    lasting = await bed.connect("lasting", "a", window=1)
    peer = await bed.connect("c", "a", window=1, expiry_ms=0)
    changes: list[bool] = []
    memory.listen(peer, changes.append)
    memory.change(limits.TRANSIENT_BYTES_MAX - 5_000)
    await bed.tell(*[on("a", 1_000 * b"x") for _ in range(10)])
    assert (memory.is_high, changes) == (True, [True])
    bed.call(peer.own.detach, peer)
    await bed.settle()
    assert memory.size == limits.TRANSIENT_BYTES_MAX - 5_000
    memory.change(5_000 - limits.TRANSIENT_BYTES_MAX)
    assert (memory.is_high, changes) == (False, [True, False])
    assert lasting.own.queue is not None
    assert lasting.own.queue.ready_count == 9


@simulated
async def test_overlapping_subscriptions_deliver_once(bed: Sessions) -> None:
    """With the best quality, and all identifiers."""
    await bed.start()
    peer = await bed.connect()
    wanted = (
        Subscription("a/#", 0, identifier=1),
        Subscription("a/+", 2, identifier=2, keeps_retain=True),
        Subscription("a/b", 1, identifier=3),
        Subscription("b", 1, identifier=4),
    )
    assert [each.quality for each in await bed.subscribe(peer, *wanted)] == [0, 2, 1, 1]
    await bed.tell(on("a/b", b"1"), on("a/b/c", b"2"), on("b", b"3"))
    assert peer.bodies == [b"1", b"3"]
    assert peer.direct == [("a/b/c", b"2")]
    ways = [parcel.way for parcel in peer.parcels]
    assert [sorted(way.identifiers) for way in ways] == [[1, 2, 3], [4]]
    assert [way.quality for way in ways] == [2, 1]
    assert [way.keeps_retain for way in ways] == [True, False]


@simulated
async def test_one_does_not_hear_itself(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect()
    await bed.subscribe(
        peer, Subscription("a", 1, no_local=True), Subscription("b", 0, no_local=True)
    )
    await bed.tell(on("a", b"1"), on("b", b"2"), sender=peer.own)
    assert (peer.got, peer.direct) == ([], [])
    await bed.tell(on("a", b"3"))
    assert peer.bodies == [b"3"]


@simulated
async def test_unsubscribing(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", "b")
    assert await bed.do(peer.own.unsubscribe(["a", "x"])) == [True, False]
    await bed.tell(on("b", b"1"))
    assert await bed.tell(on("a", b"2")) == [b"2"]
    assert peer.bodies == [b"1"]


@simulated
async def test_messages_wait_for_a_client_that_is_away(bed: Sessions) -> None:
    for end in ("", "kill", "crash", "stop"):
        if end:
            await bed.restart(end)
        else:
            await bed.start()
        name = f"c{end}"
        peer = await bed.connect(name, "a/+", window=2)
        await bed.tell(on("a/b", b"1"), on("a/b", b"2"), on("a/c", b"3"))
        numbers = [*peer.in_flight]
        bed.call(peer.own.detach, peer)
        await bed.tell(on("a/d", b"4"), on("a/d", b"never", 0))
        if end:
            await bed.restart(end)
        again = await bed.connect(name, window=2)
        await bed.settle()
        assert bed.is_present
        assert again.bodies == [b"1", b"2"]
        assert [*again.in_flight] == numbers
        again.window = 10
        bed.call(again.own.wake)
        assert again.bodies == [b"1", b"2", b"3", b"4"]
        if not end:
            assert again.repeated == [("a/b", b"1"), ("a/b", b"2")]
        bed.call(again.acknowledge)
        await bed.settle()
        bed.call(again.own.detach, again)
        await bed.restart("crash")
        assert (await bed.connect(name)).got == []


@simulated
async def test_what_was_acknowledged_does_not_come_again(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a")
    await bed.tell(*[on("a", b"%d" % n) for n in range(4)])
    first, second, *_ = peer.in_flight
    bed.call(peer.acknowledge, second)
    await bed.settle()
    await bed.restart("crash")
    again = await bed.connect()
    await bed.settle()
    assert again.bodies == [b"0", b"2", b"3"]
    assert next(iter(again.in_flight)) == first
    assert again.repeated == again.got


@simulated
async def test_a_clean_start_forgets(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a")
    await bed.tell(on("a", b"1"))
    bed.call(peer.own.detach, peer)
    again = await bed.connect("c", clean=True)
    assert not bed.is_present
    assert await bed.tell(on("a", b"2")) == [b"2"]
    assert again.got == []
    await bed.settle()
    await bed.restart("crash")
    assert [each.subscriptions for each in bed.vhost.sessions] == [{}]
    assert bed.vhost.all_queues == []


@simulated
async def test_a_session_that_ends_with_its_connection(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", expiry_ms=0)
    bed.call(peer.own.detach, peer)
    assert len(bed.vhost.sessions) == 0
    assert await bed.tell(on("a", b"")) == [b""]
    await bed.connect("c", expiry_ms=0)
    assert not bed.is_present


@simulated
async def test_another_connection_takes_over(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", window=1)
    await bed.tell(on("a", b"1"), on("a", b"2"))
    again = await bed.connect("c")
    await bed.settle()
    assert peer.is_taken_over
    assert bed.is_present
    assert again.bodies == [b"1", b"2"]
    bed.call(peer.own.detach, peer)  # Too late.
    assert again.own.receiver is again
    short = await bed.connect("d", expiry_ms=0)
    await bed.connect("d", expiry_ms=0)
    assert short.is_taken_over
    assert not bed.is_present


@simulated
async def test_many_connections_of_one_client_at_once(bed: Sessions) -> None:
    await bed.start()
    peers = await asyncio.gather(*[bed.connect("c") for _ in range(10)])
    assert sum(not peer.is_taken_over for peer in peers) == 1
    assert len(bed.vhost.sessions) == 1


@simulated
async def test_a_session_expires(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", expiry_ms=10_000)
    bed.call(peer.own.detach, peer)
    await asyncio.sleep(9)
    assert bed.vhost.sessions.find("c") is not None
    await bed.restart("crash")
    assert bed.vhost.sessions.find("c") is not None
    await asyncio.sleep(2)
    assert bed.vhost.sessions.find("c") is None
    await bed.settle()
    assert bed.vhost.all_queues == []
    connected = await bed.connect("d", "a", expiry_ms=10_000)
    await asyncio.sleep(20)
    assert bed.vhost.sessions.find("d") is connected.own
    await bed.restart("kill")
    await asyncio.sleep(9)
    assert bed.vhost.sessions.find("d") is not None
    await asyncio.sleep(2)
    assert bed.vhost.sessions.find("d") is None


@simulated
async def test_wills(bed: Sessions) -> None:
    await bed.start()
    hearer = await bed.connect("h", "w/#")

    async def leave(name: str, will: Will, *, with_will: bool, expiry_ms: int | None) -> Peer:
        peer = await bed.connect(name, will=will, expiry_ms=expiry_ms)
        bed.call(lambda: peer.own.detach(peer, with_will=with_will))
        await bed.settle()
        return peer

    await leave("a", Will(on("w/a", b"now")), with_will=True, expiry_ms=0)
    await leave("b", Will(on("w/b", b"forgotten")), with_will=False, expiry_ms=None)
    await leave("c", Will(on("w/c", b"later"), delay_ms=5_000), with_will=True, expiry_ms=None)
    await leave("d", Will(on("w/d", b"back"), delay_ms=5_000), with_will=True, expiry_ms=None)
    await leave("e", Will(on("w/e", b"end"), delay_ms=9_000), with_will=True, expiry_ms=2_000)
    await bed.connect("d")
    assert hearer.bodies == [b"now"]
    await asyncio.sleep(3)
    assert hearer.bodies == [b"now", b"end"]
    await asyncio.sleep(10)
    assert hearer.bodies == [b"now", b"end", b"later"]


@simulated
async def test_a_will_without_delay_is_published_though_the_client_is_back_at_once(
    bed: Sessions,
) -> None:
    await bed.start()
    hearer = await bed.connect("h", "w")
    await bed.connect("c", will=Will(on("w", b"1")))
    await bed.connect("c")
    assert hearer.bodies == [b"1"]
    await bed.restart("crash")
    await asyncio.sleep(1)
    assert (await bed.connect("h")).bodies == [b"1"]


@simulated
async def test_a_will_survives_the_broker(bed: Sessions) -> None:
    await bed.start()
    await bed.connect("h", "w")
    will = Will(on("w", b"last words"), is_retained=True, delay_ms=1_000)
    await bed.connect("c", will=will)
    await bed.restart("crash")
    hearer = await bed.connect("h")
    await asyncio.sleep(3)
    assert hearer.bodies == [b"last words"]
    assert bed.vhost.retained.count == 1
    await bed.restart("crash")
    await asyncio.sleep(3)
    assert (await bed.connect("h")).bodies == [b"last words"]


@simulated
async def test_deleting(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a")
    assert await bed.do(bed.vhost.sessions.delete("c"))
    assert not await bed.do(bed.vhost.sessions.delete("c"))
    assert peer.end is not None
    await bed.settle()
    await bed.restart("crash")
    assert len(bed.vhost.sessions) == 0


@simulated
async def test_a_message_expires_while_it_waits(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a")
    bed.call(peer.own.detach, peer)
    await bed.tell(on("a", b"short", ttl_ms=1_000), on("a", b"long", ttl_ms=60_000))
    await asyncio.sleep(2)
    again = await bed.connect("c")
    await bed.settle()
    assert again.bodies == [b"long"]


@simulated
async def test_a_virtual_host_takes_its_sessions_along(bed: Sessions) -> None:
    await bed.start()
    bed.vhost = await bed.do(bed.broker.vhosts.create("other"))
    peer = await bed.connect("c", "a", "$share/g/a")
    await bed.tell(on("a", b"1"), is_retained=True)
    await bed.do(bed.broker.vhosts.delete("other"))
    assert peer.end is not None
    await bed.settle()
    for _ in range(2):
        await bed.restart("crash")
        bed.vhost = await bed.do(bed.broker.vhosts.create("other"))
        assert len(bed.vhost.sessions) == 0
        assert bed.vhost.retained.count == 0
        assert bed.vhost.all_queues == []


@simulated
async def test_nobody_gets_what_waits_for_another_user(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a")
    bed.call(peer.own.detach, peer)
    await bed.tell(on("a", b"1"))
    other = Peer()
    sessions = bed.vhost.sessions
    opened = sessions.open("c", "somebody else", other, clean_start=False, expiry_ms=None)
    other.session, is_present = await bed.do(opened)
    bed.call(other.own.attach, other)
    await bed.settle()
    assert not is_present
    assert other.got == []


@simulated
async def test_who_publishes_does_not_notice_that_a_session_ends(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", expiry_ms=0)
    _, answer = bed.begin_to_tell(on("a", b"1"))
    bed.call(peer.own.detach, peer)
    assert await answer is None


@simulated
async def test_bounds(bed: Sessions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SESSION_SUBSCRIPTIONS_MAX", 2)
        patch.setattr(limits, "SESSIONS_MAX", 1)
        await bed.start()
        peer = await bed.connect("c", "a", "b")
        granted = await bed.subscribe(peer, Subscription("c", 1), Subscription("b", 0))
        assert [each.quality for each in granted] == [None, 0]
        with pytest.raises(SessionRefused):
            await bed.connect("d")
        await bed.connect("c")


@simulated
async def test_sessions_that_are_kept_are_bounded(bed: Sessions) -> None:
    await bed.start()
    first = await bed.connect("first", "a")
    bed.call(first.own.detach, first)
    sessions = bed.vhost.sessions

    async def connect(client_id: str, *, clean: bool = False, expiry_ms: int | None = None) -> Peer:
        peer = Peer(10)
        opened = sessions.open(
            client_id, "u", peer, clean_start=clean, expiry_ms=expiry_ms, kept_max=1
        )
        peer.session, _ = await bed.do(opened)
        return peer

    with pytest.raises(SessionRefused):
        await connect("second")
    assert sessions.find("second") is None
    ends = await connect("second", expiry_ms=0)  # One that is not kept.
    bed.call(ends.own.detach, ends)
    again = await connect("first", clean=True)  # In the place of its own.
    bed.call(again.own.detach, again)
    await bed.restart("crash")
    sessions = bed.vhost.sessions
    with pytest.raises(SessionRefused):
        await connect("second")
    await bed.do(sessions.delete("first"))
    await connect("second")


@simulated
async def test_a_thousand_filters_at_once(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c")
    await bed.subscribe(peer, *[Subscription(f"a/{n}", 1) for n in range(1_000)])
    await bed.restart("crash")
    peer = await bed.connect("c")
    assert len(peer.own.subscriptions) == 1_000
    await bed.tell(on("a/7", b"1"))
    assert peer.bodies == [b"1"]
    bed.call(lambda: peer.own.detach(peer, expiry_ms=0))
    await bed.settle()
    assert await bed.tell(on("a/7", b"1")) == [b"1"]


@simulated
async def test_very_many_hear_it_in_turns_and_in_order(bed: Sessions) -> None:
    await bed.start()
    peers = []
    for number in range(limits.DESTINATIONS_AT_ONCE_MAX + 100):
        peer = Peer()
        opened = bed.vhost.sessions.open(f"c{number}", "u", peer, clean_start=True, expiry_ms=0)
        peer.session, _ = await bed.do(opened)
        bed.call(peer.own.attach, peer)
        await bed.do(peer.own.subscribe([Subscription("a", number % 2)]))
        peers.append(peer)
    answers = [bed.begin_to_tell(on("a", b"%d" % number))[1] for number in range(3)]
    bed.call(peers[7].own.detach, peers[7])  # Meanwhile.
    assert await asyncio.gather(*answers) == [None, None, None]
    await bed.settle()
    for peer in (*peers[:7], *peers[8:]):
        bodies = peer.bodies or [body for _, body in peer.direct]
        assert bodies == [b"0", b"1", b"2"]


@simulated
async def test_with_too_many_waiting_the_oldest_are_dropped(bed: Sessions) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_KEPT", replace(registry._KEPT, length_max=3))
        await bed.start()
        peer = await bed.connect("c", "a")
        bed.call(peer.own.detach, peer)
        await bed.tell(*[on("a", b"%d" % number) for number in range(10)])
        assert peer.own.queue is not None
        assert dict(peer.own.queue.dropped) == {"maxlen": 7}
        assert (await bed.connect("c")).bodies == [b"7", b"8", b"9"]
