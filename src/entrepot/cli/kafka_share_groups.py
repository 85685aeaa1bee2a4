"""`kafka-share-groups`: the flags and the output of Kafka's tool of that name, but for moving and
deleting offsets.
"""

from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_consumer_groups import assignment, or_none, print_table
from entrepot.cli.kafka_flags import bootstrap_options
from entrepot.cli.security import security_options
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.client import Client
    from entrepot.client.groups import GroupInfo, GroupListing
    from entrepot.client.share_groups import SharedPartition

_WIDTHS = {  # Of columns that are this wide at least.
    "GROUP": 15,
    "TOPIC": 15,
    "PARTITION": 10,
    "LEADER-EPOCH": 13,
    "START-OFFSET": 13,
    "COORDINATOR (ID)": 25,
    "STATE": 15,
    "GROUP-EPOCH": 12,
    "ASSIGNMENT-EPOCH": 17,
    "CONSUMER-ID": 15,
    "HOST": 15,
    "CLIENT-ID": 15,
    "#PARTITIONS": 12,
    "MEMBER-EPOCH": 13,
}


@click.command("kafka-share-groups")
@click.option("--list", is_flag=True, help="List share groups; with --state.")
@click.option("--describe", is_flag=True, help="Show offsets and lag of groups.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--group", "groups", metavar="ID", multiple=True, help="May be repeated.")
@click.option("--all-groups", is_flag=True)
@click.option("--offsets", is_flag=True, help="With --describe, and the default there.")
@click.option("--members", is_flag=True, help="With --describe: who they are.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATES]",
    help="With --describe: of the group. With --list: show it, and only these.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--timeout", hidden=True, expose_value=False, help="Taken, and not needed.")
@security_options
@bootstrap_options
def kafka_share_groups(
    bootstrap: str,
    broker_list: str | None,
    groups: tuple[str, ...],
    all_groups: bool,
    **given: object,
) -> None:
    """List, describe and delete share groups, with the flags of Kafka's tool."""
    chosen = [action for action in ("list", "describe", "delete") if given[action]]
    if len(chosen) != 1:
        raise click.UsageError(
            "Command must include exactly one action: --list, --describe, --delete"
        )
    if chosen != ["list"] and not groups and not all_groups:
        raise click.UsageError(f"--{chosen[0]} needs --group or --all-groups")

    async def work(client: "Client") -> None:
        found = await _share_groups(client)
        names = [each.name for each in found] if all_groups else sorted(set(groups))
        if chosen == ["list"]:
            _list(found, given["state"])
        elif chosen == ["describe"]:
            await _describe(client, names, given)
        else:
            await _delete(client, names, found)

    talk(broker_list or bootstrap, work)


async def _share_groups(client: "Client") -> "list[GroupListing]":
    from entrepot.client.groups import GroupAdmin

    found = await GroupAdmin(client).all(with_share=True)
    return [each for each in found if each.kind == "share"]


def _list(found: "list[GroupListing]", state: object) -> None:
    if state is None:
        for each in found:
            click.echo(each.name)
        return
    wanted = [name.strip().lower() for name in str(state).split(",") if name.strip()]
    shown = [each for each in found if not wanted or each.state.lower() in wanted]
    width = max([_WIDTHS["GROUP"], *(len(each.name) for each in shown)])
    for name, its_state in (("GROUP", "STATE"), *((each.name, each.state) for each in shown)):
        click.echo(f"{name:<{width}} {its_state}")


async def _describe(client: "Client", names: list[str], given: dict[str, object]) -> None:
    from kio.schema.errors import ErrorCode

    from entrepot.client.errors import Refused
    from entrepot.client.share_groups import ShareGroupAdmin

    admin, is_verbose = ShareGroupAdmin(client), bool(given["verbose"])
    for name in names:
        try:
            info = await admin.describe(name)
        except Refused as error:
            if error.code is not ErrorCode.group_id_not_found:
                raise
            raise click.ClickException(f"Share group '{name}' does not exist.") from None
        if given["members"] or given["state"] is not None:
            if info.state == "Empty":
                click.echo(f"\nShare group '{name}' has no active members.", err=True)
            rows = _member_rows(info) if given["members"] else [_state_row(info)]
        else:
            rows = _offset_rows(name, await admin.offsets(name))
            if not rows:
                click.echo(f"\nShare group '{name}' has no offset information.")
        print_table([_without(row, is_verbose=is_verbose) for row in rows], _WIDTHS)


def _without(row: dict[str, str], *, is_verbose: bool) -> dict[str, str]:
    """Leave out the columns of --verbose without it."""
    more = ("LEADER-EPOCH", "GROUP-EPOCH", "ASSIGNMENT-EPOCH", "MEMBER-EPOCH")
    return {name: text for name, text in row.items() if is_verbose or name not in more}


def _offset_rows(group: str, found: "list[SharedPartition]") -> list[dict[str, str]]:
    return [
        {
            "GROUP": group,
            "TOPIC": each.part.topic,
            "PARTITION": str(each.part.partition),
            "LEADER-EPOCH": or_none(each.leader_epoch),
            "START-OFFSET": or_none(each.offset_start),
            "LAG": or_none(each.lag),
        }
        for each in found
    ]


def _state_row(info: "GroupInfo") -> dict[str, str]:
    coordinator = info.coordinator
    return {
        "GROUP": info.name,
        "COORDINATOR (ID)": f"{coordinator.host}:{coordinator.port}  ({coordinator.id})",
        "STATE": info.state,
        "GROUP-EPOCH": or_none(info.epoch),
        "ASSIGNMENT-EPOCH": or_none(info.epoch_target),
        "#MEMBERS": str(len(info.members)),
    }


def _member_rows(info: "GroupInfo") -> list[dict[str, str]]:
    return [
        {
            "GROUP": info.name,
            "CONSUMER-ID": member.id,
            "HOST": member.host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": str(len(member.parts)),
            "MEMBER-EPOCH": or_none(member.epoch),
            "ASSIGNMENT": assignment(member.parts),
        }
        for member in info.members
    ]


async def _delete(client: "Client", names: list[str], found: "list[GroupListing]") -> None:
    from entrepot.client.errors import Refused
    from entrepot.client.groups import GroupAdmin

    known, failed = {each.name for each in found}, {}
    for name in names:
        if name not in known:
            failed[name] = f"Group '{name}' is not a share group."
            continue
        try:
            await GroupAdmin(client).delete(name)
        except Refused as error:
            failed[name] = f"{error.words} ({error.name})"
    done = ", ".join(f"'{name}'" for name in names if name not in failed)
    if not failed:
        click.echo(f"Deletion of requested share groups ({done}) was successful.")
        return
    if done:
        click.echo(f"These share groups were deleted successfully: {done}")
    reasons = "".join(
        f"\n* Group '{name}' could not be deleted due to: {reason}"
        for name, reason in failed.items()
    )
    raise click.ClickException(f"Deletion of some share groups failed:{reasons}")
