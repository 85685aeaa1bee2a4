"""MQTT and STOMP over WebSocket: real clients, and those who mean no good."""

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from entrepot.testing import Broker, broker
from entrepot.wire.http import limits as http_limits
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import V311, Connack, Connect, Pingreq, write
from tests.certificates import Certificate, make
from tests.end_to_end.bystander import Growth
from tests.end_to_end.mqtt_peers import Client
from tests.unit.wire.http.test_websocket import BINARY, PING, frame

WAIT_S = 30
CONNECT = write(Connect(V311, "raw"), V311)
CONNACK = write(Connack(), V311)
PINGREQ, PINGRESP = write(Pingreq(), V311), b"\xd0\x00"
SUBSCRIBE = bytes.fromhex("820a 0001 0005") + b"flood\x00"  # To "flood", with QoS 0.
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return make(tmp_path_factory.mktemp("certificate"), "own", subject="/CN=localhost")


@pytest.fixture(scope="module")
def server(own: Certificate) -> Iterator[Broker]:
    settings = {
        "ports.http": 0,
        "ports.http_tls": 0,
        "tls.certificate": own.certificate,
        "tls.key": own.key,
        "websocket.origins": ["https://shop.example"],
    }
    with broker(settings=settings) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def paho(server: Broker, client_id: str, version: str = "5", **options: object) -> Client:
    client = Client(server.endpoints["http"], client_id, version, "websockets", **options)
    client.paho.ws_set_options("/mqtt")
    return client


def opened(server: Broker, path: str, *subprotocols: str, **options: object) -> ClientConnection:
    host, port = server.endpoints["http"]
    url = f"ws://{host}:{port}{path}"
    return connect(url, subprotocols=[*subprotocols] or None, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_each_quality_with_paho(server: Broker, version: str) -> None:
    name = f"paho-{version}"
    with paho(server, name, version) as client, Client(server.mqtt_address, f"{name}-tcp") as tcp:
        client.subscribe(f"{name}/#", qos=2)
        for qos in range(3):
            tcp.publish(f"{name}/in", b"%d" % qos, qos)
            client.publish(f"{name}/out", b"x" * 70_000, qos)
        client.wait_for(6)
        assert sorted(len(each) for each in client.payloads) == [1, 1, 1, 70_000, 70_000, 70_000]


def test_a_session_a_will_and_a_retained_message(server: Broker) -> None:
    will = {"topic": "ws/will", "payload": b"gone", "qos": 1}
    with Client(server.mqtt_address, "ws-witness") as witness:
        witness.subscribe("ws/will", qos=1)
        kept = paho(server, "ws-kept", clean=False, expiry_s=60, will=will).connect()
        kept.subscribe("ws/session", qos=1)
        kept.vanish()
        assert witness.wait_for(1) == [b"gone"]
        witness.publish("ws/session", b"later", 1)
        witness.publish("ws/retained", b"still", 1, retain=True)
    with paho(server, "ws-kept", clean=False, expiry_s=60) as again:
        assert again.flags.session_present
        again.subscribe("ws/retained", qos=1)
        assert sorted(again.wait_for(2)) == [b"later", b"still"]


@pytest.mark.parametrize("subprotocol", [None, "mqtt", "mqttv3.1"])
def test_the_subprotocol_is_chosen(server: Broker, subprotocol: str | None) -> None:
    names = () if subprotocol is None else ("other", subprotocol)
    with opened(server, "/mqtt", *names) as peer:
        assert peer.subprotocol == subprotocol
        peer.send(CONNECT)
        assert peer.recv(WAIT_S) == CONNACK
        assert peer.protocol.extensions == []  # Although compression was offered.


def test_packets_in_pieces_and_together(server: Broker) -> None:
    with opened(server, "/mqtt", "mqtt") as peer:
        for byte in CONNECT:
            peer.send(bytes((byte,)))
        assert peer.recv(WAIT_S) == CONNACK
        peer.send([PINGREQ[:1], b"", PINGREQ[1:] + PINGREQ[:1], PINGREQ[1:]])
        answers = b""
        while len(answers) < 4:
            message = peer.recv(WAIT_S)
            assert isinstance(message, bytes)
            answers += message
        assert answers == 2 * PINGRESP
        assert peer.ping(b"?").wait(WAIT_S)


def test_a_text_ends_a_connection_of_mqtt(server: Broker) -> None:
    with opened(server, "/mqtt", "mqtt") as peer:
        peer.send("CONNECT")
        with pytest.raises(ConnectionClosed) as ended:
            peer.recv(WAIT_S)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1003


def test_a_disconnect_is_followed_by_a_close(server: Broker) -> None:
    with opened(server, "/mqtt", "mqtt") as peer:
        peer.send(CONNECT)
        peer.recv(WAIT_S)
        peer.send(b"\xe0\x00")
        with pytest.raises(ConnectionClosed) as ended:
            peer.recv(WAIT_S)
        assert ended.value.rcvd is not None
        assert ended.value.rcvd.code == 1000


@pytest.mark.parametrize(
    ("origin", "status"),
    [("https://evil.example", 403), ("https://shop.example", 101), (None, 101)],
)
def test_whose_pages_may_connect(server: Broker, origin: str | None, status: int) -> None:
    for path in ("/mqtt", "/stomp"):
        try:
            with opened(server, path, origin=origin):
                found = 101
        except InvalidStatus as refused:
            found = refused.response.status_code
        assert found == status


def test_other_paths_and_no_handshake(server: Broker) -> None:
    with pytest.raises(InvalidStatus, match="404"), opened(server, "/amqp"):
        pass
    with socket.create_connection(server.endpoints["http"], WAIT_S) as peer:
        peer.sendall(b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert peer.recv(65_536).startswith(b"HTTP/1.1 426 Upgrade Required\r\n")


@pytest.mark.parametrize("subprotocol", [None, "v10.stomp", "v11.stomp", "v12.stomp"])
def test_stomp_in_texts_and_binary(server: Broker, subprotocol: str | None) -> None:
    names = () if subprotocol is None else (subprotocol,)
    destination = f"/queue/ws-{subprotocol}"
    with opened(server, "/stomp", *names) as peer:
        assert peer.subprotocol == subprotocol
        peer.send("CONNECT\naccept-version:1.0,1.1,1.2\nhost:/\n\n\0")
        welcome = peer.recv(WAIT_S)
        assert isinstance(welcome, str)
        assert welcome.startswith("CONNECTED\n")
        peer.send(f"SUBSCRIBE\nid:1\ndestination:{destination}\nack:auto\nreceipt:s\n\n\0")
        assert "receipt-id:s" in str(peer.recv(WAIT_S))
        peer.send(f"SEND\ndestination:{destination}\n\ngrün\0")
        came = peer.recv(WAIT_S)
        assert isinstance(came, str)
        assert came.endswith("grün\0")
        peer.send(f"SEND\ndestination:{destination}\ncontent-length:1\n\n".encode() + b"\xff\0")
        binary = peer.recv(WAIT_S)
        assert isinstance(binary, bytes)
        assert binary.endswith(b"\xff\0")


def test_under_tls(server: Broker, own: Certificate) -> None:
    """By the client without threads: one TLS socket is not to be read and written by two."""
    trust = ssl.create_default_context(cafile=own.certificate)
    port = server.endpoints["http_tls"][1]

    async def greet() -> object:
        async with connect_async(f"wss://localhost:{port}/mqtt", ssl=trust) as peer:
            await peer.send(CONNECT)
            return await asyncio.wait_for(peer.recv(), WAIT_S)

    assert asyncio.run(greet()) == CONNACK


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 100,
        frame(BINARY, CONNECT, mask=None),
        frame(BINARY, CONNECT) + b"\x82\xff" + b"\xff" * 8,
        frame(0, CONNECT),
        frame(BINARY, b"\x10\xff\xff\xff\xff"),
        frame(BINARY, bytes(1_000)),
        frame(9, bytes(200)),
    ],
)
def test_nonsense_ends_it(server: Broker, data: bytes) -> None:
    with socket.create_connection(server.endpoints["http"], WAIT_S) as peer:
        peer.sendall(HANDSHAKE)
        assert peer.recv(65_536).startswith(b"HTTP/1.1 101 ")
        peer.sendall(data)
        with suppress(ConnectionError):
            while peer.recv(65_536):
                pass
    with paho(server, "well") as client:
        assert client.connected == 0


