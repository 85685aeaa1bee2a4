"""`kafka-acls`: the flags and the output of Kafka's tool of that name."""

import re
from itertools import product
from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_flags import bootstrap_options
from entrepot.cli.security import command_config_option
from entrepot.cli.talk import talk
from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from entrepot.client.acls import AclEntry, AclResource
    from entrepot.client.client import Client

_PATTERNS = ("any", "match", "literal", "prefixed")
_OF_PRODUCER = {"TOPIC": ("WRITE", "DESCRIBE", "CREATE"), "TRANSACTIONAL_ID": ("WRITE", "DESCRIBE")}
_OF_CONSUMER = {"TOPIC": ("READ", "DESCRIBE"), "GROUP": ("READ",)}


@click.command("kafka-acls")
@click.option("--add", is_flag=True, help="Add entries.")
@click.option("--remove", is_flag=True, help="Remove entries.")
@click.option("--list", is_flag=True, help="List entries.")
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME", help="May be repeated; * is every topic."
)
@click.option("--group", "groups", multiple=True, metavar="NAME", help="Likewise.")
@click.option(
    "--transactional-id", "transactional_ids", multiple=True, metavar="NAME", help="Likewise."
)
@click.option("--cluster", is_flag=True, help="The cluster itself.")
@click.option(
    "--resource-pattern-type",
    "pattern",
    type=click.Choice(_PATTERNS, case_sensitive=False),
    default="literal",
    show_default=True,
)
@click.option("--allow-principal", "allowed", metavar="User:NAME", multiple=True)
@click.option("--deny-principal", "denied", metavar="User:NAME", multiple=True)
@click.option("--allow-host", "allowed_hosts", metavar="ADDRESS", multiple=True)
@click.option("--deny-host", "denied_hosts", metavar="ADDRESS", multiple=True)
@click.option("--operation", "operations", metavar="NAME", multiple=True, help="All by default.")
@click.option("--producer", is_flag=True, help="What a producer needs on --topic.")
@click.option("--consumer", is_flag=True, help="What a consumer needs on --topic and --group.")
@click.option("--idempotent", is_flag=True, help="With --producer: without transactions, too.")
@click.option("--principal", "principals", metavar="User:NAME", multiple=True, help="With --list.")
@click.option("--force", is_flag=True, help="Do not ask.")
@command_config_option
@bootstrap_options
def kafka_acls(bootstrap: str, broker_list: str | None, **given: object) -> None:
    """List, add and remove access control lists, with the flags of Kafka's tool."""
    chosen = [action for action in ("add", "remove", "list") if given[action]]
    if len(chosen) != 1:
        raise click.UsageError("Command must include exactly one action: --list, --add, --remove. ")
    load_kio()
    resources = _resources(given)
    if chosen != ["list"] and not resources:
        raise click.UsageError(
            "You must provide at least one resource: --topic <topic> or --cluster or "
            "--group <group> or --transactional-id"
        )
    if chosen == ["list"]:
        talk(broker_list or bootstrap, lambda client: _list(client, resources, given["principals"]))
        return
    wanted = _wanted(resources, given)
    if chosen == ["add"]:
        if str(given["pattern"]).lower() in ("any", "match"):
            raise click.UsageError(
                f"A '--resource-pattern-type' value of '{given['pattern']}' is not valid when "
                "adding acls."
            )
        if not all(wanted.values()):
            raise click.UsageError(
                "You must specify one of: --allow-principal, --deny-principal when trying to add "
                "ACLs."
            )
        talk(broker_list or bootstrap, lambda client: _add(client, wanted))
        return
    sure = {
        resource: entries
        for resource, entries in wanted.items()
        if given["force"] or click.confirm(_question(resource, entries), prompt_suffix=" ")
    }
    talk(broker_list or bootstrap, lambda client: _remove(client, sure))


# --- what was said


def _resources(given: dict[str, object]) -> "list[AclResource]":
    from entrepot.client.acls import CLUSTER, AclResource

    pattern = str(given["pattern"]).upper()
    named = (
        ("TOPIC", given["topics"]),
        ("GROUP", given["groups"]),
        ("TRANSACTIONAL_ID", given["transactional_ids"]),
    )
    found = []
    for kind, names in named:
        assert isinstance(names, tuple)
        found += [AclResource(kind, name.strip(), pattern) for name in names]
    if given["cluster"] or given["idempotent"]:
        found.append(AclResource("CLUSTER", CLUSTER))
    return found


