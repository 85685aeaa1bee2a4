"""AMQP 1.0 with a real client, qpid-proton; beside other protocols, killed, and hostile."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pika
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from entrepot.cli import main
from entrepot.testing import Broker, broker
from entrepot.wire.amqp10 import frames
from entrepot.wire.amqp10.frames import FrameBuffer, frame, sasl_frame
from entrepot.wire.amqp10.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    Transfer,
)

proton = pytest.importorskip("proton", reason="pip install python-qpid-proton for these tests")
from proton.reactor import Container, DurableSubscription, Filter, Selector  # noqa: E402
from proton.utils import BlockingConnection, LinkDetached, SendException  # noqa: E402

WAIT_S = 30


class NoLocal(Filter):  # type: ignore[misc]
    def __init__(self) -> None:
        described = proton.Described(proton.symbol("apache.org:no-local-filter:list"), [])
        super().__init__({proton.symbol("no-local"): described})


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def connect(server: Broker, user: str = "guest", password: str = "guest") -> Any:
    host, port = server.endpoints["amqp"]
    url = f"amqp://{user}:{password}@{host}:{port}"
    return BlockingConnection(url, timeout=WAIT_S, allowed_mechs="PLAIN")


@pytest.fixture
def client(server: Broker) -> Iterator[Any]:
    connection = connect(server)
    yield connection
    connection.close()


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened


def text(body: Any, **more: Any) -> Any:
    return proton.Message(body=body, durable=True, **more)


def take(receiver: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        found.append(receiver.receive(timeout=WAIT_S))
        receiver.accept()
    return found


def test_the_bare_message_comes_as_it_was_sent(client: Any) -> None:
    """Proves R-13: everything but the header and delivery annotations is the publisher's."""
    sent = text(
        {"list": [1, "two", None], "bytes": b"\0\xff"},
        id="first",
        correlation_id=7,
        content_type="text/plain",
        subject="a subject",
        reply_to="answers",
        properties={"colour": "blue", "count": 7, "is": True},
        annotations={proton.symbol("x-opt-mine"): "kept"},
        instructions={proton.symbol("x-opt-next"): "not handed on"},
        ttl=60,
        priority=7,
    )
    client.create_sender("bare").send(sent)
    (got,) = take(client.create_receiver("bare"), 1)
    for name in ("body", "id", "correlation_id", "content_type", "subject", "reply_to"):
        assert getattr(got, name) == getattr(sent, name)
    assert got.properties == sent.properties
    assert got.annotations == {"x-opt-mine": "kept"}
    assert not got.instructions
    assert (got.durable, got.priority, got.ttl, got.first_acquirer) == (True, 7, 60, True)


def test_many_messages_in_order_and_in_small_windows(client: Any) -> None:
    sender = client.create_sender("many")
    for number in range(500):
        sender.send(text(f"message {number}"))
    receiver = client.create_receiver("many", credit=7)
    assert [each.body for each in take(receiver, 500)] == [f"message {n}" for n in range(500)]


def test_a_message_larger_than_a_frame(client: Any) -> None:
    body = bytes(range(256)) * 8_000
    client.create_sender("large").send(text(body, inferred=True))
    (got,) = take(client.create_receiver("large"), 1)
    assert bytes(got.body) == body


