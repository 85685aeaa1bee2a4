"""`kafka-topics`: the flags and the output of Kafka's tool of that name."""

import base64
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_flags import bootstrap_options
from entrepot.cli.security import security_options
from entrepot.cli.talk import key_values, talk

if TYPE_CHECKING:
    from entrepot.client.admin import Admin, NewTopic, Setting
    from entrepot.client.client import Client
    from entrepot.client.cluster import TopicInfo
    from entrepot.client.errors import Refused

ACTIONS = ("create", "list", "describe", "alter", "delete")


@click.command("kafka-topics")
@click.option("--create", is_flag=True, help="Create a topic.")
@click.option("--list", is_flag=True, help="List topics.")
@click.option("--describe", is_flag=True, help="Show a topic's partitions and settings.")
@click.option("--alter", is_flag=True, help="Add partitions.")
@click.option("--delete", is_flag=True, help="Delete topics.")
@click.option("--topic", help="Its name; but for --create also a regular expression.")
@click.option("--partitions", type=int, metavar="N")
@click.option("--replication-factor", type=int, metavar="N")
@click.option("--config", "settings", metavar="NAME=VALUE", multiple=True, help="Of a new topic.")
@click.option("--if-not-exists", is_flag=True, help="With --create: fine when it is there.")
@click.option("--if-exists", is_flag=True, help="With the others: fine when it is not.")
@click.option("--exclude-internal", is_flag=True, help="Leave out the broker's own topics.")
@security_options
@bootstrap_options
def kafka_topics(
    bootstrap: str,
    broker_list: str | None,
    topic: str | None,
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    if_exists: bool,
    exclude_internal: bool,
    **actions: bool,
) -> None:
    """Create, list, describe, alter and delete topics, with the flags of Kafka's tool."""
    chosen = [action for action in ACTIONS if actions[action]]
    if len(chosen) != 1:
        raise click.UsageError("one of --create, --list, --describe, --alter and --delete")
    (action,) = chosen
    if topic is None and action not in ("list", "describe"):
        raise click.UsageError(f"--{action} needs --topic")
    if action == "alter" and partitions is None:
        raise click.UsageError("--alter needs --partitions; for settings: entrepot topics alter")
    for flag, number in (("partitions", partitions), ("replication-factor", replication_factor)):
        if number is not None and number < 1:
            raise click.UsageError(f"--{flag} {number}: at least 1")
    given = key_values(settings, "--config")

    async def work(client: "Client") -> None:
        from entrepot.client.admin import Admin, NewTopic

        admin = Admin(client)
        if action == "create":
            assert topic is not None
            new = NewTopic(
                topic,
                -1 if partitions is None else partitions,
                -1 if replication_factor is None else replication_factor,
                given,
            )
            await _create(admin, new, if_not_exists)
            return
        found = await _matching(admin, topic, exclude_internal)
        if topic is not None and not found and action != "list" and not if_exists:
            raise click.ClickException(f"Topic '{topic}' does not exist as expected")
        names = [info.name for info in found]
        if action == "list":
            click.echo("".join(f"{name}\n" for name in names), nl=False)
        elif action == "describe":
            await _describe(admin, found)
        elif action == "delete":
            _raise_first(await admin.delete_topics(names))
        else:
            assert partitions is not None
            _raise_first(await admin.create_partitions(dict.fromkeys(names, partitions)))

    talk(broker_list or bootstrap, work)


async def _create(admin: "Admin", topic: "NewTopic", if_not_exists: bool) -> None:
    from kio.schema.errors import ErrorCode

    answers = await admin.create_topics([topic])
    refused = answers[topic.name]
    if refused is None:
        click.echo(f"Created topic {topic.name}.")
    elif not (if_not_exists and refused.code is ErrorCode.topic_already_exists):
        _raise_first(answers)


def _raise_first(answers: "dict[str, Refused | None]") -> None:
    for refused in answers.values():
        if refused is not None:
            raise click.ClickException(refused.words)


async def _matching(admin: "Admin", topic: str | None, exclude_internal: bool) -> "list[TopicInfo]":
    """All topics, or those whose whole name the expression matches."""
    from entrepot.client.cluster import TopicInfo

    try:
        pattern = re.compile(".*" if topic is None else topic.replace(",", "|"))
    except re.error as error:
        raise click.UsageError(f"--topic {topic}: {error}") from None
    found = [
        info
        for info in await admin.describe()
        if isinstance(info, TopicInfo)
        and pattern.fullmatch(info.name)
        and not (exclude_internal and info.is_internal)
    ]
    return sorted(found, key=lambda info: info.name)


async def _describe(admin: "Admin", topics: "list[TopicInfo]") -> None:
    settings = await admin.settings([topic.name for topic in topics]) if topics else {}
    for topic in topics:
        click.echo("\t".join(_topic_fields(topic, settings[topic.name])))
        for partition in topic.partitions:
            fields = (
                "",
                f"Topic: {topic.name}",
                f"Partition: {partition.index}",
                f"Leader: {partition.leader if partition.leader >= 0 else 'none'}",
                f"Replicas: {','.join(map(str, partition.replicas))}",
                f"Isr: {','.join(map(str, partition.in_sync))}",
                "Elr: ",
                "LastKnownElr: ",
            )
            click.echo("\t".join(fields))


def _topic_fields(topic: "TopicInfo", settings: "list[Setting]") -> Iterator[str]:
    yield f"Topic: {topic.name}"
    if topic.id is not None:
        yield f"TopicId: {base64.urlsafe_b64encode(topic.id.bytes).decode().rstrip('=')}"
    yield f"PartitionCount: {len(topic.partitions)}"
    yield f"ReplicationFactor: {max(len(partition.replicas) for partition in topic.partitions)}"
    changed = (f"{each.name}={each.value}" for each in settings if not each.is_default)
    yield f"Configs: {','.join(changed)}"
