"""Messages from client to client, in bytes: what is handed on, dropped, held back and answered."""

import asyncio
import gc
import tracemalloc
import weakref
from collections.abc import Sequence

import pytest

from entrepot.core import limits
from entrepot.wire.mqtt.limits import IN_FLIGHT_MAX
from entrepot.wire.mqtt.packets import V5, V311, Ack, Connect, Pingreq, Subscribe, Subscription
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.scan import Publishes
from tests.unit.gateway.mqtt.node import Client, Node, on_node, publication


@on_node
async def test_a_run_of_qos_0_is_handed_on_as_it_came(node: Node) -> None:
    context = node.context()
    publisher, old, new = Client(context), Client(context), Client(context, V5)
    await publisher.open("publisher")
    await old.open("old", "a/#")
    await new.open("new", "a/#")
    packets = [publication(f"a/{each % 3}", b"%d" % each) for each in range(9)]
    publisher.send(*packets)
    await asyncio.sleep(1)
    assert b"".join(old.link.writes) == b"".join(packets)
    bodies = [bytes(body) for run in _runs(new) for _, body in run.messages]
    assert bodies == [b"%d" % each for each in range(9)]


@pytest.mark.parametrize("qos", [0, 1])
@on_node
async def test_what_is_published_after_a_subscribe_is_heard(node: Node, qos: int) -> None:
    """Also in the same turn, before the client has its SUBACK."""
    context = node.context()
    publisher, subscriber = Client(context), Client(context)
    await publisher.open("publisher")
    await subscriber.open("subscriber")
    subscriber.send(Subscribe(7, (Subscription("a/+", qos),)))
    publisher.send(publication("a/b", b"x", qos, 1 if qos else 0))
    suback, message = await subscriber.told()
    assert suback.startswith("Suback")
    assert "a/b" in message


@pytest.mark.pure  # To refer weakly to a compiled adapter ends the process.
@on_node
async def test_a_closed_connection_is_freed_at_once(node: Node) -> None:
    """And not by a collection of garbage: by then it may be old, and not looked at."""
    client = Client(node.context(), V5)
    await client.open("c", "a", qos=1)
    client.send(publication("a", b"x", 1, 7, V5), Pingreq())
    assert len(await client.told()) == 3
    adapter = weakref.ref(client.adapter)
    gc.disable()
    try:
        client.adapter.closed("gone")
        await asyncio.sleep(1)
        del client
        assert adapter() is None
    finally:
        gc.enable()


@on_node
async def test_properties_are_handed_on_to_those_who_can_read_them(node: Node) -> None:
    context = node.context()
    publisher, old, new = Client(context, V5), Client(context), Client(context, V5)
    await publisher.open("publisher")
    await old.open("old", "a")
    await new.open("new", "a")
    properties = Properties(content_type="text/plain")
    packets = [publication("a", b"%d" % each, 0, 0, V5, properties) for each in range(5)]
    publisher.send(*packets)
    await asyncio.sleep(1)
    assert b"".join(new.link.writes) == b"".join(packets)
    assert b"".join(old.link.writes) == b"".join(
        publication("a", b"%d" % each) for each in range(5)
    )


@on_node
async def test_messages_of_qos_1_get_the_subscribers_own_identifiers(node: Node) -> None:
    context = node.context()
    publisher, subscriber = Client(context), Client(context)
    await publisher.open("publisher")
    await subscriber.open("subscriber", "#", qos=1)
    topics = ["a", "b", "a", "a", "c"] * 10
    publisher.send(*[publication(each, each.encode(), 1, 900 + i) for i, each in enumerate(topics)])
    answers = await publisher.told()
    assert len(answers) == 50
    runs = _runs(subscriber)
    ids = [number for run in runs for number in run.ids]
    assert len(set(ids)) == len(ids) == 50
    assert [env.subject for run in runs for env, _ in run.messages] == topics


@on_node
async def test_a_puback_waits_for_the_disk_of_a_stored_session(node: Node) -> None:
    context = node.context()
    publisher, subscriber = Client(context), Client(context)
    await publisher.open("publisher")
    await subscriber.open("subscriber", "a", qos=1, clean=False)
    publisher.send(publication("nobody", b"x", 1, 4))
    assert len(publisher.heard()) == 1  # Nothing has to be stored: it is answered at once.
    publisher.send(publication("a", b"x", 1, 5))
    await asyncio.sleep(0)
    assert not publisher.link.writes
    assert len(await publisher.told()) == 1


