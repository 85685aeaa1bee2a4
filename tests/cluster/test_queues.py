"""Queues of three real nodes, with real clients on all of them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import aio_pika
import pika
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import NewTopic

from tests.cluster.harness import SETTINGS, run
from tests.cluster.load import drain
from tests.cluster.world import Node, World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]

PERSISTENT = pika.BasicProperties(delivery_mode=2)
PATIENCE_S = 60.0


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, 3, SETTINGS) as world:
        yield world


def connect(node: Node) -> pika.BlockingConnection:
    options = "?socket_timeout=30&blocked_connection_timeout=60&heartbeat=30"
    return pika.BlockingConnection(pika.URLParameters(node.broker.amqp_url + options))


def home_of(world: World, queue: str) -> Node:
    partition = world.metadata().topics[queue].partitions[0]
    return next(node for node in world.nodes if node.number == partition.leader)


def until(done: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.05)


class Subscriber(threading.Thread):
    """One connection, one consumer, for as long as it lasts."""

    def __init__(self, node: Node, queue: str) -> None:
        super().__init__(daemon=True)
        self.connection = connect(node)
        self.bodies: list[bytes] = []
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=10)
        self.channel.basic_consume(queue, self._got)
        self.start()

    def _got(self, channel: object, method: object, properties: object, body: bytes) -> None:
        self.bodies.append(body)
        self.channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    def run(self) -> None:
        self.channel.start_consuming()

    def stop(self) -> None:
        self.connection.add_callback_threadsafe(self.channel.stop_consuming)
        self.join(30)
        self.connection.close()


def publish(node: Node, queue: str, bodies: list[bytes]) -> None:
    with connect(node) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for body in bodies:
            channel.basic_publish("", queue, body, PERSISTENT, mandatory=True)


def test_every_node_serves_the_same_queues(world: World) -> None:
    one, two, three = world.nodes
    with connect(two) as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "topic", durable=True)
        channel.queue_declare("work", durable=True, arguments={"x-max-priority": 3})
        channel.queue_bind("work", "news", "sport.*")
    bodies = [b"%d" % number for number in range(60)]
    for place, node in enumerate(world.nodes):
        with connect(node) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for body in bodies[place::3]:
                channel.basic_publish("news", "sport.chess", body, PERSISTENT, mandatory=True)
    with connect(three) as connection:
        channel = connection.channel()
        answer = channel.queue_declare("work", passive=True)
        assert answer.method.message_count == 60
        got = [channel.basic_get("work", auto_ack=True)[2] for _ in bodies]
        assert sorted(got) == sorted(bodies)
        channel.queue_delete("work")
    with connect(one) as connection, pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        connection.channel().queue_declare("work", passive=True)
    assert caught.value.reply_code == 404


def test_what_a_cluster_has_not_is_refused(world: World) -> None:
    admin = world.admin()  # Its answers come as long as it is there.
    admin.create_topics([NewTopic("topic", 1, 3)])["topic"].result(30)
    for node in world.nodes:
        for name, arguments, code in (
            ("stream", {"x-queue-type": "stream"}, 406),
            ("topic", {}, 406),
        ):
            with connect(node) as connection:
                with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                    connection.channel().queue_declare(name, durable=True, arguments=arguments)
                assert caught.value.reply_code == code
    with connect(world.nodes[0]) as connection:
        connection.channel().queue_declare("queue", durable=True)
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("queue", 1, 3)])["queue"].result(30)


def test_consumers_stay_subscribed_when_the_home_is_killed(world: World) -> None:
    with connect(world.nodes[0]) as connection:
        connection.channel().queue_declare("work", durable=True)
    home = home_of(world, "work")
    others = [node for node in world.nodes if node is not home]
    subscribers = [Subscriber(node, "work") for node in others]
    publish(others[0], "work", [b"before %d" % number for number in range(20)])
    until(lambda: sum(len(each.bodies) for each in subscribers) >= 20)
    time.sleep(0.5)  # What is acknowledged becomes known to the copies.
    world.kill(home)
    after = [b"after %d" % number for number in range(20)]
    publish(others[1], "work", after)
    until(lambda: sum(len(each.bodies) for each in subscribers) >= 40)
    bodies = [body for each in subscribers for body in each.bodies]
    assert len(bodies) == len({*bodies}) == 40  # Settled stays settled.
    assert all(each.is_alive() for each in subscribers)
    world.heal()
    assert world.wait_healed(["work"]) == ""
    publish(home, "work", [b"home again"])
    until(lambda: any(b"home again" in each.bodies for each in subscribers))
    for each in subscribers:
        each.stop()
    assert drain(world.nodes[0].broker.amqp_url, "work") == {}


def test_what_was_delivered_and_not_acknowledged_comes_again(world: World) -> None:
    with connect(world.nodes[0]) as connection:
        connection.channel().queue_declare("work", durable=True)
    home = home_of(world, "work")
    other = next(node for node in world.nodes if node is not home)
    bodies = [b"%d" % number for number in range(10)]
    publish(other, "work", bodies)
    with connect(other) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        messages = channel.consume("work", inactivity_timeout=PATIENCE_S)
        first = [next(messages) for _ in bodies]
        assert [body for _, _, body in first] == bodies
        world.kill(home)
        again = [next(messages) for _ in bodies]
        assert [body for _, _, body in again] == bodies
        assert again[0][0].delivery_tag > first[-1][0].delivery_tag
        for method, _, _ in (*first, *again):  # Those of the old home say nothing.
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
    assert drain(other.broker.amqp_url, "work") == {}


def test_a_stopped_home_is_left(world: World) -> None:
    """It wakes up, believes that it is the home, and can neither confirm nor settle."""
    with connect(world.nodes[0]) as connection:
        connection.channel().queue_declare("work", durable=True)
    home = home_of(world, "work")
    other = next(node for node in world.nodes if node is not home)
    subscriber = Subscriber(other, "work")
    world.stop(home)
    publish(other, "work", [b"while it is stopped"])
    until(lambda: subscriber.bodies)
    world.resume(home)
    publish(home, "work", [b"through it"])
    until(lambda: len(subscriber.bodies) == 2)
    subscriber.stop()


async def _through_failover(world: World) -> set[bytes]:
    """Publish and consume with aio-pika's robust connections, to and from a node that stays."""
    setup = await aio_pika.connect_robust(world.nodes[0].broker.amqp_url)
    queue = await (await setup.channel()).declare_queue("robust", durable=True)
    home = await asyncio.to_thread(home_of, world, "robust")
    other = next(node for node in world.nodes if node is not home)
    connection = await aio_pika.connect_robust(other.broker.amqp_url)
    channel = await connection.channel(publisher_confirms=True)
    confirmed: set[bytes] = set()
    for number in range(30):
        if number == 10:
            await asyncio.to_thread(world.kill, home)
        body = b"%d" % number
        while body not in confirmed:
            try:
                message = aio_pika.Message(body, delivery_mode=2)
                await channel.default_exchange.publish(message, "robust", timeout=60)
                confirmed.add(body)
            except aio_pika.exceptions.DeliveryError:  # Nacked: it may be there or not.
                await asyncio.sleep(0.1)
    queue = await channel.declare_queue("robust", durable=True)
    got: set[bytes] = set()
    async with queue.iterator(timeout=10) as messages:
        async for each in messages:
            async with each.process():
                got.add(each.body)
            if got >= confirmed:
                break
    await connection.close()
    return confirmed - got


def test_aio_pika_through_a_failover(world: World) -> None:
    assert asyncio.run(_through_failover(world)) == set()


def test_rounds_of_faults_with_queues(tmp_path: Path) -> None:
    outcome = run(tmp_path, rounds=5, with_transactions=False, fault_s=2.0, seed=11)
    assert outcome.is_good, outcome.text()
    assert outcome.confirmed > 50
    assert len(outcome.settled.settled) > 50


def test_a_quorum_queue_is_durable_has_copies_and_keeps_the_order(world: World) -> None:
    one = world.nodes[0]
    with connect(one) as connection:
        quorum = {"x-queue-type": "quorum"}
        connection.channel().queue_declare("orders", durable=True, arguments=quorum)
    home = home_of(world, "orders")
    partition = world.metadata().topics["orders"].partitions[0]
    assert sorted(partition.replicas) == [1, 2, 3]
    other = next(node for node in world.nodes if node is not home)
    bodies = [b"%d" % number for number in range(60)]
    publish(other, "orders", bodies[:30])
    world.kill(home)
    publish(other, "orders", bodies[30:])
    got = []
    with connect(other) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume("orders", inactivity_timeout=PATIENCE_S):
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == len(bodies):
                break
        channel.cancel()
    assert got == bodies
