"""A broker that asks who its clients are and what they may do, and ways to talk to it."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin as admin_api
from click.testing import CliRunner
from confluent_kafka import KafkaError

from entrepot.cli import main
from entrepot.testing import Broker
from tests import certificates

WAIT_S = 30
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
TOPIC, GROUP = "orders", "readers"
ROOT, ANA, BOB = ("root", "r00t, =secret"), ("ana", "ana's password"), ("bob", "bob's password")


class House:
    """A broker with everything on: SASL, TLS, ACLs, and three users."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._admins: dict[tuple[str, str], admin_api.AdminClient] = {}
        self.own = certificates.make(directory, "own", subject="/CN=node")
        self.broker = Broker(
            directory / "data",
            settings={
                "security.authentication": "sasl",
                "security.authorization": True,
                "security.super_users": ["User:root"],
                "ports.kafka_tls": 0,
                "tls.certificate": self.own.certificate,
                "tls.key": self.own.key,
            },
        )
        self.users("add", ROOT[0], "--data-dir", str(directory / "data"), stdin=ROOT[1])

    def users(self, *arguments: str, stdin: str) -> str:
        return command("users", *arguments, "--password-stdin", stdin=stdin + "\n")

    def bootstrap(self, protocol: str) -> str:
        host, port = self.broker.endpoints["kafka_tls" if protocol.endswith("SSL") else "kafka"]
        return f"{host}:{port}"

    def settings(
        self, user: tuple[str, str], protocol: str = "SASL_PLAINTEXT", mechanism: str = "PLAIN"
    ) -> dict[str, Any]:
        """As librdkafka calls them."""
        return {
            "bootstrap.servers": self.bootstrap(protocol),
            "security.protocol": protocol,
            "sasl.mechanism": mechanism,
            "sasl.username": user[0],
            "sasl.password": user[1],
            "ssl.ca.location": self.own.certificate,
        }

    def command_config(self, user: tuple[str, str], protocol: str = "SASL_SSL") -> str:
        """A file of client properties, as Kafka's own tools take it."""
        path = self.directory / f"{user[0]}-{protocol}.properties"
        path.write_text(
            f"security.protocol={protocol}\n"
            "sasl.mechanism=SCRAM-SHA-256\n"
            "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required"
            f' username="{user[0]}" password="{user[1]}";\n'
            f"ssl.truststore.type=PEM\nssl.truststore.location={self.own.certificate}\n"
        )
        return str(path)

    def admin(self, user: tuple[str, str] = ROOT) -> admin_api.AdminClient:
        """One per user: a client that is let go of forgets what it was asked."""
        if user not in self._admins:
            self._admins[user] = admin_api.AdminClient(self.settings(user))
        return self._admins[user]


def command(*arguments: str, stdin: str = "", code: int = 0) -> str:
    """Run here, which is quick; what it said on stdout, or on stderr when it failed."""
    ran = CliRunner().invoke(main, arguments, input=stdin)
    assert ran.exit_code == code, ran.output
    return ran.stdout if code == 0 else ran.stderr


def process(*arguments: str, stdin: str = "", code: int = 0) -> str:
    """The same in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "entrepot.cli", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    return ran.stdout if code == 0 else ran.stderr


def allow(
    house: House,
    user: str,
    *operations: str,
    topic: str = TOPIC,
    kind: str = "TOPIC",
    permission: str = "ALLOW",
) -> list[admin_api.AclBinding]:
    bindings = [
        admin_api.AclBinding(
            admin_api.ResourceType[kind],
            topic,
            admin_api.ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            admin_api.AclOperation[operation],
            admin_api.AclPermissionType[permission],
        )
        for operation in operations
    ]
    for future in house.admin().create_acls(bindings).values():
        future.result(WAIT_S)
    return bindings


@contextmanager
def opened(directory: Path) -> Iterator[House]:
    """The broker is running, ana may read and write, bob may do nothing but be in a group."""
    house = House(directory)
    with house.broker:
        file = house.command_config(ROOT)
        for name, password in (ANA, BOB):
            house.users(
                *("add", name, "-b", house.bootstrap("SASL_SSL"), "--command-config", file),
                stdin=password,
            )
        new = admin_api.NewTopic(TOPIC, num_partitions=1, replication_factor=1)
        house.admin().create_topics([new])[TOPIC].result(WAIT_S)
        allow(house, ANA[0], "READ", "WRITE")
        for name, _ in (ANA, BOB):
            allow(house, name, "READ", topic=GROUP, kind="GROUP")
        yield house


def produce(settings: Mapping[str, Any], value: bytes, topic: str = TOPIC) -> KafkaError | None:
    """What the broker said of the record; None when it took it."""
    outcome: list[KafkaError | None] = []

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            outcome.append(error)

    producer = confluent_kafka.Producer(
        {**settings, "error_cb": failed, "message.timeout.ms": 3_000}
    )
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    while not outcome:
        producer.poll(WAIT_S)
    producer.purge()
    return outcome[0]


def consume(settings: Mapping[str, Any], value: bytes, topic: str = TOPIC) -> KafkaError | None:
    """Read until that value; the first error instead when there is one."""
    more = {"group.id": GROUP, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer({**settings, **more})
    try:
        consumer.subscribe([topic])
        for _ in range(1_000):
            message = consumer.poll(WAIT_S)
            assert message is not None, "nothing came"
            if message.error() is not None:
                return message.error()
            if message.value() == value:
                return None
    finally:
        consumer.close()
    raise AssertionError("it is not there")
