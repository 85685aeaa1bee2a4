"""How the command line says who it is: a file of Kafka's client properties, or a name.

A password is never an argument, where every process of the machine could read it: it
is in the file, on standard input, or typed.
"""

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


def user_options(command: _Command) -> _Command:
    """Options that no command need know of: `chosen_user` finds them."""
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
    ):
        command = option(command)
    return command


def security_options(command: _Command) -> _Command:
    """The same and a file of properties: `chosen_security` finds them."""
    return user_options(command_config_option(command))


def chosen_user() -> str | None:
    name: str | None = _option("user")
    return name


def read_password(prompt: str, *, is_new: bool = False) -> str:
    """Typed, twice if it is a new one; or the next line of standard input."""
    if _option("password_stdin"):
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = click.prompt(prompt, hide_input=True, confirmation_prompt=is_new, err=True)
    if not password:
        raise click.ClickException("the password is empty")
    return password


def chosen_security(properties: Mapping[str, str] | None) -> "tuple[SocketNet, Credentials | None]":
    """The net to connect through, and who to be."""
    from entrepot.client.security import BadProperty, connection_security

    given = dict(properties or {}) | command_properties()
    try:
        return connection_security(given, user=_option("user"), ask_password=read_password)
    except BadProperty as error:
        raise click.ClickException(str(error)) from None


def command_properties() -> dict[str, str]:
    """What the file of --command-config says."""
    path = _option("command_config")
    try:
        return {} if path is None else parse(read_text(path))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _option(name: str) -> Any:
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(f"{__name__}.{name}")
