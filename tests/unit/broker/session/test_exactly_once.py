"""Exactly once, to and from clients: numbers, and what survives a crash."""

import asyncio
import errno
from functools import partial

from entrepot.broker.session.ports import Receipt, Subscription
from entrepot.core.errors import StorageError
from entrepot.core.message import Message
from tests.unit.broker.session.bed import Peer, Sessions, on
from tests.unit.log.bed import simulated


@simulated
async def test_exactly_once_to_a_client(bed: Sessions) -> None:
    """The client's answer is on disk before it is told that the number is free."""
    await bed.start()
    peer = await bed.connect("c", "a", quality=2)
    await bed.tell(on("a", b"1"), on("a", b"2"))
    one, two = peer.in_flight
    bed.call(peer.own.received, [one])
    assert peer.freed == []
    await bed.settle()
    assert peer.freed == [one]
    await bed.restart("crash")
    again = await bed.connect("c")
    await bed.settle()
    assert again.freed == [one]
    assert again.in_flight == {two: ("a", b"2")}
    bed.call(again.own.completed, [one])
    bed.call(again.own.received, [two])
    await asyncio.sleep(2)  # What is completed is forgotten a little later.
    await bed.restart("crash")
    last = await bed.connect("c")
    await bed.settle()
    assert (last.freed, last.got) == ([two], [])


@simulated
async def test_exactly_once_from_a_client(bed: Sessions) -> None:
    await bed.start()
    await bed.connect("h", "a")
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "a")
    peer = await bed.connect("c")

    async def publish(peer: Peer, packet: int, body: bytes, *, is_repeat: bool) -> Receipt:
        receipt = peer.own.receipt(packet, is_repeat=is_repeat)
        if receipt in (Receipt.NEW, Receipt.PERHAPS):
            message = on("a", body, 2, identity=peer.own.identity(packet))
            await bed.tell(message, sender=peer.own, is_repeated=receipt is Receipt.PERHAPS)
            peer.own.stored(packet)
        return receipt

    assert await publish(peer, 7, b"1", is_repeat=False) is Receipt.NEW
    assert await publish(peer, 7, b"1", is_repeat=True) is Receipt.KNOWN
    await bed.restart("crash")  # The client did not get its answer.
    peer = await bed.connect("c")
    assert await publish(peer, 7, b"1", is_repeat=True) is Receipt.PERHAPS
    done: asyncio.Future[object] = bed.loop.create_future()
    assert bed.call(peer.own.released, 7, done.set_result)
    assert await done is None
    await bed.restart("crash")  # This one never came: it only says that it may have.
    peer = await bed.connect("c")
    assert await publish(peer, 7, b"2", is_repeat=True) is Receipt.PERHAPS
    assert await publish(peer, 8, b"3", is_repeat=False) is Receipt.NEW
    assert bed.bodies("q") == [b"1", b"2", b"3"]
    assert (await bed.connect("h")).bodies == [b"1", b"2", b"3"]


@simulated
async def test_a_message_that_was_refused_may_be_stored(bed: Sessions) -> None:
    """Also where what is stored was looked at before. A new one with its number is a new one."""
    await bed.start()
    await bed.connect("h", "a")
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "a")
    peer = await bed.connect("c")

    async def publish(packet: int, body: bytes, *, is_repeat: bool, is_refused: bool) -> Receipt:
        receipt = peer.own.receipt(packet, is_repeat=is_repeat)
        identity = peer.own.identity(packet) + body
        message = on("a", body, 2, identity=identity)
        await bed.tell(message, sender=peer.own, is_repeated=receipt is Receipt.PERHAPS)
        if is_refused:
            peer.own.refused(packet)
            bed.vhost.subjects.look_again()
        else:
            peer.own.stored(packet)
        return receipt

    for body in (b"1", b"2"):
        assert await publish(7, body, is_repeat=False, is_refused=True) is Receipt.NEW
        assert await publish(7, body, is_repeat=True, is_refused=True) is Receipt.PERHAPS
        assert await publish(7, body, is_repeat=True, is_refused=False) is Receipt.PERHAPS
        done: asyncio.Future[object] = bed.loop.create_future()
        bed.call(peer.own.released, 7, done.set_result)
        assert await done is None
    assert await publish(8, b"3", is_repeat=True, is_refused=False) is Receipt.NEW
    assert bed.bodies("q") == [b"1", b"2", b"3"]
    assert (await bed.connect("h")).bodies == [b"1", b"2", b"3"]


