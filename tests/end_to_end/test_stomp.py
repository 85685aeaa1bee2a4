"""STOMP with a real client, stomp.py, in every version; and beside Kafka's and RabbitMQ's."""

import queue
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import stomp
from confluent_kafka import Consumer, Message, TopicPartition
from stomp.exception import ConnectFailedException
from stomp.utils import Frame

from entrepot.testing import Broker, broker
from tests import certificates
from tests.end_to_end.bare_stomp import BareStomp

WAIT_S = 30
CLIENTS = {
    "1.0": stomp.Connection10,
    "1.1": stomp.Connection11,
    "1.2": stomp.Connection12,
}
VERSIONS = [*CLIENTS]


class Client(stomp.ConnectionListener):  # type: ignore[misc]
    """One connection, and all that it hears."""

    def __init__(
        self, server: Broker, version: str = "1.2", *, endpoint: str = "stomp", **options: Any
    ) -> None:
        self.version = version
        self._messages: queue.Queue[Frame] = queue.Queue()
        self._receipts: queue.Queue[str] = queue.Queue()
        self.errors: queue.Queue[Frame] = queue.Queue()
        self._count = 0
        self.connection = CLIENTS[version]([server.endpoints[endpoint]], **options)
        self.connection.set_listener("", self)

    def connect(self, user: str = "guest", passcode: str = "guest") -> "Client":
        self.connection.connect(user, passcode, wait=True)
        return self

    # --- called by stomp.py

    def on_message(self, frame: Frame) -> None:
        self._messages.put(frame)

    def on_receipt(self, frame: Frame) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Frame) -> None:
        self.errors.put(frame)

    # --- for tests

    def next(self) -> Frame:
        return self._messages.get(timeout=WAIT_S)

    def has_more(self, seconds: float = 0.3) -> bool:
        time.sleep(seconds)
        return not self._messages.empty()

    def receipt(self) -> str:
        self._count += 1
        return f"receipt-{self._count}"

    def wait_for(self, receipt: str) -> None:
        assert self._receipts.get(timeout=WAIT_S) == receipt

    def send(self, destination: str, body: str | bytes, **headers: str) -> None:
        """Return when it is on disk."""
        receipt = self.receipt()
        self.connection.send(destination, body, headers=headers, receipt=receipt)
        self.wait_for(receipt)

    def subscribe(self, destination: str, id: str = "1", ack: str = "auto", **more: str) -> None:
        receipt = self.receipt()
        headers = {"receipt": receipt, **{k.replace("_", "-"): v for k, v in more.items()}}
        if self.version == "1.0":
            self.connection.subscribe(destination, ack=ack, headers={"id": id, **headers})
        else:
            self.connection.subscribe(destination, id, ack=ack, headers=headers)
        self.wait_for(receipt)

    def ack(self, frame: Frame, **more: Any) -> None:
        if self.version == "1.2":
            self.connection.ack(frame.headers["ack"], **more)
        elif self.version == "1.1":
            self.connection.ack(frame.headers["message-id"], frame.headers["subscription"], **more)
        else:
            self.connection.ack(frame.headers["message-id"], **more)

    def close(self) -> None:
        if self.connection.is_connected():
            self.connection.disconnect()


@pytest.fixture
def client(server: Broker, request: pytest.FixtureRequest) -> Iterator[Client]:
    made = Client(server, getattr(request, "param", "1.2")).connect()
    yield made
    made.close()


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


every_version = pytest.mark.parametrize("client", VERSIONS, indirect=True)


@every_version
def test_a_queue(client: Client) -> None:
    """Proves U-01, the half of it with a library."""
    name = f"/queue/stomp-{client.version}"
    client.subscribe(name, ack="client")
    client.send(name, "first", colour="red: and green")
    client.send(name, b"second\0\xff".decode("latin-1"))
    first, second = client.next(), client.next()
    assert (first.body, first.headers["colour"]) == ("first", "red: and green")
    assert first.headers["destination"] == name
    assert second.body == "second\0\xff"
    client.ack(second)
    assert not client.has_more()


