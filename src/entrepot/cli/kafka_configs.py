"""`kafka-configs`: the flags and the output of Kafka's tool of that name.

Topics, brokers and groups have settings, users and clients have quotas, users also passwords.
Of a broker's settings, those that topics follow can be changed while it runs.
"""

import re
from collections.abc import Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_flags import bootstrap_options, properties
from entrepot.cli.security import command_config_option
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.admin import Admin, ResourceType
    from entrepot.client.client import Client
    from entrepot.core.scram import Mechanism

_KINDS = ("topics", "brokers", "groups", "users", "clients")
_QUOTA_KINDS = {"users": "user", "clients": "client-id"}
_QUOTA_WORDS = {"user": "user-principal", "client-id": "client-id"}

# By type a name; the empty one is the default, None is all of them.
Entity = dict[str, str | None]


class _Command(click.Command):
    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        """A default is the empty name, so that names and defaults keep their order."""
        return super().parse_args(
            context, ["--entity-name=" if each == "--entity-default" else each for each in args]
        )


@click.command("kafka-configs", cls=_Command)
@click.option("--describe", is_flag=True, help="Show what is set.")
@click.option("--alter", is_flag=True, help="Set it.")
@click.option("--entity-type", "types", multiple=True, help=", ".join(_KINDS) + ".")
@click.option("--entity-name", "names", metavar="NAME", multiple=True, help="Of that type.")
@click.option("--entity-default", is_flag=True, expose_value=False, help="Those without their own.")
@click.option("--topic", help="Short for --entity-type topics --entity-name.")
@click.option("--broker", help="Likewise.")
@click.option("--group", help="Likewise.")
@click.option("--user", help="Likewise.")
@click.option("--client", help="Likewise.")
@click.option(
    "--add-config",
    "added",
    default="",
    metavar="K=V,K=[V,V]",
    help="For users also SCRAM-SHA-256=[password=…] and SCRAM-SHA-512.",
)
@click.option("--add-config-file", "file", metavar="FILE", help="The same, from a properties file.")
@click.option("--delete-config", "deleted", default="", metavar="K,K", help="Back to the default.")
@click.option("--all", "shows_all", is_flag=True, help="Also what is not set.")
@command_config_option
@bootstrap_options
def kafka_configs(
    bootstrap: str,
    broker_list: str | None,
    describe: bool,
    alter: bool,
    types: tuple[str, ...],
    names: tuple[str, ...],
    added: str,
    file: str | None,
    deleted: str,
    shows_all: bool,
    **short: str | None,
) -> None:
    """Show and alter settings, quotas and passwords, with the flags of Kafka's tool."""
    if describe == alter:
        raise click.UsageError("one of --describe and --alter")
    entity = _parse_entity(types, names, short)
    put = properties([], "--add-config-file", [file]) | parse_added(added)
    remove = [name.strip() for name in deleted.split(",") if name.strip()]
    if alter and not put and not remove:
        raise click.UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    if alter and None in entity.values():
        raise click.UsageError("--alter needs an --entity-name or --entity-default for each type")

    async def work(client: "Client") -> None:
        is_quota = all(kind in _QUOTA_KINDS for kind in entity)
        if describe:
            await (
                _describe_quotas(client, entity)
                if is_quota
                else _describe(client, entity, shows_all)
            )
            return
        given = {kind: name for kind, name in entity.items() if name is not None}
        if is_quota:
            await _alter_quotas(client, given, put, remove)
        else:
            await _alter(client, given, put, remove)
        kind, name = next(iter(given.items()))
        if name:
            click.echo(f"Completed updating config for {kind[:-1]} {name}.")
        else:
            click.echo(f"Completed updating default config for {kind} in the cluster.")

    talk(broker_list or bootstrap, work)


def _parse_entity(
    types: tuple[str, ...], names: tuple[str, ...], short: Mapping[str, str | None]
) -> Entity:
    entity: Entity = {kind: short[kind[:-1]] for kind in _KINDS if short[kind[:-1]] is not None}
    for kind in types:
        if kind not in _KINDS:
            raise click.ClickException(
                f"--entity-type {kind}: not supported; there are {', '.join(_KINDS)}"
            )
    if len(names) > len(types):
        raise click.UsageError("more --entity-name than --entity-type")
    entity |= dict(zip_longest(types, names))
    if not entity:
        raise click.UsageError("which one? --entity-type topics --entity-name …")
    if len(entity) > 1 and not all(kind in _QUOTA_KINDS for kind in entity):
        raise click.UsageError("only users and clients go together")
    # A quota on both is on the client of the user.
    return {kind: entity[kind] for kind in _KINDS if kind in entity}


def parse_added(text: str) -> dict[str, str]:
    """`k=v,k=[a,b]`: a value with commas is in brackets."""
    found = {}
    for entry in re.findall(r"(?:\[[^\]]*\]|[^,\[])+", text):
        name, equals, value = entry.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"--add-config {entry}: write it as key=value")
        value = value.strip()
        is_bracketed = value.startswith("[") and value.endswith("]")
        found[name.strip()] = value[1:-1] if is_bracketed else value
    return found


# --- topics and brokers


