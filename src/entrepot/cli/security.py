"""How the command line says who it is: a file of Kafka's client properties, or a name.

A password is never an argument, where every process of the machine could read it: it
is in the file, on standard input, or typed.
"""

import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.properties import parse
from entrepot.config import ConfigError, read_text

if TYPE_CHECKING:
    from entrepot.client.sasl import Credentials
    from entrepot.net.sockets import SocketNet

_Command = TypeVar("_Command", bound=Callable[..., Any])

# What we read of a file of client properties, as Kafka's clients and librdkafka name it.
SECURITY_PROPERTIES = (
    "security.protocol",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    context.meta[f"{__name__}.{parameter.name}"] = value


def command_config_option(command: _Command) -> _Command:
    return click.option(
        "--command-config",
        metavar="FILE",
        envvar="ENTREPOT_COMMAND_CONFIG",
        expose_value=False,
        callback=_remember,
        help="Kafka's client properties: security.protocol, sasl.*, ssl.* with PEM files.",
    )(command)


def security_options(command: _Command) -> _Command:
    """Options that no command need know of: `connection_security` finds them."""
    for option in (
        click.option(
            "--password-stdin",
            is_flag=True,
            expose_value=False,
            callback=_remember,
            help="Read passwords from standard input, one per line.",
        ),
        click.option(
            "--user",
            metavar="NAME",
            expose_value=False,
            callback=_remember,
            help="Log in with this name and a password.",
        ),
        command_config_option,
    ):
        command = option(command)
    return command


def read_password(prompt: str, *, is_new: bool = False) -> str:
    """Typed, twice if it is a new one; or the next line of standard input."""
    if _option("password_stdin"):
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = click.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
    if not password:
        raise click.ClickException("the password is empty")
    return password


def connection_security(
    properties: Mapping[str, str] | None,
) -> "tuple[SocketNet, Credentials | None]":
    """The net to connect through, and who to be."""
    given = dict(properties or {})
    path, user = _option("command_config"), _option("user")
    if path is not None:
        try:
            given |= parse(read_text(path))
        except ConfigError as error:
            raise click.ClickException(str(error)) from None
    protocol = given.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise click.ClickException(f"security.protocol is one of {', '.join(_PROTOCOLS)}")
    credentials = None
    if user is not None or protocol.startswith("SASL_"):
        credentials = _credentials(given, user)
    return _net(given, is_tls=protocol.endswith("SSL")), credentials


def _option(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"{__name__}.{name}")


def _credentials(given: Mapping[str, str], user: str | None) -> "Credentials":
    from entrepot.client.sasl import Credentials

    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or _MECHANISMS[-1]
    if mechanism not in _MECHANISMS:
        raise click.ClickException(f"sasl.mechanism is one of {', '.join(_MECHANISMS)}")
    name = user or given.get("sasl.username") or _from_jaas(given, "username")
    if not name:
        raise click.ClickException("no user to log in as: sasl.username, or --user")
    password = None
    if user is None:
        password = given.get("sasl.password") or _from_jaas(given, "password")
    return Credentials(name, password or read_password(f"Password of {name}"), mechanism)


def _from_jaas(given: Mapping[str, str], key: str) -> str | None:
    """`…LoginModule required username="ana" password="…";`"""
    found = re.search(rf'\b{key}="((?:[^"\\]|\\.)*)"', given.get("sasl.jaas.config", ""))
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None


def _net(given: Mapping[str, str], *, is_tls: bool) -> "SocketNet":
    from entrepot.net.sockets import SocketNet

    if not is_tls:
        return SocketNet()
    from entrepot.net.tls import TlsNet, client_context

    for store in ("truststore", "keystore"):
        kind = given.get(f"ssl.{store}.type", "PEM")
        if f"ssl.{store}.location" in given and kind.upper() != "PEM":
            raise click.ClickException(f"ssl.{store}.type: PEM is read, {kind} is not")
    certificate = given.get("ssl.certificate.location") or given.get("ssl.keystore.location")
    try:
        context = client_context(
            given.get("ssl.ca.location") or given.get("ssl.truststore.location"),
            certificate,
            given.get("ssl.key.location"),
            check_host=given.get("ssl.endpoint.identification.algorithm", "https") != "",
        )
    except OSError as error:
        raise click.ClickException(f"ssl: {error.strerror or error}") from None
    return TlsNet(client=context)
