"""MQTT, STOMP, SQS and AMQP 1.0 on three real nodes: each client finds what is at any node."""

from __future__ import annotations

import base64
import http.client
import queue as threads
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import paho.mqtt.client as paho
import pika
import pytest
import stomp
from botocore.config import Config
from botocore.exceptions import ClientError
from confluent_kafka.admin import NewTopic
from paho.mqtt.reasoncodes import ReasonCode
from proton import Message as ProtonMessage
from proton.utils import BlockingConnection

from tests.cluster.harness import SETTINGS
from tests.cluster.test_queues import connect, home_of, publish, until
from tests.cluster.world import Node, World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, 3, {**SETTINGS, "ports.http": 0, "ports.sqs": 0}) as world:
        with connect(world.nodes[0]) as connection:
            connection.channel().queue_declare("work", durable=True)
        until(lambda: "work" in world.metadata().topics)
        yield world


class MqttClient:
    """Paho, which connects again by itself, to the same node."""

    def __init__(self, node: Node, name: str, *filters: str, will: str = "") -> None:
        self.got: threads.Queue[tuple[str, bytes]] = threads.Queue()
        self.subscribed = 0
        version = paho.CallbackAPIVersion.VERSION2
        self.client = paho.Client(version, name, clean_session=False)
        self.client.reconnect_delay_set(1, 1)
        self._filters = filters
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._subscribed
        self.client.on_message = self._got
        self.answered: set[int] = set()
        self.client.on_publish = lambda client, data, mid, *rest: self.answered.add(mid)
        if will:
            self.client.will_set(will, b"dead", qos=1)
        self.client.connect(*node.broker.endpoints["mqtt"])
        self.client.loop_start()
        until(lambda: self.subscribed >= len(filters) and self.client.is_connected())

    def _connected(self, client: paho.Client, *rest: object) -> None:
        for each in self._filters:
            client.subscribe(each, 2)

    def _subscribed(self, *rest: object) -> None:
        self.subscribed += 1

    def _got(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.got.put((message.topic, message.payload))

    def publish(self, topic: str, *bodies: bytes, quality: int = 1, retain: bool = False) -> None:
        for body in bodies:
            sent = self.client.publish(topic, body, quality, retain)
            # If its home has just died: after it connects again.
            until(partial(self.answered.__contains__, sent.mid))

    def take(self, count: int) -> list[tuple[str, bytes]]:
        return [self.got.get(timeout=60) for _ in range(count)]

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_mqtt_on_every_node(world: World) -> None:
    subscribers = [MqttClient(node, f"s{node.number}", "home/#") for node in world.nodes]
    for node in world.nodes:
        publisher = MqttClient(node, f"p{node.number}")
        publisher.publish("home/door", b"from %d" % node.number, quality=2, retain=True)
        publisher.stop()
    for subscriber in subscribers:
        assert [body for _, body in subscriber.take(3)] == [b"from 1", b"from 2", b"from 3"]
        subscriber.stop()
    for node in world.nodes:
        late = MqttClient(node, f"late{node.number}", "home/#")
        assert late.take(1) == [("home/door", b"from 3")]
        late.stop()


def test_a_session_outlives_the_home(world: World) -> None:
    home = home_of(world, "work")
    others = [node for node in world.nodes if node is not home]
    subscriber = MqttClient(others[0], "kept", "orders/+")
    publisher = MqttClient(others[1], "publisher")
    publisher.publish("orders/1", b"before")
    assert subscriber.take(1) == [("orders/1", b"before")]
    subscriber.stop()  # Its session stays, and collects.
    publisher.publish("orders/2", b"away", quality=2)
    publisher.publish("orders/3", b"retained", retain=True)
    world.kill(home)
    publisher.publish("orders/4", b"after")
    publisher.stop()
    back = MqttClient(others[1], "kept", "orders/+")
    found: dict[str, bytes] = {}
    while len(found.keys() & {"orders/2", "orders/3", "orders/4"}) < 3:
        found |= back.take(1)  # The first may come again: its PUBACK races with the DISCONNECT.
    assert found["orders/2"] == b"away"
    assert found["orders/3"] == b"retained"
    assert found["orders/4"] == b"after"
    back.stop()


def stomp_client(node: Node, listener: Any = None) -> stomp.Connection12:
    client = stomp.Connection12([node.broker.endpoints["stomp"]], heartbeats=(0, 0))
    if listener is not None:
        client.set_listener("", listener)
    client.connect("guest", "guest", wait=True)
    return client


class Heard(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.bodies: list[str] = []

    def on_message(self, frame: Any) -> None:
        self.bodies.append(frame.body)


def test_stomp_on_every_node(world: World) -> None:
    heard = [Heard() for _ in world.nodes]
    readers = [stomp_client(node, each) for node, each in zip(world.nodes, heard, strict=True)]
    for number, reader in enumerate(readers):
        reader.subscribe("/topic/news", f"{number}")
    reader = readers[0]
    reader.subscribe("/amq/queue/work", "work")
    publish(world.nodes[2], "work", [b"by amqp"])
    time.sleep(1.0)  # Subscriptions are not answered.
    for node in world.nodes:
        client = stomp_client(node)
        client.send("/topic/news", f"from {node.number}", receipt=f"r{node.number}")
        client.send("/amq/queue/work", f"work {node.number}", persistent="true")
        client.disconnect()
    news = ["from 1", "from 2", "from 3"]
    until(lambda: all(len(each.bodies) >= 3 for each in heard[1:]) and len(heard[0].bodies) >= 7)
    assert [each.bodies for each in heard[1:]] == [news, news]
    assert sorted(heard[0].bodies) == sorted([*news, "by amqp", "work 1", "work 2", "work 3"])
    for reader in readers:
        reader.disconnect()


GUEST = {"Authorization": f"Basic {base64.b64encode(b'guest:guest').decode()}"}
AWS = {
    "region_name": "eu-central-1", "aws_access_key_id": "guest", "aws_secret_access_key": "guest"
}  # fmt: skip


def sqs(node: Node) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=node.broker.sqs_url,
        **AWS,
        config=Config(retries={"max_attempts": 10, "mode": "standard"}, read_timeout=60),
    )


def test_sqs_on_every_node(world: World) -> None:
    home = home_of(world, "work")
    others = [node for node in world.nodes if node is not home]
    one, two, three = map(sqs, world.nodes)
    created = one.create_queue(QueueName="jobs")["QueueUrl"]
    for client in (one, two, three):
        url = client.get_queue_url(QueueName="jobs")["QueueUrl"]
        assert url.rpartition("/")[2] == created.rpartition("/")[2]
        for number in range(5):
            client.send_message(QueueUrl=url, MessageBody=f"{number}")
    taken: list[dict[str, Any]] = []
    url = two.get_queue_url(QueueName="jobs")["QueueUrl"]
    while len(taken) < 7:
        answer = two.receive_message(QueueUrl=url, MaxNumberOfMessages=7 - len(taken))
        taken += answer.get("Messages", [])
    for each in taken:
        three.delete_message(
            QueueUrl=three.get_queue_url(QueueName="jobs")["QueueUrl"],
            ReceiptHandle=each["ReceiptHandle"],
        )
    time.sleep(0.5)
    world.kill(home)
    survivor = sqs(others[0])
    url = survivor.get_queue_url(QueueName="jobs")["QueueUrl"]
    left: list[str] = []
    deadline = time.monotonic() + 60
    while len(left) < 8 and time.monotonic() < deadline:
        answer = survivor.receive_message(QueueUrl=url, WaitTimeSeconds=2, MaxNumberOfMessages=10)
        for each in answer.get("Messages", []):
            survivor.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
            left.append(each["Body"])
    assert sorted(left + [each["Body"] for each in taken]) == sorted("01234" * 3)


def test_who_waits_at_one_node_is_woken_by_another(world: World) -> None:
    """Short polls find nothing and return, long ones wait for what comes by any node."""
    one, two, three = map(sqs, world.nodes)
    one.create_queue(QueueName="jobs")
    urls = [client.get_queue_url(QueueName="jobs")["QueueUrl"] for client in (one, two, three)]
    for client, url in zip((one, two, three), urls, strict=True):
        assert "Messages" not in client.receive_message(QueueUrl=url)
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(client.receive_message, QueueUrl=url, WaitTimeSeconds=20)
            for client, url in zip((two, three), urls[1:], strict=True)
        ]
        time.sleep(1.0)
        for body in ("first", "second"):
            one.send_message(QueueUrl=urls[0], MessageBody=body)
        got = [each.result(30)["Messages"][0]["Body"] for each in waiting]
    assert sorted(got) == ["first", "second"]