@simulated
async def test_many_that_were_refused_are_repeated_at_once(bed: Sessions) -> None:
    """Those wait, too, that come while others are looked for."""
    await bed.start()
    await bed.connect("h", "a")
    peer = await bed.connect("c")
    bodies = [b"%d" % packet for packet in range(1, 9)]

    def told(packet: int) -> Message:
        return on("a", b"%d" % packet, 2, identity=peer.own.identity(packet))

    for _ in range(2):  # The second time something was looked at before.
        answers = []
        for packet in range(1, 9):
            is_repeated = peer.own.receipt(packet, is_repeat=True) is Receipt.PERHAPS
            sent = told(packet)
            answers.append(bed.begin_to_tell(sent, sender=peer.own, is_repeated=is_repeated)[1])
        assert [await answer for answer in answers] == [None] * 8
        for packet in range(1, 9):
            peer.own.refused(packet)
        bed.vhost.subjects.look_again()
    await bed.tell(told(9), sender=peer.own)
    bed.vhost.subjects.look_again()
    again = [bed.begin_to_tell(told(9), sender=peer.own, is_repeated=True)[1] for _ in range(3)]
    await asyncio.sleep(0)  # It is being looked for.
    again.append(bed.begin_to_tell(told(9), sender=peer.own, is_repeated=True)[1])
    assert [await answer for answer in again] == [None] * 4
    assert (await bed.connect("h")).bodies == [*bodies, b"9"]


@simulated
async def test_numbers_of_messages_in_flight_differ(bed: Sessions) -> None:
    """One is never answered, while as many others are as there are numbers."""
    await bed.start()
    peer = await bed.connect("c", "a", window=500)
    for _ in range(80):
        await bed.tell(*[on("a", b"")] * 499)
        await bed.settle()
        first, *others = peer.in_flight
        if others:
            bed.call(peer.acknowledge, *others)
    assert len(peer.in_flight) == 1
    assert peer.own.queue is not None
    assert peer.own.queue.ready_count == 80 * 499 - 32_768
    bed.call(peer.acknowledge, first)
    await bed.settle()
    assert len(peer.in_flight) == 500


@simulated
async def test_numbers_of_messages_past_the_queue_differ(bed: Sessions) -> None:
    """The same for a session that ends with its connection: there the number is passed over."""
    await bed.start()
    peer = await bed.connect("c", "a", expiry_ms=0, window=500)
    for _ in range(80):
        await bed.tell(*[on("a", b"")] * 499)
        first, *others = peer.in_flight
        assert len(others) == 499 or first == others[0] - 1
        bed.call(peer.acknowledge, *others)
    assert [*peer.in_flight] == [first]
    assert peer.own.queue is not None
    assert not peer.own.queue.has_waiting


@simulated
async def test_two_connections_publish_the_same(bed: Sessions) -> None:
    await bed.start()
    own = (await bed.connect("c")).own
    told: list[bool] = []
    assert own.receipt(1, is_repeat=False) is Receipt.NEW
    assert own.receipt(1, is_repeat=True) is Receipt.PENDING
    own.when_stored(1, told.append)
    own.stored(1)
    own.when_stored(1, told.append)
    assert own.receipt(2, is_repeat=False) is Receipt.NEW
    own.when_stored(2, told.append)
    own.refused(2)
    assert told == [True, True, False]
    assert own.receipt(2, is_repeat=True) is Receipt.PERHAPS, "it may be stored in some places"


