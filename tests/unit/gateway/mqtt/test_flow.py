"""Messages from client to client, in bytes: what is handed on, dropped, held back and answered."""

import asyncio

from entrepot.core import limits
from entrepot.wire.mqtt.packets import V5
from entrepot.wire.mqtt.properties import Properties
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
    assert [number for run in runs for number in run.ids] == [*range(1, 51)]
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
        f"Acks(type=<PacketType.PUBACK: 4>, ids=[{each}], has_failed=False)" for each in range(1, 6)
    ]


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


def _runs(client: Client) -> list[Publishes]:
    return [event for event in client.events() if isinstance(event, Publishes)]
