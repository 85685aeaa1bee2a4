"""Users, rights and certificates, for clients of MQTT."""

import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka.admin as admin_api
import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.core.scram import Mechanism
from entrepot.testing import Broker
from entrepot.wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Subscribe,
    Subscription,
    Will,
)
from entrepot.wire.mqtt.properties import Properties
from entrepot.wire.mqtt.reasons import Reason
from entrepot.wire.sasl import ScramClient
from tests import certificates
from tests.certificates import Certificate
from tests.end_to_end.mqtt_peers import Client, Raw

ROOT, ANA = ("root", "root's password"), ("ana", "ana's password")
WAIT_S = 30
SCRAM = "SCRAM-SHA-256"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("own"), "own", subject="/CN=node")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, own: Certificate) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("guarded")
    for name, password in (ROOT, ANA):
        arguments = ["users", "add", name, "--password-stdin", "--data-dir", f"{directory}/data"]
        result = CliRunner().invoke(main, arguments, input=f"{password}\n")
        assert result.exit_code == 0, result.output
    settings = {
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root", "User:CN=client"],
        "ports.mqtt_tls": 0,
        "tls.certificate": own.certificate,
        "tls.key": own.key,
        "tls.client_ca": own.certificate,
    }
    with Broker(directory / "data", settings=settings) as started:
        for operation in ("READ", "WRITE"):
            allow(started, operation, "sensors.")
        allow(started, "READ", "sensors.secret", "LITERAL", "DENY")
        yield started


def allow(
    started: Broker, operation: str, name: str, kind: str = "PREFIXED", permission: str = "ALLOW"
) -> None:
    """Give ana a right, as Kafka's administrators do."""
    settings = {
        "bootstrap.servers": started.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": ROOT[0],
        "sasl.password": ROOT[1],
    }
    binding = admin_api.AclBinding(
        admin_api.ResourceType.TOPIC,
        name,
        admin_api.ResourcePatternType[kind],
        "User:ana",
        "*",
        admin_api.AclOperation[operation],
        admin_api.AclPermissionType[permission],
    )
    admin = admin_api.AdminClient(settings)
    for future in admin.create_acls([binding]).values():
        future.result(WAIT_S)


@pytest.mark.parametrize("version", ["3.1", "3.1.1", "5"])
def test_a_password(guarded: Broker, version: str) -> None:
    with Client(guarded.mqtt_address, f"p{version}", version, user=ROOT) as client:
        assert client.connected == 0
        client.subscribe("any/thing", qos=1)
        client.publish("any/thing", b"x", 1)
        assert client.wait_for(1) == [b"x"]


@pytest.mark.parametrize(
    "user", [("root", b"wrong"), ("nobody", b"x"), ("root", b""), ("root", None)]
)
def test_who_is_not_known(guarded: Broker, user: tuple[str, bytes | None]) -> None:
    with Raw(guarded.mqtt_address) as raw:
        answer = raw.connect("x", user=user[0], password=user[1])
        assert answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD
        assert raw.ends() == []
    with Raw(guarded.mqtt_address, 4) as raw:
        answer = raw.connect("x", user=user[0], password=user[1])
        assert answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD


def test_who_does_not_say_who_they_are(guarded: Broker) -> None:
    for version in (3, 4, 5):
        with Raw(guarded.mqtt_address, version) as raw:
            assert raw.connect("x").reason is Reason.NOT_AUTHORIZED


def test_rights_to_topics(guarded: Broker) -> None:
    with (
        Client(guarded.mqtt_address, "ana", user=ANA) as ana,
        Client(guarded.mqtt_address, "root", user=ROOT) as root,
    ):
        assert ana.subscribe("sensors/#", "other/#", "#", "sensors/+/heat", qos=1) == [
            1,
            0x87,
            0x87,
            1,
        ]
        assert ana.publish("other/x", b"denied", 1) == 0x87
        assert root.publish("sensors/secret", b"not for ana", 1) in (0, 0x10)
        assert root.publish("other/x", b"not for ana", 1) == 0x10
        assert ana.publish("sensors/7/heat", b"21", 1) == 0
        assert root.publish("sensors/8/heat", b"22", 1) == 0
        assert ana.wait_for(2) == [b"21", b"22"]
        root.subscribe("other/#", qos=1)
        ana.publish("other/y", b"dropped", 0)
        assert ana.publish("sensors/end", b"end", 1) == 0
        ana.wait_for(3)
        assert not root.got