def _wanted(
    resources: "list[AclResource]", given: dict[str, object]
) -> "dict[AclResource, list[AclEntry]]":
    operations = given["operations"]
    assert isinstance(operations, tuple)
    if not given["producer"] and not given["consumer"]:
        words = [_operation(each) for each in operations] or ["ALL"]
        return {resource: _entries(given, words) for resource in resources}
    found: dict[AclResource, list[AclEntry]] = {}
    for resource in resources:
        words = []
        if given["producer"]:
            words += _OF_PRODUCER.get(resource.kind, ())
            words += ("IDEMPOTENT_WRITE",) if resource.kind == "CLUSTER" else ()
        if given["consumer"]:
            words += _OF_CONSUMER.get(resource.kind, ())
        if words:
            found[resource] = _entries(given, list(dict.fromkeys(words)))
    return found


def _entries(given: dict[str, object], operations: list[str]) -> "list[AclEntry]":
    from entrepot.client.acls import AclEntry

    found = []
    for permission, who, where in (
        ("ALLOW", given["allowed"], given["allowed_hosts"]),
        ("DENY", given["denied"], given["denied_hosts"]),
    ):
        assert isinstance(who, tuple)
        assert isinstance(where, tuple)
        for principal, host, operation in product(who, where or ("*",), operations):
            if ":" not in principal:
                raise click.UsageError(f"{principal}: write it as User:{principal}")
            found.append(AclEntry(principal, host, operation, permission))
    return found


def _operation(text: str) -> str:
    """`DescribeConfigs`, or `DESCRIBE_CONFIGS`."""
    from entrepot.client.acls import OPERATIONS

    found = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", text).upper()
    if found not in OPERATIONS[2:]:
        raise click.UsageError(f"--operation {text}: one of {', '.join(OPERATIONS[2:])}")
    return found


# --- doing it


async def _list(client: "Client", resources: "list[AclResource]", principals: object) -> None:
    from entrepot.client.acls import ANYTHING, AclAdmin

    assert isinstance(principals, tuple)
    found: dict[AclResource, list[AclEntry]] = {}
    for resource in resources or [ANYTHING]:
        found |= await AclAdmin(client).find(resource)
    if not principals:
        _print(found)
    for principal in principals:
        click.echo(f"ACLs for principal `{principal}`")
        _print({r: [e for e in es if e.principal == principal] for r, es in found.items()})


async def _add(client: "Client", wanted: "dict[AclResource, list[AclEntry]]") -> None:
    from entrepot.client.acls import AclAdmin

    admin = AclAdmin(client)
    for resource, entries in wanted.items():
        known = (await admin.find(resource)).get(resource, [])
        for entry in entries:
            if entry in known:
                click.echo(
                    f"Acl (pattern={_pattern(resource)}, entry={_entry(entry)}) already exists."
                )
        new = [entry for entry in entries if entry not in known]
        if new:
            await admin.add(resource, new)
            lines = "\n".join(f"\t{_entry(entry)}" for entry in new)
            click.echo(f"Adding ACLs for resource `{_pattern(resource)}`: \n {lines}\n")


async def _remove(client: "Client", wanted: "dict[AclResource, list[AclEntry]]") -> None:
    from entrepot.client.acls import ANYBODY, AclAdmin

    for resource, entries in wanted.items():
        await AclAdmin(client).remove(resource, entries or [ANYBODY])


# --- words


def _question(resource: "AclResource", entries: "list[AclEntry]") -> str:
    if not entries:
        return (
            f"Are you sure you want to delete all ACLs for resource filter `{_pattern(resource)}`?"
        )
    lines = "\n".join(f"\t{_entry(entry)}" for entry in entries)
    return (
        f"Are you sure you want to remove ACLs: \n {lines}\n from resource filter "
        f"`{_pattern(resource)}`?"
    )


def _print(found: "dict[AclResource, list[AclEntry]]") -> None:
    for resource, entries in found.items():
        if entries:
            lines = "\n".join(f"\t{_entry(entry)}" for entry in entries)
            click.echo(f"Current ACLs for resource `{_pattern(resource)}`:\n{lines}\n")


def _pattern(resource: "AclResource") -> str:
    return (
        f"ResourcePattern(resourceType={resource.kind}, name={resource.name}, "
        f"patternType={resource.pattern})"
    )


def _entry(entry: "AclEntry") -> str:
    return (
        f"(principal={entry.principal}, host={entry.host}, operation={entry.operation}, "
        f"permissionType={entry.permission})"
    )
