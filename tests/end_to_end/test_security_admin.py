"""Administering a broker that asks who its clients are: ACLs, users, quotas, TLS, commands."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin as admin_api
import pytest
from confluent_kafka import KafkaError
from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from entrepot.client.client import Client
from entrepot.client.sasl import Credentials
from entrepot.net.sockets import SocketNet
from entrepot.testing import Broker
from tests import certificates
from tests.certificates import Certificate
from tests.end_to_end.secured import (
    ANA,
    MECHANISMS,
    PROTOCOLS,
    ROOT,
    TOPIC,
    WAIT_S,
    House,
    allow,
    command,
    consume,
    process,
    produce,
)

# --- administration


def test_acls_through_the_admin_client(house: House) -> None:
    admin = house.admin()
    (binding,) = allow(house, "eve", "READ", topic="eves")
    everything = admin_api.AclBindingFilter(
        admin_api.ResourceType.TOPIC,
        "eves",
        admin_api.ResourcePatternType.MATCH,
        None,
        None,
        admin_api.AclOperation.ANY,
        admin_api.AclPermissionType.ANY,
    )
    assert admin.describe_acls(everything).result(WAIT_S) == [binding]
    (future,) = admin.delete_acls([everything]).values()
    assert future.result(WAIT_S) == [binding]
    assert admin.describe_acls(everything).result(WAIT_S) == []
    (denied,) = house.admin(ANA).create_acls([binding]).values()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        denied.result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_users_through_the_admin_client(house: House) -> None:
    admin = house.admin()
    info = admin_api.ScramCredentialInfo(admin_api.ScramMechanism.SCRAM_SHA_256, 5_000)
    put = admin_api.UserScramCredentialUpsertion("eve", info, b"eve's password")
    admin.alter_user_scram_credentials([put])["eve"].result(WAIT_S)
    described = admin.describe_user_scram_credentials(["eve"])["eve"].result(WAIT_S)
    (found,) = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (info.mechanism, 5_000)
    eve = ("eve", "eve's password")
    for mechanism in ("SCRAM-SHA-256", "PLAIN"):
        settings = house.settings(eve, mechanism=mechanism)
        assert admin_api.AdminClient(settings).list_topics(timeout=WAIT_S).brokers
    error = produce(house.settings(eve, mechanism="SCRAM-SHA-512"), b"never")
    assert error is not None
    assert error.code() == KafkaError._AUTHENTICATION
    drop = admin_api.UserScramCredentialDeletion("eve", admin_api.ScramMechanism.SCRAM_SHA_256)
    admin.alter_user_scram_credentials([drop])["eve"].result(WAIT_S)
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        admin.describe_user_scram_credentials(["eve"])["eve"].result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.RESOURCE_NOT_FOUND


def test_what_one_may_do_is_told(house: House) -> None:
    def operations(user: tuple[str, str]) -> set[str]:
        topics = confluent_kafka.TopicCollection([TOPIC])
        described = house.admin(user).describe_topics(topics, include_authorized_operations=True)
        return {each.name for each in described[TOPIC].result(WAIT_S).authorized_operations}

    assert operations(ANA) == {"READ", "WRITE", "DESCRIBE"}
    assert operations(ROOT) >= {"READ", "WRITE", "ALTER", "DELETE", "ALTER_CONFIGS"}
    cluster = house.admin().describe_cluster(include_authorized_operations=True).result(WAIT_S)
    assert {each.name for each in cluster.authorized_operations} >= {"ALTER", "CLUSTER_ACTION"}


def test_elections_are_not_needed(house: House) -> None:
    part = confluent_kafka.TopicPartition(TOPIC, 0)
    future = house.admin().elect_leaders(confluent_kafka.ElectionType.PREFERRED, [part])
    (error,) = future.result(WAIT_S).values()
    assert error.code() == KafkaError.ELECTION_NOT_NEEDED


def test_a_quota_is_felt(house: House) -> None:
    async def limit(rate: float | None) -> None:
        entry = EntryData(
            entity=(EntityData(entity_type="client-id", entity_name="greedy"),),
            ops=(OpData(key="producer_byte_rate", value=f64(rate or 0.0), remove=rate is None),),
        )
        request = AlterClientQuotasRequest(entries=(entry,), validate_only=False)
        credentials = Credentials(*ROOT)
        bootstrap = house.bootstrap("SASL_PLAINTEXT")
        async with Client(SocketNet(), bootstrap, credentials=credentials) as client:
            answer = await client.cluster.ask_controller(request, AlterClientQuotasResponse)
            assert answer.entries[0].error_code is ErrorCode.none

    asyncio.run(limit(10_000.0))
    waits: list[float] = []
    settings = house.settings(ANA) | {
        "client.id": "greedy",
        "linger.ms": 0,
        "batch.num.messages": 1,
        "throttle_cb": lambda event: waits.append(event.throttle_time),
    }
    producer = confluent_kafka.Producer(settings)
    for _ in range(12):
        producer.produce(TOPIC, bytes(10_000), partition=0)
        producer.poll(0.01)
    assert producer.flush(WAIT_S) == 0
    producer.poll(0.1)
    assert max(waits) > 0.5
    asyncio.run(limit(None))


# --- TLS without SASL


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("ca"), "ca", subject="/CN=authority")


@pytest.mark.slow
def test_a_certificate_for_a_name(ca: Certificate, tmp_path: Path) -> None:
    node = certificates.make(tmp_path, "node", subject="/CN=node", signer=ca)
    mine = certificates.make(tmp_path, "mine", subject="/O=Acme/CN=ana", signer=ca)
    yours = certificates.make(tmp_path, "yours", subject="/O=Acme/CN=bob", signer=ca)
    settings = {
        "security.authorization": True,
        "security.super_users": ["User:CN=ana,O=Acme"],
        "ports.kafka_tls": 0,
        "tls.certificate": node.certificate,
        "tls.key": node.key,
        "tls.client_ca": ca.certificate,
    }

    def client(shown: Certificate | None) -> dict[str, Any]:
        host, port = broker.endpoints["kafka_tls"]
        settings = {
            "bootstrap.servers": f"{host}:{port}",
            "security.protocol": "SSL",
            "ssl.ca.location": ca.certificate,
        }
        if shown is not None:
            settings["ssl.certificate.location"] = shown.certificate
            settings["ssl.key.location"] = shown.key
        return settings

    with Broker(tmp_path / "data", settings=settings) as broker:
        assert produce(client(mine), b"x", "t") is None
        denied = produce(client(yours), b"x", "t")
        assert denied is not None
        assert denied.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert produce(client(None), b"x", "t") is not None
        plain = produce({"bootstrap.servers": broker.bootstrap}, b"x", "t")
        assert plain is not None
        assert plain.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.slow
def test_the_wrong_port_harms_nobody(house: House) -> None:
    for wrong in (
        {"security.protocol": "SASL_PLAINTEXT", "bootstrap.servers": house.bootstrap("SASL_SSL")},
        {"security.protocol": "SASL_SSL", "bootstrap.servers": house.bootstrap("SASL_PLAINTEXT")},
    ):
        assert produce(house.settings(ANA) | wrong, b"never") is not None
    for protocol in PROTOCOLS:
        host, port = house.bootstrap(protocol).split(":")
        with socket.create_connection((host, int(port)), timeout=WAIT_S) as raw:
            raw.sendall(b"\x00\x01\x00\x01" + bytes(70_000))
            raw.settimeout(WAIT_S)
            assert not b"".join(iter(lambda raw=raw: _received(raw), b"")).strip(b"\x00")[100:]
        value = f"after garbage {protocol}".encode()
        assert produce(house.settings(ANA, protocol), value) is None
        assert consume(house.settings(ANA, protocol), value) is None


def _received(raw: socket.socket) -> bytes:
    try:
        return raw.recv(65_536)
    except ConnectionError:
        return b""


# --- the command line


def test_the_command_line_logs_in(house: House) -> None:
    for protocol in PROTOCOLS:
        where = ("-b", house.bootstrap(protocol), "--command-config")
        file = house.command_config(ANA, protocol)
        assert command("topics", "list", *where, file) == f"{TOPIC}\n"
        process("produce", TOPIC, *where, file, stdin=f"typed {protocol}\n")
        assert f"typed {protocol}" in command("consume", TOPIC, *where, file)
        denied = process("produce", "other", *where, file, stdin="x\n", code=1)
        assert "TOPIC_AUTHORIZATION_FAILED" in denied
    where = ("-b", house.bootstrap("SASL_PLAINTEXT"), "--user", ANA[0], "--password-stdin")
    assert command("topics", "list", *where, stdin=f"{ANA[1]}\n") == f"{TOPIC}\n"
    wrong = command("topics", "list", *where, stdin="wrong\n", code=1)
    assert "wrong user or password (SASL_AUTHENTICATION_FAILED)" in wrong


def test_kafkas_tools_log_in(house: House) -> None:
    where = ("--bootstrap-server", house.bootstrap("SASL_SSL"))
    file = ("--command-config", house.command_config(ANA))
    assert TOPIC in command("kafka-topics", *where, *file, "--list").splitlines()
    process("kafka-console-producer", *where, *file, "--topic", TOPIC, stdin="as in the lecture\n")
    said = command(
        *("kafka-console-consumer", *where, *file, "--topic", TOPIC, "--from-beginning"),
        *("--timeout-ms", "1000"),
    )
    assert "as in the lecture" in said


def test_users_come_change_and_go(house: House) -> None:
    where = ("-b", house.bootstrap("SASL_SSL"), "--command-config", house.command_config(ROOT))
    assert house.users("add", "carl", *where, stdin="one") == "added carl\n"
    again = command("users", "add", "carl", *where, "--password-stdin", stdin="two\n", code=1)
    assert "there is a user carl already" in again
    listed = command("users", "list", *where).splitlines()
    assert ["carl", "SCRAM-SHA-256", "SCRAM-SHA-512"] in [line.split() for line in listed]
    for mechanism in MECHANISMS:
        assert house.admin(("carl", "one")).list_topics(timeout=WAIT_S).brokers, mechanism
    changed = house.users("passwd", "carl", *where, stdin="two")
    assert changed == "changed the password of carl\n"
    for mechanism in MECHANISMS:
        settings = house.settings(("carl", "two"), mechanism=mechanism)
        assert admin_api.AdminClient(settings).list_topics(timeout=WAIT_S).brokers
        error = produce(house.settings(("carl", "one"), mechanism=mechanism), b"never")
        assert error is not None
        assert error.code() == KafkaError._AUTHENTICATION
    assert command("users", "delete", "carl", *where) == "deleted carl\n"
    assert "there is no user carl" in command("users", "delete", "carl", *where, code=1)
    error = produce(house.settings(("carl", "two")), b"never")
    assert error is not None
    assert error.code() == KafkaError._AUTHENTICATION


def test_users_of_a_stopped_broker(tmp_path: Path) -> None:
    directory = str(tmp_path / "data")
    here = ("--data-dir", directory)
    assert command("users", "list", *here) == ""
    command("users", "add", "ana", *here, "--password-stdin", stdin="one\n")
    command("users", "passwd", "ana", *here, "--password-stdin", stdin="two\n")
    assert command("users", "list", *here, "--json") == (
        '{"name": "ana", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}\n'
    )
    empty = command("users", "add", "bob", *here, "--password-stdin", stdin="\n", code=1)
    assert "the password is empty" in empty
    with Broker(directory, settings={"security.authentication": "sasl"}) as broker:
        taken = command("users", "list", *here, code=1)
        assert "a broker is using it" in taken
        where = ("-b", broker.bootstrap, "--user", "ana", "--password-stdin")
        assert command("topics", "list", *where, stdin="two\n") == ""
        assert "wrong user" in command("topics", "list", *where, stdin="one\n", code=1)
    assert command("users", "delete", "ana", *here) == "deleted ana\n"
    assert command("users", "list", *here) == ""


def test_open_to_other_machines_only_when_said_so(tmp_path: Path) -> None:
    said = process("serve", "--host", "0.0.0.0", "--data-dir", str(tmp_path), code=1)
    (line,) = said.splitlines()
    assert "whoever reaches the port could read, write and delete everything" in line
    assert "--insecure" in line
    properties = tmp_path / "server.properties"
    properties.write_text(f"listeners=PLAINTEXT://:0\nlog.dirs={tmp_path}/data\n")
    assert "--insecure" in process("kafka-server-start", str(properties), code=1)