@every_version
def test_many_messages_pipelined(client: Client) -> None:
    name = f"/queue/stomp-many-{client.version}"
    for number in range(2_000):
        client.connection.send(name, f"message {number}")
    client.subscribe(name, ack="client", prefetch_count="100")
    for number in range(2_000):
        frame = client.next()
        assert frame.body == f"message {number}"
        if number % 50 == 49:
            client.ack(frame)
    assert not client.has_more()


@every_version
def test_a_transaction(client: Client) -> None:
    source, target = f"/queue/stomp-in-{client.version}", f"/queue/stomp-out-{client.version}"
    client.subscribe(source, "in", ack="client-individual")
    client.subscribe(target, "out")
    client.send(source, "task")
    task = client.next()
    for is_committed in (False, True):
        transaction = client.connection.begin()
        client.connection.send(target, "result", transaction=transaction)
        client.ack(task, transaction=transaction)
        if is_committed:
            client.connection.commit(transaction)
        else:
            client.connection.abort(transaction)
            assert not client.has_more()
    assert client.next().body == "result"
    assert not client.has_more()


@every_version
def test_topics(server: Broker, client: Client) -> None:
    other = Client(server, "1.2").connect()
    client.subscribe("/topic/lab.*.temperature")
    other.subscribe("/topic/lab.#")
    client.send("/topic/lab.3.temperature", "21")
    client.send("/topic/lab.3.pressure", "1013")
    assert client.next().body == "21"
    assert [other.next().body, other.next().body] == ["21", "1013"]
    assert not client.has_more()
    other.close()


@pytest.mark.parametrize("client", ["1.1", "1.2"], indirect=True)
def test_a_message_that_is_refused_comes_again(client: Client) -> None:
    name = f"/queue/stomp-nack-{client.version}"
    client.subscribe(name, ack="client-individual")
    client.send(name, "again")
    first = client.next()
    if client.version == "1.2":
        client.connection.nack(first.headers["ack"])
    else:
        client.connection.nack(first.headers["message-id"], first.headers["subscription"])
    again = client.next()
    assert (again.body, again.headers["redelivered"]) == ("again", "true")
    client.ack(again)


@pytest.mark.slow
def test_heart_beats(server: Broker) -> None:
    client = Client(server, "1.2", heartbeats=(1_000, 1_000)).connect()
    time.sleep(5)  # Five of them, and nothing else.
    assert client.connection.is_connected()
    client.send("/queue/stomp-beats", "still here")
    client.close()


def test_errors(server: Broker) -> None:
    client = Client(server).connect()
    client.connection.send("/nowhere", "x", receipt="r")
    error = client.errors.get(timeout=WAIT_S)
    assert error.headers["receipt-id"] == "r"
    assert "'/nowhere' is not a valid destination" in error.body
    deadline = time.monotonic() + WAIT_S
    while client.connection.is_connected() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not client.connection.is_connected()
    with pytest.raises(ConnectFailedException):
        Client(server, reconnect_attempts_max=1).connect("guest", "wrong")


def test_replies_to_a_temporary_queue(server: Broker, client: Client, channel: Any) -> None:
    channel.queue_declare("stomp-service", durable=True)
    client.connection.send(
        "/queue/stomp-service", "2+2", headers={"reply-to": "/temp-queue/sums"}, receipt="r"
    )
    client.wait_for("r")
    _, properties, body = channel.basic_get("stomp-service", auto_ack=True)
    channel.basic_publish("", properties.reply_to, body + b"=4", mandatory=True)
    answer = client.next()
    assert (answer.body, answer.headers["subscription"]) == ("2+2=4", "/temp-queue/sums")


# Beside other protocols.


@every_version
def test_pika_publishes_and_stomp_reads(client: Client, channel: Any) -> None:
    name = f"stomp-from-pika-{client.version}"
    channel.queue_declare(name, durable=True)
    channel.basic_publish(
        "",
        name,
        b"a task",
        pika.BasicProperties(
            content_type="text/plain",
            delivery_mode=2,
            correlation_id="c",
            message_id="m",
            priority=3,
            headers={"tries": 2, "who": "pika"},
        ),
    )
    client.subscribe(f"/queue/{name}")
    frame = client.next()
    assert frame.body == "a task"
    expected = {
        "content-type": "text/plain",
        "correlation-id": "c",
        "amqp-message-id": "m",
        "priority": "3",
        "persistent": "true",
        "tries": "2",
        "who": "pika",
    }
    assert expected.items() <= frame.headers.items()


