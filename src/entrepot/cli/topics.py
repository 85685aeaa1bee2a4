"""`entrepot topics`: create, list, describe, alter, delete."""

from typing import TYPE_CHECKING

import click

from entrepot.cli.talk import bootstrap_option, json_option, key_values, show_json, show_table, talk

if TYPE_CHECKING:
    from entrepot.client.client import Client
    from entrepot.client.cluster import TopicInfo


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics."""


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("-p", "--partitions", type=click.IntRange(1), help="How many; else the broker's.")
@click.option("--replication-factor", type=click.IntRange(1), help="Copies of each partition.")
@click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="As in retention.ms=60000."
)
@click.option("--if-not-exists", is_flag=True, help="Fine when it is there already.")
@bootstrap_option
def create(
    names: tuple[str, ...],
    partitions: int | None,
    replication_factor: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create topics."""
    given = key_values(settings, "--set")

    async def work(client: "Client") -> None:
        from kio.schema.errors import ErrorCode

        from entrepot.client.admin import Admin, NewTopic

        wanted = [
            NewTopic(name, partitions or -1, replication_factor or -1, given) for name in names
        ]
        for name, refused in (await Admin(client).create_topics(wanted)).items():
            if refused is None:
                click.echo(f"created {name}")
            elif not (if_not_exists and refused.code is ErrorCode.topic_already_exists):
                raise refused

    talk(bootstrap, work)


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also those the broker keeps for itself.")
@json_option
@bootstrap_option
def list_(internal: bool, as_json: bool, bootstrap: str) -> None:
    """List topics, one per line."""
    names = [t.name for t in talk(bootstrap, _all_topics) if internal or not t.is_internal]
    if as_json:
        show_json({"name": name} for name in names)
    else:
        for name in names:
            click.echo(name)


async def _all_topics(client: "Client") -> "list[TopicInfo]":
    from entrepot.client.admin import Admin
    from entrepot.client.cluster import TopicInfo

    found = [t for t in await Admin(client).describe() if isinstance(t, TopicInfo)]
    return sorted(found, key=lambda topic: topic.name)


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--all-settings", is_flag=True, help="Also those the topic does not set itself.")
@json_option
@bootstrap_option
def describe(names: tuple[str, ...], all_settings: bool, as_json: bool, bootstrap: str) -> None:
    """Show partitions, offsets and settings."""
    for description in talk(bootstrap, lambda client: _describe(client, names, all_settings)):
        if as_json:
            show_json([description])
        else:
            _show(description)


async def _describe(
    client: "Client", names: tuple[str, ...], all_settings: bool
) -> list[dict[str, object]]:
    from entrepot.client.admin import Admin
    from entrepot.client.client import EARLIEST, LATEST, TopicPartition
    from entrepot.client.errors import Refused

    admin = Admin(client)
    descriptions: list[dict[str, object]] = []
    for topic in await admin.describe(names):
        if isinstance(topic, Refused):
            raise topic
        parts = [TopicPartition(topic.name, partition.index) for partition in topic.partitions]
        firsts = await client.list_offsets(dict.fromkeys(parts, EARLIEST))
        ends = await client.list_offsets(dict.fromkeys(parts, LATEST))
        settings = (await admin.settings([topic.name]))[topic.name]
        descriptions.append(
            {
                "name": topic.name,
                "id": str(topic.id),
                "settings": {s.name: s.value for s in settings if all_settings or s.is_of_topic},
                "partitions": [
                    {
                        "partition": partition.index,
                        "leader": partition.leader,
                        "replicas": list(partition.replicas),
                        "in_sync": list(partition.in_sync),
                        "offset_first": firsts[part].offset,
                        "offset_end": ends[part].offset,
                    }
                    for part, partition in zip(parts, topic.partitions, strict=True)
                ],
            }
        )
    return descriptions


def _show(description: dict[str, object]) -> None:
    click.echo(f"topic {description['name']}, id {description['id']}")
    settings, partitions = description["settings"], description["partitions"]
    assert isinstance(settings, dict)
    assert isinstance(partitions, list)
    for name, value in settings.items():
        click.echo(f"  {name} = {value}")
    show_table(
        {
            key.replace("_", " "): " ".join(map(str, value)) if isinstance(value, list) else value
            for key, value in partition.items()
        }
        for partition in partitions
    )


@topics.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option("--if-exists", is_flag=True, help="Fine when it is gone already.")
@bootstrap_option
def delete(names: tuple[str, ...], if_exists: bool, bootstrap: str) -> None:
    """Delete topics and everything in them, for good."""

    async def work(client: "Client") -> None:
        from kio.schema.errors import ErrorCode

        from entrepot.client.admin import Admin

        for name, refused in (await Admin(client).delete_topics(names)).items():
            if refused is None:
                click.echo(f"deleted {name}")
            elif not (if_exists and refused.code is ErrorCode.unknown_topic_or_partition):
                raise refused

    talk(bootstrap, work)


@topics.command()
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(1), help="Grow to so many.")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Change a setting.")
@click.option("--unset", metavar="KEY", multiple=True, help="Give a setting its default back.")
@bootstrap_option
def alter(
    name: str,
    partitions: int | None,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap: str,
) -> None:
    """Change settings, add partitions."""
    given = key_values(settings, "--set")
    if not given and not unset and partitions is None:
        raise click.UsageError("nothing to change: --partitions, --set or --unset")

    async def work(client: "Client") -> None:
        from entrepot.client.admin import Admin

        admin = Admin(client)
        if given or unset:
            await admin.alter_settings(name, given, unset)
        if partitions is not None:
            for refused in (await admin.create_partitions({name: partitions})).values():
                if refused is not None:
                    raise refused
        click.echo(f"altered {name}")

    talk(bootstrap, work)
