"""What `pub` and `sub` share: the broker's address, a connection of MQTT, one-line failures."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.security import chosen_security, security_options
from entrepot.cli.talk import CONNECT_S, INTERRUPTED, TERMINATED
from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from entrepot.client.mqtt import MqttClient

VERSIONS = {"3.1": 3, "3.1.1": 4, "5": 5}
KEEP_ALIVE_S = 60

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Result = TypeVar("_Result")

_OPTIONS = (
    click.option(
        "-b",
        "--mqtt",
        "address",
        metavar="HOST:PORT",
        default="127.0.0.1:1883",
        envvar="ENTREPOT_MQTT",
        show_default=True,
        show_envvar=True,
        help="A broker's MQTT port.",
    ),
    click.option(
        "-V",
        "--protocol",
        "version",
        type=click.Choice([*VERSIONS]),
        default="5",
        show_default=True,
        help="The version of MQTT.",
    ),
    click.option("-i", "--id", "client_id", metavar="NAME", default="", help="The client's name."),
)


def mqtt_options(command: _Command) -> _Command:
    """Where the broker is, and who we are: the command gets all but the login."""
    command = security_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def talk_mqtt(
    address: str,
    version: str,
    client_id: str,
    work: Callable[[MqttClient], Awaitable[_Result]],
    *,
    session_s: int = 0,
) -> _Result:
    """Do the work with a connected client; what goes wrong is one line for people.

    A session of more than 0 seconds is resumed, and kept afterwards.
    """
    load_kio()
    from entrepot.client.errors import ClientError
    from entrepot.client.mqtt import MqttClient
    from entrepot.wire.mqtt.packets import Connect
    from entrepot.wire.mqtt.properties import Properties
    from entrepot.wire.mqtt.reasons import MqttError

    net, credentials = chosen_security(None)
    is_5, is_kept = version == "5", session_s > 0
    connect = Connect(
        VERSIONS[version],
        client_id or ("entrepot-cli" if version == "3.1" else ""),
        clean_start=not is_kept,
        keep_alive_s=KEEP_ALIVE_S,
        user=None if credentials is None else credentials.user,
        password=None if credentials is None else credentials.password.encode(),
        properties=Properties(session_expiry_interval=session_s if is_5 and is_kept else None),
    )

    async def run() -> _Result:
        task = asyncio.current_task()
        assert task is not None
        with contextlib.suppress(ValueError, RuntimeError):  # Signals are the main thread's.
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        client = await MqttClient.open(net, address, connect, timeout_s=CONNECT_S)
        try:
            return await work(client)
        finally:
            await client.leave()

    try:
        return asyncio.run(run())
    except (ClientError, MqttError) as error:
        raise click.ClickException(str(error)) from None
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    except asyncio.CancelledError:
        sys.exit(TERMINATED)