def test_a_denied_message_before_version_5_ends_the_connection(guarded: Broker) -> None:
    with Raw(guarded.mqtt_address, 4) as raw:
        raw.connect("ana-3", user=ANA[0], password=ANA[1].encode())
        raw.publish("other/x", b"x", 1, 1)
        assert raw.ends() == []


def test_a_denied_filter_before_version_5(guarded: Broker) -> None:
    with Raw(guarded.mqtt_address, 4) as raw:
        raw.connect("ana-4", user=ANA[0], password=ANA[1].encode())
        raw.send(Subscribe(1, (Subscription("sensors/#", 2), Subscription("other", 0))))
        answer: Any = raw.read()
        assert [int(each) for each in answer.reasons] == [2, 0x80]


def test_a_will_is_published_by_rights(guarded: Broker) -> None:
    with Raw(guarded.mqtt_address) as raw:
        login = {"user": ANA[0], "password": ANA[1].encode()}
        assert raw.connect("w", will=Will("other", b"x"), **login).reason is Reason.NOT_AUTHORIZED
    with Raw(guarded.mqtt_address) as raw:
        assert raw.connect("w", will=Will("sensors/w", b"x"), **login).reason is Reason.SUCCESS


def scram(raw: Raw, mechanism: Mechanism, user: str, password: str) -> Connack:
    client = ScramClient(mechanism, user, password, "nonce")
    method = mechanism.value
    given = Properties(authentication_method=method, authentication_data=client.first())
    raw.send(Connect(5, f"scram-{method}", properties=given))
    challenge = raw.read()
    assert isinstance(challenge, Auth)
    assert challenge.reason is Reason.CONTINUE_AUTHENTICATION
    data = client.answer(challenge.properties.authentication_data or b"")
    given = Properties(authentication_method=method, authentication_data=data)
    raw.send(Auth(Reason.CONTINUE_AUTHENTICATION, given))
    answer = raw.read()
    assert isinstance(answer, Connack)
    if answer.reason is Reason.SUCCESS:
        assert answer.properties.authentication_method == method
        client.check(answer.properties.authentication_data or b"")
    return answer


@pytest.mark.parametrize("mechanism", [*Mechanism])
def test_scram(guarded: Broker, mechanism: Mechanism) -> None:
    with Raw(guarded.mqtt_address) as raw:
        assert scram(raw, mechanism, *ANA).reason is Reason.SUCCESS
        raw.publish("sensors/scram", b"x", 1, 1)
        raw.read()
    for user in ((ANA[0], "wrong"), ("nobody", "x")):
        with Raw(guarded.mqtt_address) as raw:
            assert scram(raw, mechanism, *user).reason is Reason.BAD_USER_NAME_OR_PASSWORD
            assert raw.ends() == []


def again(raw: Raw, user: str, password: str, method: str = SCRAM) -> Auth | Disconnect:
    """Authenticate once more; return the last answer."""
    client = ScramClient(Mechanism.SHA_256, user, password, "nonce")
    given = Properties(authentication_method=method, authentication_data=client.first())
    raw.send(Auth(Reason.REAUTHENTICATE, given))
    challenge = raw.read()
    if isinstance(challenge, Auth):
        assert challenge.reason is Reason.CONTINUE_AUTHENTICATION
        raw.publish("sensors/meanwhile", b"x", 1, 2)  # The connection goes on.
        raw.read()
        data = client.answer(challenge.properties.authentication_data or b"")
        raw.send(Auth(Reason.CONTINUE_AUTHENTICATION, replace(given, authentication_data=data)))
        challenge = raw.read()
    if isinstance(challenge, Auth):
        client.check(challenge.properties.authentication_data or b"")
    assert isinstance(challenge, (Auth, Disconnect))
    return challenge