@on_node
async def test_answers_keep_their_order_when_some_wait_for_the_disk(node: Node) -> None:
    context = node.context()
    publisher, stored = Client(context), Client(context)
    await publisher.open("publisher")
    await stored.open("stored", "kept", qos=1, clean=False)
    topics = ["kept", "nobody", "kept", "nobody"]
    publisher.send(*[publication(each, b"x", 1, i + 1) for i, each in enumerate(topics)])
    publisher.send(publication("nobody", b"x", 1, 5))
    assert not publisher.link.writes  # The first is not on disk, so none is answered.
    assert await publisher.told() == [
        f"Acks(type=<PacketType.PUBACK: 4>, ids=[{each}], reason=<Reason.SUCCESS: 0>)"
        for each in range(1, 6)
    ]


@pytest.mark.parametrize("qos", [1, 2])
def test_what_has_no_room_waits_and_is_not_overtaken(qos: int) -> None:
    @on_node
    async def test(node: Node) -> None:
        context = node.context()
        publisher, subscriber = Client(context), Client(context)
        await publisher.open("publisher")
        await subscriber.open("subscriber", "a/#", qos=qos)
        got: list[int] = []

        async def take() -> list[int]:
            """Return the identifiers of what has come, and note the bodies."""
            await asyncio.sleep(1)
            runs = _runs(subscriber)
            got.extend([int(bytes(body)) for run in runs for _, body in run.messages])
            return [number for run in runs for number in run.ids]

        for number in range(IN_FLIGHT_MAX + 200):
            packet = publication(f"a/{number % 2}", b"%d" % number, qos, number + 1)
            publisher.send(packet)
        waiting = await take()
        assert len(waiting) == IN_FLIGHT_MAX
        last = IN_FLIGHT_MAX + 200
        for place in range(0, IN_FLIGHT_MAX, 10):
            _answer(subscriber, waiting[place : place + 10], qos)
            publisher.send(publication("a/0", b"%d" % last, qos, 5_000 + place))
            last += 1
        while waiting := await take():
            assert len(set(waiting)) == len(waiting)
            _answer(subscriber, waiting, qos)
        assert got == [*range(last)]

    test()


@on_node
async def test_a_clean_session_gets_nothing_again_and_a_stored_one_does(node: Node) -> None:
    context = node.context()
    publisher = Client(context)
    await publisher.open("publisher")
    for is_clean in (True, False):
        name = f"subscriber {is_clean}"
        subscriber = Client(context)
        await subscriber.open(name, "a", qos=1, clean=is_clean)
        publisher.send(publication("a", b"x", 1, 1))
        assert len(await subscriber.told()) == 1
        subscriber.adapter.closed("gone")
        await asyncio.sleep(1)
        again = Client(context)
        again.send(Connect(V311, name, clean_start=False))
        told = await again.told()
        assert len(told) == (1 if is_clean else 2), told


@on_node
async def test_a_subscriber_that_does_not_read_is_bounded(node: Node) -> None:
    context = node.context()
    publisher, stuck, reader = Client(context), Client(context), Client(context)
    await publisher.open("publisher")
    await stuck.open("stuck", "a")
    await reader.open("reader", "a")
    stuck.link.is_stuck = True
    for _ in range(20):
        publisher.send(*[publication("a", b"x" * 1_000)] * 500)
        await asyncio.sleep(0.01)
    assert stuck.link.backlog <= limits.BACKLOG_BYTES_HIGH + 1_000_000
    assert sum(len(run.messages) for run in _runs(reader)) == 10_000


@on_node
async def test_what_is_answered_is_not_counted_any_more(node: Node) -> None:
    publisher = Client(node.context())
    await publisher.open("publisher")
    for qos in (0, 1, 2):
        publisher.send(*[publication("a", b"x" * 10, qos, each) for each in range(1, 4)])
    assert len(await publisher.told()) == 6
    connection = publisher.adapter._connection
    assert connection is not None
    uncommitted = connection.publishing.uncommitted
    assert (uncommitted._runs, uncommitted._bytes) == (0, 0)


def _answer(client: Client, ids: Sequence[int], qos: int) -> None:
    types = (PacketType.PUBACK,) if qos == 1 else (PacketType.PUBREC, PacketType.PUBCOMP)
    for type in types:
        client.send(*[Ack(type, each) for each in ids])


def _runs(client: Client) -> list[Publishes]:
    return [event for event in client.events() if isinstance(event, Publishes)]


@on_node
async def test_a_connection_that_ended_holds_no_input(node: Node) -> None:
    """It is garbage that nobody collects for some time, and there may be thousands of them."""
    context, clients = node.context(), list[Client]()
    for number in range(20):
        clients.append(Client(context))
        await clients[-1].open(f"client {number}")
        clients[-1].send(publication("a", bytes(500_000))[:400_000])
    tracemalloc.start()
    try:
        for client in clients:
            client.adapter.closed("gone")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [client.adapter.unfinished().size for client in clients] == [0] * 20
    assert taken < 20 * 10_000
