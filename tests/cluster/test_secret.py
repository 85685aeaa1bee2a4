"""A cluster whose nodes and clients log in, and who may not join it."""

import base64
import http.client
import json
from pathlib import Path
from queue import Queue

import paho.mqtt.client as paho
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from entrepot.testing import Broker
from tests.cluster.lecture_table import read
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
SECRET = "0123456789abcdef0123456789abcdef"


def login(user: str, password: str) -> dict[str, object]:
    return {
        "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": user, "sasl.password": password,
    }  # fmt: skip


def test_nodes_and_clients_log_in(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET}\n")
    settings = {
        "cluster.session_timeout_ms": 2_000, "cluster.secret_file": str(secret),
        "cluster.min_insync_replicas": 2, "security.authentication": "sasl",
        "security.authorization": True, "security.super_users": ["User:alice"],
        "ports.http": 0,
    }  # fmt: skip
    with World(tmp_path, 3, settings, login("__node", SECRET)) as world:
        add_user(world.admin(), "alice", "wonderland")
        world.client = {"log_level": 0, **login("alice", "wonderland")}
        admin = world.admin()  # Its answers come as long as it is there.
        admin.create_topics([NewTopic("t", 1, 3)])["t"].result(30)
        assert world.wait_healed(["t"]) == ""
        produce(world, range(50))
        clients_of_queues_log_in(world)
        world.kill(world.nodes[0])
        produce(world, range(50, 100))
        world.begin(world.nodes[0])
        assert world.wait_healed(["t"]) == ""
        assert sorted(int(value) for value in read(world, "t")) == list(range(100))
        secret.write_text(f"{SECRET[::-1]}\n")
        refused(world, 4, "this node's secret is not the cluster's")


def clients_of_queues_log_in(world: World) -> None:
    """Whichever node a client of MQTT comes to, the home checks its password and knows its
    address."""
    ports = []
    clients = []
    for node in world.nodes:
        for password, is_right in (("wonderland", True), ("looking-glass", False)):
            version = paho.CallbackAPIVersion.VERSION2
            client = paho.Client(version, f"{password}{node.number}")
            client.username_pw_set("alice", password)
            answers: Queue[bool] = Queue()
            client.on_connect = lambda _, __, ___, reason, ____, to=answers: to.put(
                not reason.is_failure
            )
            client.connect(*node.broker.endpoints["mqtt"])
            client.loop_start()
            assert answers.get(timeout=60) is is_right
            if is_right:
                ports.append(client.socket().getsockname()[1])
                clients.append(client)
            else:
                client.loop_stop()
    seen: list[list[int]] = []
    for node in world.nodes:
        connection = http.client.HTTPConnection(*node.broker.endpoints["http"], timeout=30)
        authorization = base64.b64encode(b"alice:wonderland").decode()
        headers = {"Authorization": f"Basic {authorization}"}
        connection.request("GET", "/api/connections", headers=headers)
        rows = json.loads(connection.getresponse().read())
        connection.close()
        seen.append(sorted(row["peer_port"] for row in rows if "MQTT" in row["protocol"]))
    assert sorted(seen) == [[], [], sorted(ports)]
    for client in clients:
        client.disconnect()
        client.loop_stop()


def test_who_does_not_fit_does_not_start(tmp_path: Path) -> None:
    with World(tmp_path, 2, {"cluster.session_timeout_ms": 2_000}) as world:
        refused(world, 2, "the number 2 is taken by another data directory")
        alone = tmp_path / "alone"
        with Broker(alone):
            pass
        refused(world, 3, "the data are those of a broker alone", alone)


def refused(world: World, number: int, why: str, directory: Path | None = None) -> None:
    """Start a node that is refused, for this reason."""
    assert world.etcd is not None
    settings = {
        **world.settings, "node_id": number,
        "cluster.coordinator": [f"http://127.0.0.1:{world.etcd.client_port}"],
    }  # fmt: skip
    broker = Broker(directory or world.directory / "stranger", settings=settings)
    with pytest.raises(Exception, match=why):
        broker.start()
    broker.close()


def add_user(admin: AdminClient, name: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    change = UserScramCredentialUpsertion(name, info, password.encode())
    for done in admin.alter_user_scram_credentials([change]).values():
        done.result(30)


def produce(world: World, numbers: range) -> None:
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": world.bootstrap, "acks": "all", **world.client})
    for number in numbers:
        producer.produce(
            "t", str(number).encode(), on_delivery=lambda error, _: failures.append(error)
        )
    assert producer.flush(60) == 0
    assert [each for each in failures if each is not None] == []
