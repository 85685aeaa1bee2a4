"""A broker as it comes is reached by whoever takes localhost for 127.0.0.1, and for ::1."""

import base64
import socket
import urllib.request
from collections.abc import Iterator

import confluent_kafka
import pika
import pytest
from confluent_kafka.admin import AdminClient

from entrepot.testing import Broker, broker

WAIT_S = 30

if not socket.has_ipv6:
    pytest.skip("there is no IPv6 here", allow_module_level=True)


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", "v4"), ("[::1]", "v6")])
def test_kafka(server: Broker, address: str, family: str) -> None:
    """A client that knows one family only goes on with the address that it is told."""
    if family == "v6" and not _is_both():
        pytest.skip("localhost is 127.0.0.1 only, by the table of this machine")
    _, port = server.endpoints["kafka"]
    settings = {"bootstrap.servers": f"{address}:{port}", "broker.address.family": family}
    producer = confluent_kafka.Producer(settings)
    failures: list[object] = []
    producer.produce("t", b"m", on_delivery=lambda error, _: error and failures.append(error))
    assert (producer.flush(WAIT_S), failures) == (0, [])


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
def test_what_kafkas_clients_are_told(server: Broker, address: str) -> None:
    _, port = server.endpoints["kafka"]
    admin = AdminClient({"bootstrap.servers": f"{address}:{port}"})
    (node,) = admin.describe_cluster().result(WAIT_S).nodes
    assert (node.host, node.port) == ("localhost", port)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_amqp_and_its_guest(server: Broker, address: str) -> None:
    _, port = server.endpoints["amqp"]
    with pika.BlockingConnection(pika.ConnectionParameters(address, port)) as connection:
        connection.channel().queue_declare("q")


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]", "localhost"])
def test_http_and_its_guest(server: Broker, address: str) -> None:
    _, port = server.endpoints["http"]
    request = urllib.request.Request(f"http://{address}:{port}/api/whoami")
    request.add_header("authorization", "Basic " + base64.b64encode(b"guest:guest").decode())
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        assert answer.status == 200


def _is_both() -> bool:
    return any(family == socket.AF_INET6 for family, *_ in socket.getaddrinfo("localhost", 1))