@every_version
def test_stomp_sends_and_pika_reads(client: Client, channel: Any) -> None:
    name = f"stomp-to-pika-{client.version}"
    headers = {"content-type": "text/plain", "correlation-id": "c", "amqp-message-id": "m"}
    client.send(f"/queue/{name}", "a task", **headers, priority="3", mine="x")
    channel.queue_declare(name, durable=True)
    _, properties, body = channel.basic_get(name, auto_ack=True)
    assert body == b"a task"
    assert (properties.content_type, properties.correlation_id) == ("text/plain", "c")
    assert (properties.message_id, properties.priority) == ("m", 3)
    assert properties.delivery_mode == 2
    assert properties.headers == {"mine": "x"}


def test_kafka_reads_a_queue_of_stomp(server: Broker, client: Client) -> None:
    for number in range(3):
        client.send("/queue/stomp-to-kafka", f"{number}", mine="x", **{"correlation-id": "c"})
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "browse"})
    consumer.assign([TopicPartition("stomp-to-kafka", 0, 0)])
    found: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < 3 and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message)
    consumer.close()
    assert [message.value() for message in found] == [b"0", b"1", b"2"]
    (name, _), *others = found[0].headers() or []
    assert name == "message"
    assert dict(others) == {"correlation-id": b"c", "mine": b"x"}
    client.subscribe("/queue/stomp-to-kafka")  # Reading has taken nothing away.
    assert [client.next().body for _ in range(3)] == ["0", "1", "2"]


# Over TLS, after a restart, and many at once.


def test_tls_and_certificates(tmp_path: Path) -> None:
    own = certificates.make(tmp_path, "own", subject="/CN=localhost")
    showing = certificates.make(tmp_path, "client", subject="/CN=client", signer=own)
    settings = {
        "ports.stomp_tls": 0,
        "tls.certificate": own.certificate,
        "tls.key": own.key,
        "tls.client_ca": own.certificate,
    }
    with broker(settings=settings) as server:
        context = ssl.create_default_context(cafile=own.certificate)
        context.load_cert_chain(showing.certificate, showing.key)
        with (
            socket.create_connection(server.endpoints["stomp_tls"], WAIT_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as secure,
        ):
            secure.sendall(
                b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
                b"SEND\ndestination:/queue/tls\nreceipt:r\n\n" + b"x" * 100_000 + b"\0"
            )
            heard = b""
            while not heard.endswith(b"RECEIPT\nreceipt-id:r\n\n\0"):
                more = secure.recv(65_536)
                assert more, heard
                heard += more
        assert "user 'CN=client' granted access" in server.log_path.read_text()


def test_what_stomp_made_is_there_after_a_restart() -> None:
    with broker() as server:
        client = Client(server).connect()
        client.subscribe("/topic/news", "mine", durable="true", auto_delete="false")
        client.close()
        client = Client(server).connect()
        client.send("/topic/news", "kept")
        client.send("/queue/work", "kept, too")
        client.send("/queue/work", "not this", persistent="false")
        client.close()
        server.restart()
        client = Client(server).connect()
        client.subscribe("/topic/news", "mine", durable="true", auto_delete="false")
        assert client.next().body == "kept"
        client.subscribe("/queue/work", "2")
        assert client.next().body == "kept, too"
        assert not client.has_more()
        client.close()


def test_many_connections_with_one_message_at_a_time(server: Broker) -> None:
    peers = [BareStomp(server).connect() for _ in range(100)]
    for peer in peers:
        peer.ask("SUBSCRIBE", destination="/queue/stomp-each", id=1, ack="client-individual")
    seen: set[bytes] = set()
    for turn in range(5):
        for number, peer in enumerate(peers):
            peer.say("SEND", b"%d-%d" % (turn, number), destination="/queue/stomp-one", receipt=1)
        for peer in peers:
            peer.expect("RECEIPT")
    reader = BareStomp(server).connect()
    reader.say("SUBSCRIBE", destination="/queue/stomp-one", id=1, ack="client-individual")
    for _ in range(500):
        frame = reader.expect("MESSAGE")
        seen.add(frame.body)
        reader.say("ACK", id=frame.headers["ack"])
    assert len(seen) == 500
    for peer in (*peers, reader):
        peer.close()