def _kind(kind: str) -> "ResourceType":
    from entrepot.client.admin import ResourceType

    return {
        "topics": ResourceType.TOPIC,
        "brokers": ResourceType.BROKER,
        "groups": ResourceType.GROUP,
    }[kind]


async def _describe(client: "Client", entity: Entity, shows_all: bool) -> None:
    from entrepot.client.admin import Admin

    ((kind, name),) = entity.items()
    admin = Admin(client)
    for each in await _names(admin, client, kind) if name is None else [name]:
        settings = (await admin.settings([each], of=_kind(kind)))[each]
        if not each:
            click.echo(f"Default configs for {kind} in the cluster are:")
        else:
            click.echo(f"{'All' if shows_all else 'Dynamic'} configs for {kind[:-1]} {each} are:")
        for setting in sorted(settings, key=lambda setting: setting.name):
            if shows_all or setting.source == _source(kind, each):
                said = ", ".join(f"{s.source}:{s.name}={s.value}" for s in setting.synonyms)
                secret = str(setting.is_sensitive).lower()
                value = f"{setting.name}={setting.value}"
                click.echo(f"  {value} sensitive={secret} synonyms={{{said}}}")


def _source(kind: str, name: str) -> str:
    """Where a value comes from that was set on just this one."""
    if kind == "topics":
        return "DYNAMIC_TOPIC_CONFIG"
    if kind == "groups":
        return "DYNAMIC_GROUP_CONFIG"
    return "DYNAMIC_BROKER_CONFIG" if name else "DYNAMIC_DEFAULT_BROKER_CONFIG"


async def _names(admin: "Admin", client: "Client", kind: str) -> list[str]:
    from entrepot.client.cluster import TopicInfo

    if kind == "groups":
        from entrepot.client.groups import GroupAdmin

        return [each.name for each in await GroupAdmin(client).all(with_share=True)]
    topics = [each.name for each in await admin.describe() if isinstance(each, TopicInfo)]
    if kind == "topics":
        return sorted(topics)
    return [*map(str, client.cluster.brokers), ""]


async def _alter(
    client: "Client", entity: dict[str, str], put: dict[str, str], remove: list[str]
) -> None:
    from entrepot.client.admin import Admin

    ((kind, name),) = entity.items()
    await Admin(client).alter_settings(name, put, remove, of=_kind(kind))


# --- users and clients


async def _describe_quotas(client: "Client", entity: Entity) -> None:
    from entrepot.client.quotas import QuotaAdmin
    from entrepot.client.users import UserAdmin

    wanted = {_QUOTA_KINDS[kind]: name for kind, name in entity.items()}
    for quota in await QuotaAdmin(client).describe(wanted):
        who = ", ".join(
            f"{_QUOTA_WORDS[kind]} '{name}'" if name else f"the default {_QUOTA_WORDS[kind]}"
            for kind, name in quota.entity.items()
        )
        limits = ", ".join(f"{name}={value}" for name, value in sorted(quota.limits.items()))
        click.echo(f"Quota configs for {who} are {limits}")
    if list(entity) != ["users"] or entity["users"] == "":
        return
    for name, found in (await UserAdmin(client).iterations()).items():
        if entity["users"] in (None, name):
            said = ", ".join(f"{m.value}=iterations={count}" for m, count in found.items())
            click.echo(f"SCRAM credential configs for user-principal '{name}' are {said}")


async def _alter_quotas(
    client: "Client", entity: dict[str, str], put: dict[str, str], remove: list[str]
) -> None:
    from entrepot.client.quotas import QuotaAdmin
    from entrepot.client.users import UserAdmin
    from entrepot.core.scram import Mechanism

    mechanisms = {mechanism.value: mechanism for mechanism in Mechanism}
    passwords = {mechanisms[k]: v for k, v in put.items() if k in mechanisms}
    gone = [mechanisms[k] for k in remove if k in mechanisms]
    quotas = {k: _number(k, v) for k, v in put.items() if k not in mechanisms}
    quotas_gone = [k for k in remove if k not in mechanisms]
    if passwords or gone:
        user = entity.get("users")
        if not user or len(entity) > 1:
            raise click.UsageError("a password is of one user: --entity-type users --entity-name …")
        admin = UserAdmin(client)
        for mechanism, text in passwords.items():
            password, iterations = _credential(mechanism, text)
            await admin.set_credential(user, mechanism, password, iterations)
        if gone:
            await admin.delete(user, gone)
    if quotas or quotas_gone:
        named = {_QUOTA_KINDS[kind]: name for kind, name in entity.items()}
        await QuotaAdmin(client).alter(named, quotas, quotas_gone)


def _number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"--add-config {name}={text}: not a number") from None


def _credential(mechanism: "Mechanism", text: str) -> tuple[str, int]:
    """`iterations=8192,password=…`; the first may be left out."""
    from entrepot.core.limits import SCRAM_ITERATIONS

    found = re.fullmatch(r"(?:iterations=(\d+),)?password=(.+)", text)
    if found is None:
        raise click.UsageError(f"write it as {mechanism.value}=[iterations=8192,password=…]")
    return found[2], int(found[1] or SCRAM_ITERATIONS)