@simulated
async def test_exactly_once_without_a_memory(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", quality=2, expiry_ms=0)
    await bed.tell(on("a", b"1"))
    (number,) = peer.in_flight
    bed.call(peer.own.received, [number])
    bed.call(peer.own.received, [number, 9])
    assert peer.freed == [number, number, 9]
    bed.call(peer.own.completed, [number])
    assert peer.own.receipt(5, is_repeat=True) is Receipt.NEW
    told: list[object] = []
    assert peer.own.released(5, told.append)
    assert not peer.own.released(6, told.append)
    assert told == [None, None]


@simulated
async def test_a_number_is_in_use_until_it_is_completed(bed: Sessions) -> None:
    await bed.start()
    peer = await bed.connect("c", "a", quality=2, expiry_ms=0)
    await bed.tell(on("a", b"1"))
    (number,) = peer.in_flight
    bed.call(peer.own.received, [number])
    peer.own._shared_last = number - 1  # As after 32,767 more.
    await bed.tell(on("a", b"2"))
    assert [each for each in peer.in_flight if each != number] == [number + 1]
    bed.call(peer.own.completed, [number])
    del peer.in_flight[number]
    peer.own._shared_last = number - 1
    await bed.tell(on("a", b"3"))
    assert number in peer.in_flight


@simulated
async def test_no_number_is_free_before_that_is_recorded(bed: Sessions) -> None:
    """Neither for a client that answers twice, nor for one that connects again meanwhile."""
    await bed.start()
    peer = await bed.connect("c", "a", quality=2)
    await bed.tell(on("a", b"1"))
    (number,) = peer.in_flight
    again = Peer()

    def answer_and_come_back() -> None:
        peer.own.received([number])
        peer.own.received([number])
        peer.own.stop()
        peer.own.receiver = again
        peer.own.attach(again)

    bed.call(answer_and_come_back)
    assert (peer.freed, again.freed) == ([], [])
    await bed.settle()
    assert (peer.freed, again.freed, again.got) == ([], [number], [])
    await bed.restart("crash")
    last = await bed.connect("c")
    assert (last.freed, last.got) == ([number], [])


@simulated
async def test_a_queue_that_cannot_be_read_has_not_settled_anything(bed: Sessions) -> None:
    """Otherwise what was received is forgotten, and comes again when the queue can be read."""
    await bed.start()
    peer = await bed.connect("c", "a", quality=2)
    await bed.tell(on("a", b"1", 2))
    assert peer.in_flight
    bed.kill()
    bed.disk.fail_next("read", errno.EIO, "partitions/$queue-*/*.log", count=3)
    await bed.start()
    (queue,) = bed.vhost.all_queues
    told: list[StorageError | None] = []
    bed.call(queue.when_settlements_committed, told.append)
    await bed.settle()
    assert isinstance(told[0], StorageError)


# --- messages of shared subscriptions


@simulated
async def test_a_shared_message_stays_with_its_session(bed: Sessions) -> None:
    """Over connections and a crash, with its number; nobody else gets it."""
    await bed.start()
    one = await bed.connect("c", "$share/g/a", quality=2)
    await bed.tell(on("a", b"1"), on("a", b"2"))
    first, second = one.in_flight
    two = await bed.connect("d", "$share/g/a", quality=2)
    bed.call(one.own.detach, one)
    await bed.settle()
    assert two.got == []
    again = await bed.connect("c")
    assert again.in_flight == {first: ("a", b"1"), second: ("a", b"2")}
    assert again.repeated == again.got
    bed.call(again.own.received, [first])
    assert again.freed == []
    await bed.settle()
    assert again.freed == [first]
    await bed.restart("crash")
    two = await bed.connect("d")
    last = await bed.connect("c")
    assert (last.freed, last.in_flight, two.got) == ([first], {second: ("a", b"2")}, [])
    bed.call(last.own.received, [second])
    await bed.settle()
    bed.call(last.own.completed, [first, second])
    await asyncio.sleep(2)  # What is completed is forgotten a little later.
    await bed.restart("crash")
    last = await bed.connect("c")
    assert (last.freed, last.got) == ([], [])
    await bed.tell(on("a", b"3"))
    assert (await bed.connect("d")).got + last.got == [("a", b"3")]


@simulated
async def test_a_session_that_ends_takes_its_shared_messages_along(bed: Sessions) -> None:
    """The specification wants that: its client may have seen them (MQTT-4.8.2-5)."""
    await bed.start()
    for expiry_ms in (None, 0):
        one = await bed.connect("c", "$share/g/a", quality=2, expiry_ms=expiry_ms, window=1)
        await bed.tell(on("a", b"1"), on("a", b"2"))
        two = await bed.connect("d", "$share/g/a", quality=2)
        assert one.bodies + two.bodies == [b"1", b"2"]
        bed.call(partial(one.own.detach, one, expiry_ms=0))
        await bed.settle()
        assert two.bodies == [b"2"]
        bed.call(two.own.received, [*two.in_flight])
        await bed.settle()
        await bed.do(bed.vhost.sessions.delete("d"))
    await bed.restart("crash")
    assert (await bed.connect("d")).got == []


@simulated
async def test_a_shared_message_of_who_unsubscribes(bed: Sessions) -> None:
    await bed.start()
    one = await bed.connect("c", "$share/g/a", quality=2)
    two = await bed.connect("d", "$share/g/a", quality=2, window=0)
    await bed.tell(on("a", b"1"))
    (number,) = one.in_flight
    await bed.do(one.own.unsubscribe(["$share/g/a"]))
    bed.call(one.own.received, [number])
    await bed.settle()
    assert one.freed == [number]
    bed.call(one.own.completed, [number])
    two.window = 5
    bed.call(two.own.wake)
    await bed.settle()
    assert two.got == []
    await bed.tell(on("a", b"2"))
    assert two.bodies == [b"2"]


@simulated
async def test_shared_messages_wait_for_room(bed: Sessions) -> None:
    """A client that comes back with a smaller window, and other subscriptions beside."""
    await bed.start()
    one = await bed.connect("c", "$share/g/a", quality=2, window=50)
    await bed.subscribe(one, Subscription("b", 1))
    await bed.tell(*[on("a", b"%d" % number) for number in range(40)])
    assert len(one.in_flight) == 40
    bed.call(one.own.detach, one)
    await bed.tell(*[on("b", b"%d" % number) for number in range(40)])
    again = await bed.connect("c", window=3)
    seen: list[bytes] = []
    while again.in_flight:
        numbers = [*again.in_flight]
        assert len(numbers) <= 3
        seen += again.bodies
        bed.call(again.acknowledge, *numbers)
        bed.call(again.own.wake)
        await bed.settle()
    assert sorted(seen) == sorted([b"%d" % number for number in range(40)] * 2)


@simulated
async def test_a_shared_message_that_cannot_be_recorded(bed: Sessions) -> None:
    """Nobody is told of it; it goes to others when its session is gone."""
    await bed.start()
    one = await bed.connect("c", "$share/g/a", quality=2)
    bed.disk.fail_next("sync", errno.EIO, "partitions/__sessions-*/*.log", count=1)
    await bed.tell(on("a", b"1"))
    assert one.got == []
    (queue,) = (each for each in bed.vhost.all_queues if each.name.startswith("$share"))
    assert queue.unacked_count == 1
    bed.call(one.own.stop)
    await bed.settle()
    assert (queue.unacked_count, queue.ready_count) == (0, 1)
