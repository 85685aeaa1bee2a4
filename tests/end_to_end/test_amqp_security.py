"""Users, permissions and certificates, for clients of RabbitMQ."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pika
import pytest
from click.testing import CliRunner
from pika.credentials import ExternalCredentials
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from entrepot.cli import main
from entrepot.testing import Broker
from tests import certificates
from tests.certificates import Certificate


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("own"), "own", subject="/CN=node")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, own: Certificate) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp("guarded")
    for name in ("root", "ana"):
        arguments = ["users", "add", name, "--password-stdin", "--data-dir", f"{directory}/data"]
        result = CliRunner().invoke(main, arguments, input=f"{name}'s password\n")
        assert result.exit_code == 0, result.output
    settings = {
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root", "User:CN=client"],
        "ports.amqp_tls": 0,
        "ports.http": 0,
        "tls.certificate": own.certificate,
        "tls.key": own.key,
        "tls.client_ca": own.certificate,
    }
    with Broker(directory / "data", settings=settings) as started:
        yield started


def connect(server: Broker, user: str, password: str) -> pika.BlockingConnection:
    host, port = server.endpoints["amqp"]
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters(host, port, credentials=credentials))


def test_a_super_user(guarded: Broker) -> None:
    with connect(guarded, "root", "root's password") as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.basic_publish("", "work", b"x", pika.BasicProperties(user_id="root"))
        channel.basic_publish("", "work", b"x", pika.BasicProperties(user_id="ana"))
        with pytest.raises(ChannelClosedByBroker, match="but authenticated user was 'root'"):
            channel.queue_declare("work", passive=True)


def test_an_address_with_user_password_and_virtual_host(guarded: Broker) -> None:
    """Proves SYS-3: as hosting companies give it to their customers."""
    for arguments in (
        ["add_vhost", "tenant"],
        ["set_permissions", "-p", "tenant", "ana", "^jobs", "^jobs|^amq[.]default$", "^jobs"],
    ):
        runner = CliRunner(env={"ENTREPOT_HTTP": guarded.http_address})
        command = ["rabbitmqctl", *arguments, "--user", "root", "--password-stdin"]
        result = runner.invoke(main, command, input="root's password\n")
        assert result.exit_code == 0, result.output
    host, port = guarded.endpoints["amqp"]
    login = "ana:" + quote("ana's password")
    parameters = pika.URLParameters(f"amqp://{login}@{host}:{port}/tenant")
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("jobs")
        channel.basic_publish("", "jobs", b"mine")
        assert channel.basic_get("jobs", auto_ack=True)[2] == b"mine"
        with pytest.raises(ChannelClosedByBroker, match="ACCESS_REFUSED"):
            channel.queue_declare("others")
    with connect(guarded, "root", "root's password") as connection:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare("jobs", passive=True)


def test_one_without_permissions_does_not_come_in(guarded: Broker) -> None:
    with pytest.raises((ProbableAccessDeniedError, AMQPConnectionError), match="refused for user"):
        connect(guarded, "ana", "ana's password")


@pytest.mark.parametrize(("user", "password"), [("guest", "guest"), ("root", "guess")])
def test_who_is_not_known(guarded: Broker, user: str, password: str) -> None:
    with pytest.raises(ProbableAuthenticationError):
        connect(guarded, user, password)


def test_a_certificate(guarded: Broker, own: Certificate, tmp_path: Path) -> None:
    client = certificates.make(tmp_path, "client", subject="/CN=client", signer=own)
    host, port = guarded.endpoints["amqp_tls"]
    context = ssl.create_default_context(cafile=own.certificate)
    context.load_cert_chain(client.certificate, client.key)
    parameters = pika.ConnectionParameters(
        host,
        port,
        credentials=ExternalCredentials(),
        ssl_options=pika.SSLOptions(context, "localhost"),
    )
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("tls", durable=True)
        channel.basic_publish("", "tls", bytes(300_000), mandatory=True)
        method, _, body = channel.basic_get("tls")
        assert (method.redelivered, len(body)) == (False, 300_000)