def test_topics_are_apart_and_who_would_not_notice_is_told(world: World) -> None:
    admin = world.admin()
    admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result(30)
    until(lambda: "orders" in world.metadata().topics)
    for node in world.nodes:
        version = paho.CallbackAPIVersion.VERSION2
        client = paho.Client(version, f"told{node.number}", protocol=paho.MQTTv5)
        answers: threads.Queue[tuple[str, int]] = threads.Queue()

        def told(kind: str, answers: threads.Queue[tuple[str, int]] = answers) -> Any:
            def put(client: object, data: object, *rest: Any) -> None:
                codes = [each for each in rest if isinstance(each, ReasonCode)]
                codes += [code for each in rest if isinstance(each, list) for code in each]
                answers.put((kind, codes[0].value))

            return put

        client.on_connect, client.on_subscribe = told("connected"), told("subscribed")
        client.on_disconnect = told("disconnected")
        client.connect(*node.broker.endpoints["mqtt"])
        client.loop_start()
        assert answers.get(timeout=30) == ("connected", 0)
        client.subscribe([("orders", 1), ("other", 1)])
        kind, code = answers.get(timeout=30)
        assert kind == "subscribed"
        assert code >= 0x80
        client.publish("orders", b"lost", 1)
        kind, code = answers.get(timeout=30)
        assert kind == "disconnected"
        assert code >= 0x80
        client.loop_stop()
        with connect(node) as connection:
            channel = connection.channel()
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
                channel.queue_bind("work", "amq.topic", "orders")
            assert caught.value.reply_code == 403
        sns = boto3.client("sns", endpoint_url=node.broker.sqs_url, **AWS)
        with pytest.raises(ClientError, match="cluster"):
            sns.create_topic(Name="news")