def test_outcomes(client: Any, channel: Any) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "outcomes-dead"}
    channel.queue_declare("outcomes", durable=True, arguments=dead)
    channel.queue_declare("outcomes-dead", durable=True)
    client.create_sender("/queues/outcomes").send(text("again"))
    receiver = client.create_receiver("/queues/outcomes", credit=1)
    counts = []
    for settle in (
        lambda: receiver.release(delivered=False),
        lambda: receiver.release(delivered=True),
        receiver.reject,
    ):
        counts.append(receiver.receive(timeout=WAIT_S).delivery_count)
        settle()
    assert counts == [0, 0, 0]  # None of them says that the delivery has failed.
    (letter,) = take(client.create_receiver("/queues/outcomes-dead"), 1)
    (death,) = letter.annotations["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["count"]) == ("outcomes", "rejected", 1)


def test_what_is_routed_nowhere_or_refused_is_said(client: Any, channel: Any) -> None:
    with pytest.raises(SendException, match="38"):
        client.create_sender("/exchanges/amq.direct/nobody").send(text("lost"))
    client.create_sender("/topics/nobody.listens").send(text("fine"))
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("full", durable=True, arguments=full)
    sender = client.create_sender("/queues/full")
    sender.send(text("fits"))
    with pytest.raises(SendException, match="37"):
        sender.send(text("does not"))


def test_links_that_are_refused(client: Any, server: Broker) -> None:
    for address, condition in (
        ("/queues/missing", "amqp:not-found"),
        ("/exchanges/missing", "amqp:not-found"),
        ("/nonsense", "amqp:invalid-field"),
    ):
        with pytest.raises(LinkDetached, match=condition):
            client.create_sender(address)
    with pytest.raises(LinkDetached, match="at character 9"):
        client.create_receiver("filtered", options=Selector("colour ="))
    with pytest.raises(LinkDetached, match="the filter no-local is not supported"):
        client.create_receiver("filtered", options=NoLocal())
    client.create_sender("still-works").send(text("yes"))


def test_topics_and_temporary_queues(client: Any) -> None:
    everything, some = (
        client.create_receiver(f"/topics/{each}") for each in ("plant.#", "plant.*")
    )
    sender = client.create_sender("/topics/plant.heat")
    sender.send(text("21"))
    assert [take(each, 1)[0].body for each in (everything, some)] == ["21", "21"]
    temporary = client.create_receiver(None, dynamic=True)
    address = temporary.link.remote_source.address
    client.create_sender(address).send(text("reply"))
    assert take(temporary, 1)[0].body == "reply"
    temporary.close()
    with pytest.raises(LinkDetached, match="amqp:not-found"):
        client.create_sender(address, name="another")


def test_each_message_may_say_where_it_goes(client: Any) -> None:
    client.create_receiver("relayed").close()
    client.create_sender(None).send(text("anywhere", address="relayed"))
    assert take(client.create_receiver("relayed"), 1)[0].body == "anywhere"


def test_amqp_0_9_1_and_kafka_read_the_same_queue(
    client: Any, channel: Any, server: Broker
) -> None:
    sent = text("hello", content_type="text/plain", id="m", properties={"colour": "blue", "n": 5})
    client.create_sender("both").send(sent)
    _, properties, body = channel.basic_get("both", auto_ack=True)
    assert (body, properties.content_type, properties.message_id) == (b"hello", "text/plain", "m")
    assert (properties.headers, properties.delivery_mode) == ({"colour": "blue", "n": 5}, 2)
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("both", 0, 0)])
    record = consumer.poll(WAIT_S)
    assert record is not None
    assert record.value() == b"hello"
    assert dict(record.headers())["colour"] == b"blue"
    consumer.close()
    headers = {"colour": "red", "n": 7}
    table = pika.BasicProperties(delivery_mode=2, headers=headers, type="kind", app_id="app")
    channel.basic_publish("", "both", b"\0\xff", table)
    (got,) = take(client.create_receiver("both"), 1)
    assert (bytes(got.body), got.properties, got.durable) == (b"\0\xff", headers, True)
    assert got.annotations == {"x-basic-type": "kind", "x-basic-app-id": "app"}


class Wire:
    """Leads to the broker, and can be cut."""

    def __init__(self, server: Broker) -> None:
        self._broker = server.endpoints["amqp"]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                pair = [self._listener.accept()[0], socket.create_connection(self._broker)]
                self._open += pair
                for source, target in (pair, pair[::-1]):
                    threading.Thread(target=_forward, args=(source, target), daemon=True).start()

    def cut(self) -> None:
        for each in self._open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _forward(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)


def test_a_subscription_goes_on_after_a_cut(client: Any, server: Broker) -> None:
    """What was not settled comes again, and then what was published meanwhile."""

    def subscribed(wire: Wire) -> tuple[Any, Any]:
        container = Container()
        container.container_id = "device"
        url = f"amqp://guest:guest@127.0.0.1:{wire.port}"
        connection = BlockingConnection(
            url, timeout=WAIT_S, container=container, allowed_mechs="PLAIN"
        )
        options = DurableSubscription()
        return connection, connection.create_receiver(
            "/topics/cut.#", name="mine", options=options, credit=1
        )

    wire = Wire(server)
    connection, receiver = subscribed(wire)
    sender = client.create_sender("/topics/cut.heat")
    for number in range(3):
        sender.send(text(f"{number}"))
    assert [each.body for each in take(receiver, 1)] == ["0"]
    assert receiver.receive(timeout=WAIT_S).body == "1"  # And no answer to it.
    connection.create_sender("/topics/cut.heat")  # The broker has read the answer to "0".
    sender.send(text("3"))
    wire.cut()
    sender.send(text("4"))
    connection, receiver = subscribed(Wire(server))
    found = take(receiver, 4)
    assert [each.body for each in found] == ["1", "2", "3", "4"]
    assert [each.first_acquirer for each in found] == [False, True, True, True]
    receiver.close()
    connection.close()


