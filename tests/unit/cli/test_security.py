"""Who the command line says it is: Kafka's client properties, options, and passwords."""

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from entrepot.cli.security import chosen_security, read_password, security_options
from entrepot.client.sasl import Credentials
from entrepot.net.sockets import SocketNet
from entrepot.net.tls import TlsNet
from tests import certificates

JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    r'username="ana" password="a \"quoted\" one";'
)


def login(**properties: str) -> Credentials | None:
    named = {name.replace("_", "."): value for name, value in properties.items()}
    return chosen_security(named)[1]


def run(*arguments: str, stdin: str = "") -> Result:
    @click.command()
    @security_options
    def command() -> None:
        net, credentials = chosen_security(None)
        click.echo(f"{type(net).__name__} {credentials and credentials.password}")
        click.echo(credentials)

    return CliRunner().invoke(command, arguments, input=stdin)


def test_nobody_unless_asked() -> None:
    net, credentials = chosen_security(None)
    assert type(net) is SocketNet
    assert credentials is None
    assert login(security_protocol="PLAINTEXT", sasl_username="ana") is None


def test_properties_in_both_spellings() -> None:
    java = login(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=JAAS
    )
    assert java == Credentials("ana", 'a "quoted" one', "SCRAM-SHA-256")
    librdkafka = login(
        security_protocol="sasl_plaintext",
        sasl_mechanisms="PLAIN",
        sasl_username="ana",
        sasl_password="secret",
    )
    assert librdkafka == Credentials("ana", "secret", "PLAIN")
    assert "secret" not in repr(librdkafka)


@pytest.mark.parametrize(
    ("properties", "problem"),
    [
        ({"security_protocol": "SASL"}, "security.protocol is one of"),
        ({"security_protocol": "SASL_PLAINTEXT"}, "no user"),
        (
            {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI"},
            "sasl.mechanism is one of",
        ),
        (
            {
                "security_protocol": "SSL",
                "ssl_truststore_location": "x.jks",
                "ssl_truststore_type": "JKS",
            },
            "PEM is read",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "nosuch.pem"}, "ssl: No such file"),
    ],
)
def test_what_cannot_be(properties: dict[str, Any], problem: str) -> None:
    with pytest.raises(click.ClickException) as caught:
        login(**properties)
    assert problem in caught.value.message


def test_tls(tmp_path: Path) -> None:
    own = certificates.make(tmp_path, "own", subject="/CN=node")
    net, credentials = chosen_security(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": own.certificate,
            "ssl.certificate.location": own.certificate,
            "ssl.key.location": own.key,
        }
    )
    assert isinstance(net, TlsNet)
    assert net._client is not None
    assert net._client.check_hostname
    assert credentials is None
    careless, _ = chosen_security(
        {
            "security.protocol": "SSL",
            "ssl.ca.location": own.certificate,
            "ssl.endpoint.identification.algorithm": "",
        }
    )
    assert isinstance(careless, TlsNet)
    assert careless._client is not None
    assert not careless._client.check_hostname


def test_a_name_and_a_password_on_the_command_line() -> None:
    typed = run("--user", "ana", stdin="typed\n")
    assert "SocketNet typed" in typed.stdout
    assert "Password of ana" in typed.stderr
    piped = run("--user", "ana", "--password-stdin", stdin="piped\n")
    assert "SocketNet piped" in piped.stdout
    assert piped.stderr == ""
    assert "piped" not in piped.stdout.splitlines()[1], "credentials do not print passwords"
    empty = run("--user", "ana", "--password-stdin", stdin="\n")
    assert (empty.exit_code, empty.stderr) == (1, "Error: the password is empty\n")


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("security.protocol=SASL_PLAINTEXT\nsasl.username=ana\nsasl.password=kept\n")
    assert "SocketNet kept" in run("--command-config", str(path)).stdout
    named = run("--command-config", str(path), "--user", "bob", "--password-stdin", stdin="x\n")
    assert "user='bob'" in named.stdout
    missing = run("--command-config", str(tmp_path / "nosuch"))
    assert missing.exit_code == 1
    assert "cannot be read" in missing.stderr


def test_a_new_password_is_typed_twice() -> None:
    @click.command()
    @security_options
    def command() -> None:
        click.echo(read_password("New", is_new=True))

    assert CliRunner().invoke(command, [], input="one\none\n").stdout == "one\n"
    twice = CliRunner().invoke(command, [], input="one\ntwo\nthree\nthree\n")
    assert twice.stdout == "three\n"