def test_authenticating_again(guarded: Broker) -> None:
    def connected(raw: Raw) -> Raw:
        assert scram(raw, Mechanism.SHA_256, *ANA).reason is Reason.SUCCESS
        return raw

    with Raw(guarded.mqtt_address) as raw:
        connected(raw)
        for _ in range(2):
            assert again(raw, *ANA).reason is Reason.SUCCESS
        raw.publish("sensors/after", b"x", 1, 3)
        raw.read()
        raw.send(Auth(Reason.CONTINUE_AUTHENTICATION, Properties(authentication_method=SCRAM)))
        assert raw.read().reason is Reason.PROTOCOL_ERROR
    for user, method, reason in (
        ((ANA[0], "wrong"), SCRAM, Reason.NOT_AUTHORIZED),
        (ROOT, SCRAM, Reason.NOT_AUTHORIZED),
        (ANA, "SCRAM-SHA-512", Reason.PROTOCOL_ERROR),
    ):
        with Raw(guarded.mqtt_address) as raw:
            assert again(connected(raw), *user, method).reason is reason
            assert raw.ends() == []
    with Raw(guarded.mqtt_address) as raw:  # Who connected with a password.
        raw.connect("plain", user=ANA[0], password=ANA[1].encode())
        assert again(raw, *ANA).reason is Reason.PROTOCOL_ERROR


def test_broken_scram(guarded: Broker) -> None:
    for data in (None, b"", b"\xff", b"n,,r=x", b"p=tls,,n=a,r=b"):
        with Raw(guarded.mqtt_address) as raw:
            given = Properties(authentication_method="SCRAM-SHA-256", authentication_data=data)
            raw.send(Connect(5, "x", properties=given))
            answer = raw.read()
            assert isinstance(answer, Connack)
            assert answer.reason is Reason.BAD_USER_NAME_OR_PASSWORD
    with Raw(guarded.mqtt_address) as raw:
        given = Properties(authentication_method="KERBEROS")
        assert raw.connect("x", properties=given).reason is Reason.BAD_AUTHENTICATION_METHOD
    with Raw(guarded.mqtt_address) as raw:
        client = ScramClient(Mechanism.SHA_256, *ANA, "nonce")
        given = Properties(
            authentication_method="SCRAM-SHA-256", authentication_data=client.first()
        )
        raw.send(Connect(5, "x", properties=given))
        assert isinstance(raw.read(), Auth)
        raw.publish("sensors/early", b"x")
        answer = raw.read()
        assert isinstance(answer, Connack)
        assert answer.reason is Reason.PROTOCOL_ERROR


def test_tls_and_a_certificate(guarded: Broker, own: Certificate, tmp_path: Path) -> None:
    made = certificates.make(tmp_path, "client", subject="/CN=client", signer=own)
    client = Client(guarded.endpoints["mqtt_tls"], "tls")
    context = ssl.create_default_context(cafile=own.certificate)
    context.load_cert_chain(made.certificate, made.key)
    client.paho.tls_set_context(context)
    with client:
        assert client.connected == 0
        client.subscribe("tls", qos=2)
        client.publish("tls", bytes(300_000), 2)
        assert client.wait_for(1) == [bytes(300_000)]


def test_rights_by_the_name_of_user_and_client(guarded: Broker) -> None:
    """Names that a client chooses for itself open nothing else."""
    for operation in ("READ", "WRITE"):
        allow(guarded, operation, "own.%u.%c.")
    with Client(guarded.mqtt_address, "lamp", user=ANA) as lamp:
        assert lamp.subscribe("own/ana/lamp/#", qos=1) == [1]
        assert lamp.publish("own/ana/lamp/state", b"on", 1) == 0
        assert lamp.wait_for(1) == [b"on"]
        assert lamp.publish("own/ana/stove/state", b"on", 1) == 0x87
        filters = "own/ana/stove/#", "own/ana/+/state", "own/#", "own/%u/%c/#"
        assert lamp.subscribe(*filters, qos=1) == [0x87] * 4
    for hostile in ("+", "#", "a/b", "lamp/#"):
        with Client(guarded.mqtt_address, hostile, user=ANA) as client:
            filters = f"own/ana/{hostile}/#" if hostile not in ("#", "lamp/#") else "own/ana/#"
            assert client.subscribe(filters, qos=1) == [0x87]
            assert client.publish("own/ana/lamp/state", b"off", 1) == 0x87