def amqp_1_0(node: Node) -> BlockingConnection:
    host, port = node.broker.endpoints["amqp"]
    address = f"amqp://guest:guest@{host}:{port}"
    return BlockingConnection(address, timeout=60, allowed_mechs="PLAIN")


def test_amqp_1_0_on_every_node(world: World) -> None:
    for node in world.nodes:
        connection = amqp_1_0(node)
        sender = connection.create_sender("/queues/work")
        sender.send(ProtonMessage(body=f"from {node.number}", durable=True))
        connection.close()
    home = home_of(world, "work")
    world.kill(home)
    node = next(node for node in world.nodes if node is not home)
    got: list[str] = []

    def take() -> bool:
        """Take one; while there is no home yet, nothing."""
        try:
            connection = amqp_1_0(node)
        except Exception:
            return False
        receiver = connection.create_receiver("/queues/work")
        while len(got) < 3:
            got.append(str(receiver.receive(30).body))
            receiver.accept()
        connection.close()
        return True

    until(take)
    assert sorted(got) == ["from 1", "from 2", "from 3"]


def test_other_nodes_say_where_the_queues_are(world: World) -> None:
    home = home_of(world, "work")
    for node in world.nodes:
        for path in ("queues", "exchanges", "console/queues", "retained"):
            connection = http.client.HTTPConnection(*node.broker.endpoints["http"], timeout=30)
            connection.request("GET", f"/api/{path}", headers=GUEST)
            answer = connection.getresponse()
            said = answer.read().decode()
            connection.close()
            assert answer.status == (200 if node is home else 503)
            assert node is home or f"the queues are at node {home.number}" in said
            assert node is not home or "queues" not in path or "work" in said


def test_quality_2_comes_once_though_too_few_were_in_sync(world: World) -> None:
    """A message that is refused because its copies are gone is stored nevertheless."""
    home = home_of(world, "work")
    subscriber = MqttClient(home, "once-subscriber", "once/+")
    publisher = MqttClient(home, "once-publisher")
    publisher.publish("once/1", b"1", quality=2)
    assert subscriber.take(1) == [("once/1", b"1")]
    is_refused = threading.Event()
    publisher.client.on_disconnect = lambda *_: is_refused.set()
    others = [node for node in world.nodes if node is not home]
    for node in others:
        world.stop(node)
    sent = publisher.client.publish("once/2", b"2", 2)
    until(is_refused.is_set)
    for node in others:
        world.resume(node)
    until(lambda: sent.mid in publisher.answered)
    publisher.publish("once/3", b"3", quality=2)
    assert subscriber.take(2) == [("once/2", b"2"), ("once/3", b"3")]
    assert subscriber.got.empty()
    publisher.stop()
    subscriber.stop()
