"""`entrepot pub`: publish on a topic of MQTT.

What is published with QoS 1 or 2 is on disk, wherever it is kept, when the command has ended.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from entrepot.cli.mqtt_talk import mqtt_options, talk_mqtt
from entrepot.cli.talk import key_values

if TYPE_CHECKING:
    from entrepot.client.mqtt import MqttClient
    from entrepot.wire.mqtt.properties import Properties


@click.command()
@click.argument("topic")
@click.argument("message", required=False)
@click.option("-q", "--qos", type=click.IntRange(0, 2), default=0, show_default=True)
@click.option("-r", "--retain", is_flag=True, help="Keep it for those who subscribe later.")
@click.option("-l", "--lines", is_flag=True, help="Each line of standard input is a message.")
@click.option("-f", "--file", type=click.File("rb"), help="The message is the file; - is stdin.")
@click.option("--empty", is_flag=True, help="A message without a body; with -r it deletes.")
@click.option("--expiry", metavar="SECONDS", type=click.IntRange(0), help="How long it is good.")
@click.option("--content-type", metavar="TYPE", help="As in application/json.")
@click.option("--response-topic", metavar="TOPIC", help="Where an answer is expected.")
@click.option("--correlation", metavar="TEXT", help="What the answer should carry.")
@click.option("-P", "--property", "user_properties", metavar="NAME=VALUE", multiple=True)
@mqtt_options
def pub(
    topic: str,
    message: str | None,
    qos: int,
    retain: bool,
    lines: bool,
    file: Any,
    empty: bool,
    address: str,
    version: str,
    client_id: str,
    **given: Any,
) -> None:
    """Publish MESSAGE, a file, or lines of standard input on TOPIC."""
    if sum((message is not None, lines, file is not None, empty)) != 1:
        raise click.UsageError("one of MESSAGE, --lines, --file and --empty")
    if version != "5" and any(value for value in given.values()):
        raise click.UsageError("properties need version 5 of MQTT")
    check_topic(topic)
    body = b"" if message is None else message.encode()
    if file is not None:
        body = file.read()

    async def work(client: MqttClient) -> int:
        from entrepot.cli.produce import read_lines

        properties = _properties(**given)
        if not lines:
            await client.publish(topic, body, qos, retain=retain, properties=properties)
            return 1
        count = 0
        sent = []
        async for line in read_lines(sys.stdin.fileno()):
            count += 1
            answer = await client.send(topic, line, qos, retain=retain, properties=properties)
            if answer is not None:
                sent.append(answer)
                if len(sent) >= _WINDOW:
                    await _answered(topic, sent)
        await _answered(topic, sent)
        return count

    count = talk_mqtt(address, version, client_id, work)
    click.echo(f"published {count} message{'' if count == 1 else 's'} on {topic}", err=True)


_WINDOW = 500  # Messages that may be without an answer.


async def _answered(topic: str, sent: list[Any]) -> None:
    """Wait for all answers. Raises MqttRefused."""
    from entrepot.client.mqtt import MqttRefused

    for each in sent:
        answer = await each
        if answer.is_refused:
            raise MqttRefused(answer.reason, topic)
    sent.clear()


def check_topic(topic: str) -> None:
    """Raise UsageError if nothing can be published there."""
    from entrepot.wire.mqtt.reasons import MqttError
    from entrepot.wire.mqtt.topics import check_name

    try:
        check_name(topic)
    except MqttError as error:
        raise click.UsageError(f"{error}: it is not empty, and has no + and #") from None


def _properties(
    expiry: int | None,
    content_type: str | None,
    response_topic: str | None,
    correlation: str | None,
    user_properties: tuple[str, ...],
) -> Properties:
    from entrepot.wire.mqtt.properties import Properties

    return Properties(
        message_expiry_interval=expiry,
        content_type=content_type,
        response_topic=response_topic,
        correlation_data=None if correlation is None else correlation.encode(),
        user_properties=tuple(key_values(user_properties, "--property").items()),
    )