def test_what_is_accepted_survives_kill_9(every_durability: None) -> None:
    with broker() as server:
        client = connect(server)
        sender = client.create_sender("kept")
        for number in range(200):
            sender.send(text(f"{number}"))
        receiver = client.create_receiver("kept", credit=50)
        settled = [each.body for each in take(receiver, 20)]
        server.kill()
        server.start()
        again = connect(server)
        rest = [each.body for each in take(again.create_receiver("kept"), 180)]
        # Settlements are synced a few milliseconds later: some may come once more.
        assert sorted({*settled, *rest}, key=int)[:180] == [f"{n}" for n in range(180)]
        again.close()


def test_many_clients_one_message_at_a_time(server: Broker) -> None:
    got: list[str] = []

    def work(number: int) -> None:
        client = connect(server)
        sender = client.create_sender(f"own-{number}")
        receiver = client.create_receiver(f"own-{number}")
        for count in range(20):
            sender.send(text(f"{number} {count}", id=f"{number}-{count}"))
            got.append(take(receiver, 1)[0].id)
        client.close()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sorted(got) == sorted(f"{n}-{count}" for n in range(10) for count in range(20))


def test_logins_and_rights(tmp_path: Path) -> None:
    for name in ("root", "ana"):
        arguments = ["users", "add", name, "--password-stdin", "--data-dir", f"{tmp_path}/data"]
        result = CliRunner().invoke(main, arguments, input=f"{name}'s password\n")
        assert result.exit_code == 0, result.output
    settings = {
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with Broker(tmp_path / "data", settings=settings) as server:
        with pytest.raises(proton.ConnectionException, match="uthentication failed"):
            connect(server, "root", "wrong")
        with pytest.raises(proton.ConnectionException, match="access to vhost"):
            connect(server, "ana", quote("ana's password"))
        client = connect(server, "root", quote("root's password"))
        client.create_sender("guarded").send(text("x", user_id=b"root"))
        client.close()


# --- packets that no client sends


class Bare:
    """Sends what it is told, and returns frames as they come."""

    def __init__(self, server: Broker, *, logs_in: bool = True) -> None:
        self.socket = socket.create_connection(server.endpoints["amqp"], timeout=WAIT_S)
        self._buffer = FrameBuffer()
        self._events: list[Any] = []
        if logs_in:
            self.send(frames.SASL_HEADER, sasl_frame(SaslInit("PLAIN", b"\0guest\0guest")))
            assert self.read().octets == frames.SASL_HEADER
            self.read()
            self.read()
            self._buffer.expect_header()
            self.send(frames.AMQP_HEADER, frame(0, Open("bare", max_frame_size=1_000)))
            assert self.read().octets == frames.AMQP_HEADER
            assert isinstance(self.read().performative, Open)
            self._buffer.allow(1_000_000)
            self.send(frame(0, Begin(None, 0, 100, 100)))
            assert isinstance(self.read().performative, Begin)

    def send(self, *data: bytes) -> None:
        self.socket.sendall(b"".join(data))

    def read(self) -> Any:
        while not self._events:
            view = self._buffer.writable()
            size = self.socket.recv_into(view)
            del view
            if not size:
                raise EOFError
            self._events += self._buffer.received(size)
        return self._events.pop(0)

    def until(self, kind: type) -> Any:
        while True:
            event = self.read()
            found = getattr(event, "performative", event)
            if isinstance(found, kind):
                return found

    def __enter__(self) -> "Bare":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


@pytest.mark.parametrize(
    ("sent", "condition"),
    [
        (frame(5, Flow(0, 1, 0, 1)), "amqp:not-allowed"),
        (frame(0, Begin(None, 0, 1, 1)), "amqp:not-allowed"),
        (frame(300, Begin(None, 0, 1, 1)), "amqp:resource-limit-exceeded"),
        (b"\0\0\0\x0c\x02\0\0\0\0\x53\x10\x45", "amqp:decode-error"),
        (b"\x7f\0\0\0\x02\0\0\0", "amqp:connection:framing-error"),
        (frame(0, Accepted()), "amqp:not-allowed"),
    ],
)
def test_mistakes_that_end_the_connection(server: Broker, sent: bytes, condition: str) -> None:
    with Bare(server) as bare:
        bare.send(sent)
        assert bare.until(Close).error.condition == condition
        with pytest.raises((EOFError, ConnectionResetError)):
            bare.read()


@pytest.mark.parametrize(
    ("sent", "condition"),
    [
        (frame(0, Transfer(9, 0, b"t"), b"x"), "amqp:session:unattached-handle"),
        (frame(0, Flow(0, 1, 0, 1, handle=9)), "amqp:session:unattached-handle"),
        (frame(0, Flow(50, 1, 0, 1)), "amqp:invalid-field"),
        (frame(0, Detach(9)), "amqp:session:unattached-handle"),
        (frame(0, Disposition(True, 9, 3)), "amqp:invalid-field"),
        (frame(0, Attach("l", 90_000, False, target=Target("q"))), "amqp:resource-limit-exceeded"),
    ],
)
def test_mistakes_that_end_the_session(server: Broker, sent: bytes, condition: str) -> None:
    with Bare(server) as bare:
        bare.send(sent)
        assert bare.until(End).error.condition == condition
        bare.send(frame(0, End()), frame(0, Begin(None, 0, 1, 1)))
        bare.until(Begin)  # The connection goes on.


@pytest.mark.parametrize(
    ("payload", "condition"),
    [
        (b"nonsense", "amqp:decode-error"),
        (b"", "amqp:decode-error"),
        (b"\0\x53\x75\xa0\xffshort", "amqp:decode-error"),
        (b"\0\x53\x73\xc0\x07\x02\x40\xa0\x03eve\0\x53\x75\xa0\x01x", "amqp:unauthorized-access"),
    ],
)
def test_messages_that_end_something(server: Broker, payload: bytes, condition: str) -> None:
    with Bare(server) as bare:
        bare.send(frame(0, Attach("l", 0, False, target=Target("hostile"))))
        bare.until(Flow)
        bare.send(frame(0, Transfer(0, 0, b"t"), payload))
        while True:
            found = bare.read().performative
            if getattr(found, "error", None) is not None:
                break
        assert found.error.condition == condition


def test_more_than_credit_and_window(server: Broker) -> None:
    body = b"\0\x53\x75\xa0\x01x"
    with Bare(server) as bare:
        bare.send(frame(0, Attach("l", 0, False, target=Target("credit"))))
        bare.until(Flow)
        # Deliveries that never end: neither credit nor a window is renewed for one message.
        bare.send(*[frame(0, Transfer(0, 0, b"t", more=True), b"x") for _ in range(3_000)])
        bare.send(frame(0, Transfer(0, 0, b"t", aborted=True)))
        bare.send(frame(0, Transfer(0, 1, b"t"), body))
        assert isinstance(bare.until(Disposition).state, Accepted)


def test_a_sender_that_resumes_is_told_that_nothing_is_known(server: Broker) -> None:
    """So it sends again what it does not know the outcome of: at least once."""
    with Bare(server) as bare:
        wanted = Attach("s", 0, False, target=Target("resumed"), unsettled={"t": None})
        bare.send(frame(0, wanted))
        assert bare.until(Attach).unsettled is None
        bare.send(frame(0, Transfer(0, 0, b"t", resume=True), b"x"))
        assert bare.until(Detach).error.condition == "amqp:not-implemented"


def test_a_client_that_gives_no_window_gets_nothing(server: Broker) -> None:
    client = connect(server)
    client.create_sender("window").send(text("x" * 5_000))
    client.close()
    with Bare(server) as bare:
        bare.send(frame(0, Flow(0, 0, 0, 100)))
        bare.send(frame(0, Attach("l", 0, True, source=Source("window"), target=Target())))
        bare.until(Attach)
        bare.send(frame(0, Flow(0, 0, 0, 100, 0, 0, 10, echo=True)))
        bare.until(Flow)
        bare.send(frame(0, Flow(0, 3, 0, 100)))  # A window of three frames of six.
        parts = [bare.until(frames.Transfers) for _ in range(1)]
        while sum(len(each.transfers) for each in parts) < 3:
            parts.append(bare.until(frames.Transfers))
        bare.send(frame(0, Flow(3, 100, 0, 100)))
        while parts[-1].transfers[-1][0].more:
            parts.append(bare.until(frames.Transfers))
        data = b"".join(payload for each in parts for _, payload in each.transfers)
        assert data.count(b"x" * 5_000) == 1


def test_other_first_bytes_are_answered_and_refused(server: Broker) -> None:
    for first in (b"AMQP\x02\x01\0\0", b"GET / HTTP/1.1"):
        with Bare(server, logs_in=False) as bare:
            bare.send(first)
            assert bare.socket.recv(100) == b"AMQP\0\0\x09\x01"  # AMQP 0-9-1's answer.
            assert bare.socket.recv(100) == b""
