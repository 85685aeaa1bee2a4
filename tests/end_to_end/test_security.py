"""Clients that people use, against a broker that asks who they are and what they may do."""

import asyncio
import shutil
import ssl
import subprocess
import time
from typing import Any

import aiokafka
import confluent_kafka
import confluent_kafka.admin as admin_api
import kafka
import kafka.errors
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaError

from tests.end_to_end.secured import (
    ANA,
    BOB,
    GROUP,
    MECHANISMS,
    PROTOCOLS,
    ROOT,
    TOPIC,
    WAIT_S,
    House,
    allow,
    consume,
    produce,
)

MISTYPED = "anas passwort"
ACL = (
    "restype",
    "name",
    "resource_pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)

# --- librdkafka: confluent-kafka and kcat


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_confluent_writes_and_reads(house: House, protocol: str, mechanism: str) -> None:
    settings = house.settings(ANA, protocol, mechanism)
    value = f"{protocol} {mechanism}".encode()
    assert produce(settings, value) is None
    assert consume(settings, value) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", [("ana", MISTYPED), ("nobody", MISTYPED)])
def test_a_wrong_password(house: House, mechanism: str, user: tuple[str, str]) -> None:
    error = produce(house.settings(user, mechanism=mechanism), b"never")
    assert error is not None
    assert error.code() == KafkaError._AUTHENTICATION
    assert "wrong user or password" in error.str()
    told = f"login of {user[0]!r} with {mechanism} failed"
    until_s = time.monotonic() + 10
    lines: list[str] = []
    while not lines and time.monotonic() < until_s:  # The client may hear of it first.
        lines = [line for line in house.broker.log_path.read_text().splitlines() if told in line]
    assert lines
    assert all("127.0.0.1:" in line for line in lines)
    assert MISTYPED not in house.broker.log_path.read_text()


def test_a_client_of_event_hubs(house: House) -> None:
    """Proves SYS-17, of it Event Hubs: settings as Azure has them, but for the address. There the
    user is a fixed text, and the password the connection string."""
    name = "$ConnectionString"
    password = (
        "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=RootManageSharedAccessKey;"
        "SharedAccessKey=c2VjcmV0IGtleSwgMzIgYnl0ZXMgb2YgaXQuLi4uLi4="
    )
    file = house.command_config(ROOT)
    house.users(
        *("add", name, "-b", house.bootstrap("SASL_SSL"), "--command-config", file), stdin=password
    )
    allow(house, name, "READ", "WRITE")
    allow(house, name, "READ", topic=GROUP, kind="GROUP")
    settings = {
        "bootstrap.servers": house.bootstrap("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": name,
        "sasl.password": password,
        "ssl.ca.location": house.own.certificate,
    }
    assert produce(settings, b"an event") is None
    assert consume(settings, b"an event") is None
    refused = produce({**settings, "sasl.password": password[:-2]}, b"never")
    assert refused is not None
    assert refused.code() == KafkaError._AUTHENTICATION


@pytest.mark.slow
def test_no_password_at_all(house: House) -> None:
    plain = {"bootstrap.servers": house.bootstrap("SASL_PLAINTEXT")}
    error = produce(plain, b"never")
    assert error is not None
    assert error.code() in (KafkaError._TRANSPORT, KafkaError._MSG_TIMED_OUT)


def test_a_denial_reads_as_kafkas(house: House) -> None:
    settings = house.settings(BOB)
    error = produce(settings, b"never")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    error = consume(settings, b"never")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    names = admin_api.AdminClient(settings).list_topics(timeout=WAIT_S).topics
    assert TOPIC not in names
    future = house.admin(BOB).create_topics([admin_api.NewTopic("bobs", 1, 1)])["bobs"]
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_one_may_read_and_not_write(house: House) -> None:
    allow(house, BOB[0], "READ")
    assert produce(house.settings(ANA), b"for bob") is None
    assert consume(house.settings(BOB), b"for bob") is None
    error = produce(house.settings(BOB), b"from bob")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    bindings = allow(house, BOB[0], "READ", permission="DENY")
    error = consume(house.settings(BOB), b"for bob")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    filters = [admin_api.AclBindingFilter(*(getattr(b, name) for name in ACL)) for b in bindings]
    for future in house.admin().delete_acls(filters).values():
        assert len(future.result(WAIT_S)) == 1
    assert consume(house.settings(BOB), b"for bob") is None


def kcat(house: House, user: tuple[str, str], *arguments: str, stdin: str = "", **how: str) -> str:
    settings = house.settings(user, **how)
    options = [f"-X{name}={value}" for name, value in settings.items()]
    ran = subprocess.run(
        ["kcat", *options, *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    return ran.stdout + ran.stderr


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kcat(house: House, protocol: str, mechanism: str) -> None:
    how = {"protocol": protocol, "mechanism": mechanism}
    line = f"kcat {protocol} {mechanism}"
    kcat(house, ANA, "-P", "-t", TOPIC, "-p", "0", stdin=f"{line}\n", **how)
    said = kcat(house, ANA, "-C", "-e", "-q", "-t", TOPIC, "-p", "0", "-o", "beginning", **how)
    assert line in said.splitlines()
    denied = kcat(house, BOB, "-P", "-t", "other", "-p", "0", stdin="x\n", **how)
    assert "Topic authorization failed" in denied
    wrong = kcat(house, ("ana", "wrong"), "-L", "-m", "1", **how)
    assert "wrong user or password" in wrong


# --- the Python clients

SOME = [(PROTOCOLS[0], MECHANISMS[0]), (PROTOCOLS[1], MECHANISMS[1]), (PROTOCOLS[0], MECHANISMS[2])]


@pytest.mark.parametrize(("protocol", "mechanism"), SOME)
def test_kafka_python(house: House, protocol: str, mechanism: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": house.bootstrap(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
        "sasl_plain_username": ANA[0],
        "sasl_plain_password": ANA[1],
        "ssl_cafile": house.own.certificate,
    }
    value = f"kafka-python {protocol} {mechanism}".encode()
    producer = kafka.KafkaProducer(**settings)
    producer.send(TOPIC, value).get(WAIT_S)
    with pytest.raises(kafka.errors.TopicAuthorizationFailedError):
        producer.send("other", value).get(WAIT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(**settings)
    consumer.assign([kafka.TopicPartition(TOPIC, 0)])
    consumer.seek_to_beginning()
    assert any(message.value == value for message in consumer)
    consumer.close()


def test_kafka_python_with_a_wrong_password(house: House) -> None:
    with pytest.raises(kafka.errors.KafkaError):  # It tries for a while, and then says so.
        kafka.KafkaProducer(
            bootstrap_servers=house.bootstrap("SASL_PLAINTEXT"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username=ANA[0],
            sasl_plain_password="wrong",
            bootstrap_timeout_ms=2_000,
        )


@pytest.mark.parametrize(("protocol", "mechanism"), SOME)
def test_aiokafka(house: House, protocol: str, mechanism: str) -> None:
    def settings(password: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": house.bootstrap(protocol),
            "security_protocol": protocol,
            "sasl_mechanism": mechanism,
            "sasl_plain_username": ANA[0],
            "sasl_plain_password": password,
            "ssl_context": ssl.create_default_context(cafile=house.own.certificate),
        }

    async def body() -> None:
        value = f"aiokafka {protocol} {mechanism}".encode()
        async with aiokafka.AIOKafkaProducer(**settings(ANA[1])) as producer:
            await producer.send_and_wait(TOPIC, value)
        async with aiokafka.AIOKafkaConsumer(**settings(ANA[1])) as consumer:
            consumer.assign([aiokafka.TopicPartition(TOPIC, 0)])
            await consumer.seek_to_beginning()
            async with asyncio.timeout(WAIT_S):
                async for message in consumer:
                    if message.value == value:
                        break
        producer = aiokafka.AIOKafkaProducer(**settings("wrong"))
        with pytest.raises(AiokafkaError):
            await producer.start()
        await producer.stop()

    asyncio.run(body())