def test_pings_that_are_not_read_take_no_memory(server: Broker) -> None:
    flood = frame(PING, b"x" * 100) * 1_000
    growth = Growth(server)
    with socket.create_connection(server.endpoints["http"], WAIT_S) as peer:
        peer.sendall(HANDSHAKE)
        peer.recv(1_000)
        peer.settimeout(1)
        sent = 0
        with suppress(TimeoutError):
            while sent < 200 << 20:
                sent += peer.send(flood)
        assert sent < 100 << 20  # It is not read from.
        assert growth.peak() < 60
        with paho(server, "beside") as client:
            client.publish("a", b"", 1)


def test_a_message_as_large_as_may_be(server: Broker) -> None:
    body = bytes(range(256)) * (15 << 12)  # 15 MiB, in one frame.
    assert len(body) < http_limits.WEBSOCKET_FRAME_BYTES_MAX
    with opened(server, "/mqtt", "mqtt", max_size=None) as peer:
        peer.send(CONNECT)
        assert peer.recv(WAIT_S) == CONNACK
        peer.send(SUBSCRIBE)
        peer.recv(WAIT_S)
        message = head(Outgoing(0, False, b"flood", None, body)) + body
        peer.send(message)
        found = b""
        while len(found) < len(message):
            piece = peer.recv(WAIT_S)
            assert isinstance(piece, bytes)
            found += piece
        assert found == message


def test_a_slow_reader_holds_up_nobody(server: Broker) -> None:
    """Messages of QoS 0 are dropped for who does not read; others get all of them."""
    with (
        opened(server, "/mqtt", "mqtt", max_size=None, close_timeout=0.1) as slow,
        Client(server.mqtt_address, "quick") as quick,
    ):
        slow.send(CONNECT)
        slow.recv(WAIT_S)
        slow.send(SUBSCRIBE)
        slow.recv(WAIT_S)
        quick.subscribe("flood", qos=1)
        for _ in range(300):
            quick.paho.publish("flood", bytes(100_000), 1)
        quick.wait_for(300)
