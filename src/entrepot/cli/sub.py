"""`entrepot sub`: print what is published on topics of MQTT.

A message is acknowledged when it is printed. With --keep the session stays, and the next call
with the same --id begins with what came meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from entrepot.cli.mqtt_talk import mqtt_options, talk_mqtt
from entrepot.cli.talk import json_option

if TYPE_CHECKING:
    from entrepot.client.mqtt import MqttClient
    from entrepot.client.mqtt_protocol import Arrived

_FAILURE = 0x80

Write = Callable[["Arrived"], bytes]


@click.command()
@click.argument("filters", metavar="FILTER...", nargs=-1, required=True)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("-n", "--count", metavar="N", type=click.IntRange(1), help="Stop after N messages.")
@click.option("-W", "--wait", metavar="SECONDS", type=click.FloatRange(0), help="Stop after this.")
@click.option("-v", "--verbose", is_flag=True, help="Print the topic before each message.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help="%t topic, %p payload, %q QoS, %r 1 if retained, %l size in bytes, %x in hex, %% %.",
)
@click.option(
    "--retained",
    type=click.Choice(["yes", "no", "only"]),
    default="yes",
    show_default=True,
    help="Messages that were retained before: also, not, or only.",
)
@click.option("--keep", metavar="SECONDS", type=click.IntRange(1), help="Keep the session so long.")
@json_option
@mqtt_options
def sub(
    filters: tuple[str, ...],
    qos: int,
    count: int | None,
    wait: float | None,
    verbose: bool,
    template: str | None,
    retained: str,
    keep: int | None,
    as_json: bool,
    address: str,
    version: str,
    client_id: str,
) -> None:
    """Print the messages on topics that match FILTER, one per line.

    In a filter + stands for one level and # for all that follow. `$share/GROUP/FILTER` shares
    them with others, `$queue/NAME` takes them from a queue.
    """
    if sum((verbose, template is not None, as_json)) > 1:
        raise click.UsageError("one of --verbose, --format and --json")
    if keep is not None and not client_id:
        raise click.UsageError("--keep needs --id: by it the session is found again")
    if retained == "only" and count is None and wait is None:
        raise click.UsageError("--retained only needs --count or --wait: it does not end else")
    _check_filters(filters)
    write = _writer(as_json, verbose, template)

    async def work(client: MqttClient) -> None:
        left = count
        try:
            async with asyncio.timeout(wait):
                await _subscribe(client, filters, qos, is_5=version == "5", retained=retained)
                while left is None or left > 0:
                    message = await client.receive()
                    if _is_wanted(message.is_retained, retained):
                        sys.stdout.buffer.write(write(message))
                        sys.stdout.buffer.flush()
                        left = None if left is None else left - 1
                    client.acknowledge(message)
        except TimeoutError:
            return

    talk_mqtt(address, version, client_id, work, session_s=keep or 0)


def _check_filters(filters: tuple[str, ...]) -> None:
    from entrepot.wire.mqtt.reasons import MqttError
    from entrepot.wire.mqtt.topics import check_filter

    for each in filters:
        try:
            check_filter(each)
        except MqttError as error:
            raise click.UsageError(f"{error}: + is a whole level, # the last one") from None


async def _subscribe(
    client: MqttClient, filters: tuple[str, ...], qos: int, *, is_5: bool, retained: str
) -> None:
    from entrepot.client.mqtt import MqttRefused
    from entrepot.wire.mqtt.packets import Subscription

    handling = 2 if is_5 and retained == "no" else 0
    wanted = [Subscription(each, qos, retain_handling=handling) for each in filters]
    for each, reason in zip(filters, await client.subscribe(wanted), strict=True):
        if reason >= _FAILURE:
            raise MqttRefused(reason, each)


def _is_wanted(is_retained: bool, retained: str) -> bool:
    return retained == "yes" or is_retained is (retained == "only")


def _writer(as_json: bool, verbose: bool, template: str | None) -> Write:
    if as_json:
        return _as_json_line
    if template is not None:
        return _formatter(template)
    return _formatter("%t %p" if verbose else "%p")


_FIELDS: dict[str, Write] = {
    "%t": lambda message: message.topic.encode(),
    "%p": lambda message: bytes(message.payload),
    "%q": lambda message: b"%d" % message.qos,
    "%r": lambda message: b"%d" % message.is_retained,
    "%l": lambda message: b"%d" % len(message.payload),
    "%x": lambda message: bytes(message.payload).hex().encode(),
    "%%": lambda message: b"%",
}
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}


def _formatter(template: str) -> Write:
    """Return a function that fills in the template; a line's end is added."""
    parts: list[bytes | Write] = []
    for piece in re.split(r"(%.|\\.)", template):
        if piece.startswith("%") and piece not in _FIELDS:
            raise click.UsageError(f"--format: {piece} is not one of {' '.join(_FIELDS)}")
        parts.append(_FIELDS.get(piece) or _ESCAPES.get(piece, piece).encode())

    def fill(message: Arrived) -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(message) for p in parts) + b"\n"

    return fill


def _as_json_line(message: Arrived) -> bytes:
    found = message.decoded()
    document: dict[str, Any] = {
        "topic": message.topic,
        "payload": _text(bytes(message.payload)),
        "qos": message.qos,
        "retained": message.is_retained,
        "repeated": message.is_repeated,
    }
    properties = {
        "expiry": found.message_expiry_interval,
        "content_type": found.content_type,
        "response_topic": found.response_topic,
        "correlation": None if found.correlation_data is None else _text(found.correlation_data),
        "subscription_identifiers": list(found.subscription_identifiers) or None,
        "properties": [list(each) for each in found.user_properties] or None,
    }
    document |= {name: value for name, value in properties.items() if value is not None}
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes) -> object:
    """Bytes that are not text are no string in JSON; this says so."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
