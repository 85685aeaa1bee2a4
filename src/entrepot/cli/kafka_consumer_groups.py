"""`kafka-consumer-groups`: the flags and the output of Kafka's tool of that name.

What it could not do is one line and exit code 1, in the words of Kafka's tool, which
exits with 0.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from entrepot.cli.group_offsets import ResetTarget, Row, parse_parts, plan_offsets, rows_of
from entrepot.cli.kafka_flags import bootstrap_options
from entrepot.cli.security import security_options
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.groups import GroupAdmin, GroupInfo

ACTIONS = ("list", "describe", "delete", "delete_offsets", "reset_offsets")
_TARGETS = (
    "to_earliest",
    "to_latest",
    "to_current",
    "to_offset",
    "to_datetime",
    "by_duration",
    "shift_by",
)
_NO_ACTION = "WARN: No action will be performed as the --execute option is missing."
_NONE = "-"  # What is not there.
_WIDTHS = {  # Of columns that are this wide at least; others are as wide as they must be.
    "GROUP": 15,
    "TOPIC": 15,
    "PARTITION": 10,
    "LEADER-EPOCH": 15,
    "CURRENT-OFFSET": 15,
    "LOG-END-OFFSET": 15,
    "LAG": 15,
    "CONSUMER-ID": 15,
    "GROUP-INSTANCE-ID": 17,
    "HOST": 15,
    "CLIENT-ID": 15,
    "#PARTITIONS": 15,
    "CURRENT-EPOCH": 15,
    "CURRENT-ASSIGNMENT": 20,
    "TARGET-EPOCH": 15,
    "TARGET-ASSIGNMENT": 20,
    "COORDINATOR (ID)": 25,
    "ASSIGNMENT-STRATEGY": 20,
    "GROUP-EPOCH": 15,
    "TARGET-ASSIGNMENT-EPOCH": 25,
    "STATE": 20,
    "TYPE": 20,
}


@click.command("kafka-consumer-groups")
@click.option("--list", is_flag=True, help="List groups; with --state and --type.")
@click.option("--describe", is_flag=True, help="Show offsets and lag of groups.")
@click.option("--delete", is_flag=True, help="Delete groups that have no members.")
@click.option("--delete-offsets", is_flag=True, help="Forget a group's offsets of --topic.")
@click.option("--reset-offsets", is_flag=True, help="Move the offsets of a group without members.")
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
@click.option(
    "--type",
    "kinds",
    is_flag=False,
    flag_value="",
    metavar="[TYPES]",
    help="With --list, likewise.",
)
@click.option("--verbose", is_flag=True, help="With --describe: more columns.")
@click.option("--topic", "topics", metavar="NAME[:0,1]", multiple=True, help="May be repeated.")
@click.option("--all-topics", is_flag=True, help="All that the group has read.")
@click.option("--to-earliest", is_flag=True)
@click.option("--to-latest", is_flag=True)
@click.option("--to-current", is_flag=True)
@click.option("--to-offset", type=int, metavar="N")
@click.option("--to-datetime", metavar="TIME", help="2030-01-31T18:00:00.000; UTC without a zone.")
@click.option("--by-duration", metavar="PnDTnHnMnS", help="So long before now.")
@click.option("--shift-by", type=int, metavar="N", help="From where it is; may be negative.")
@click.option("--dry-run", is_flag=True, help="Only show what --reset-offsets would do.")
@click.option("--execute", is_flag=True, help="Do it.")
@click.option("--timeout", hidden=True, expose_value=False, help="Taken, and not needed.")
@security_options
@bootstrap_options
def kafka_consumer_groups(
    bootstrap: str,
    broker_list: str | None,
    groups: tuple[str, ...],
    all_groups: bool,
    **given: object,
) -> None:
    """List, describe and delete groups and move their offsets, with the flags of Kafka's tool."""
    chosen = [action for action in ACTIONS if given[action]]
    if len(chosen) != 1:
        raise click.UsageError(
            "Command must include exactly one action: "
            + ", ".join("--" + action.replace("_", "-") for action in ACTIONS)
        )
    (action,) = chosen
    if action != "list" and not groups and not all_groups:
        raise click.UsageError(f"--{action.replace('_', '-')} needs --group or --all-groups")
    topics = given["topics"]
    assert isinstance(topics, tuple)
    if action == "delete_offsets" and not topics:
        raise click.UsageError("--delete-offsets needs --topic")
    target = _target(given) if action == "reset_offsets" else None
    if target is not None and not topics and not given["all_topics"]:
        raise click.UsageError("One of the reset scopes should be defined: --all-topics, --topic.")

    async def work(client: "Client") -> None:
        from entrepot.client.groups import GroupAdmin

        admin = GroupAdmin(client)
        names = [each.name for each in await admin.all()] if all_groups else sorted(set(groups))
        if action == "list":
            await _list(admin, given["state"], given["kinds"])
        elif action == "describe":
            await _describe(admin, names, given)
        elif action == "delete":
            await _delete(admin, names)
        elif action == "delete_offsets":
            await _delete_offsets(admin, names[0], await parse_parts(client, topics))
        else:
            assert target is not None
            if not given["execute"] and not given["dry_run"]:
                click.echo(_NO_ACTION, err=True)
            await _reset(client, names, topics, target, is_done=bool(given["execute"]))

    talk(broker_list or bootstrap, work)


# --- looking


async def _list(admin: "GroupAdmin", state: object, kinds: object) -> None:
    found = await admin.all()
    for wanted, of in ((state, "state"), (kinds, "kind")):
        if isinstance(wanted, str) and wanted:
            names = [name.strip().lower() for name in wanted.split(",")]
            found = [each for each in found if getattr(each, of).lower() in names]
    if state is None and kinds is None:
        for each in found:
            click.echo(each.name)
        return
    width = max([_WIDTHS["GROUP"], *(len(each.name) for each in found)]) + 10
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(each.name, each.kind.capitalize(), each.state) for each in found]
    for name, kind, its_state in rows:
        columns = [f"{name:<{width}}"]
        columns += [f"{kind:<20}"] if kinds is not None else []
        columns += [f"{its_state:<20}"] if state is not None else []
        click.echo(" ".join(columns))


async def _describe(admin: "GroupAdmin", names: list[str], given: dict[str, object]) -> None:
    is_verbose = bool(given["verbose"])
    for name in names:
        info = await _found(admin, name)
        if info is None:
            raise click.ClickException(f"Consumer group '{name}' does not exist.")
        if info.state == "Empty":
            click.echo(f"\nConsumer group '{name}' has no active members.", err=True)
        elif info.state != "Stable":
            click.echo(f"\nWarning: Consumer group '{name}' is rebalancing.", err=True)
        if given["members"]:
            print_table(member_rows(info, is_verbose=is_verbose))
        elif given["state"] is not None:
            print_table([state_row(info, is_verbose=is_verbose)])
        else:
            print_table(offset_rows(info, await rows_of(admin, info), is_verbose=is_verbose))


def offset_rows(info: "GroupInfo", rows: list[Row], *, is_verbose: bool) -> list[dict[str, str]]:
    """Kafka's order: those who read most come first, what nobody reads comes last."""
    rows = sorted(
        rows, key=lambda row: (-len(row.member.parts), row.member.id) if row.member else (1, "")
    )
    found = []
    for row in rows:
        columns = {
            "GROUP": info.name,
            "TOPIC": row.part.topic,
            "PARTITION": str(row.part.partition),
            "LEADER-EPOCH": _NONE,
            "CURRENT-OFFSET": or_none(row.committed),
            "LOG-END-OFFSET": or_none(row.end),
            "LAG": or_none(row.lag),
            "CONSUMER-ID": row.member.id if row.member else _NONE,
            "HOST": row.member.host if row.member else _NONE,
            "CLIENT-ID": row.member.client_id if row.member else _NONE,
        }
        if not is_verbose:
            del columns["LEADER-EPOCH"]
        found.append(columns)
    return found


def member_rows(info: "GroupInfo", *, is_verbose: bool) -> list[dict[str, str]]:
    has_instances = any(member.instance_id for member in info.members)
    found = []
    for member in info.members:
        columns = {"GROUP": info.name, "CONSUMER-ID": member.id}
        if has_instances:
            columns["GROUP-INSTANCE-ID"] = member.instance_id or ""
        columns |= {
            "HOST": member.host,
            "CLIENT-ID": member.client_id,
            "#PARTITIONS": str(len(member.parts)),
        }
        if is_verbose:
            columns |= {
                "CURRENT-EPOCH": or_none(member.epoch),
                "CURRENT-ASSIGNMENT": assignment(member.parts),
                "TARGET-EPOCH": or_none(info.epoch_target),
                "TARGET-ASSIGNMENT": assignment(member.parts_target),
            }
        found.append(columns)
    return found


def state_row(info: "GroupInfo", *, is_verbose: bool) -> dict[str, str]:
    coordinator = info.coordinator
    columns = {
        "GROUP": info.name,
        "COORDINATOR (ID)": f"{coordinator.host}:{coordinator.port}  ({coordinator.id})",
        "ASSIGNMENT-STRATEGY": info.assignor or _NONE,
        "STATE": info.state,
    }
    if is_verbose:
        columns["GROUP-EPOCH"] = or_none(info.epoch)
        columns["TARGET-ASSIGNMENT-EPOCH"] = or_none(info.epoch_target)
    return columns | {"#MEMBERS": str(len(info.members))}


def assignment(parts: "Iterable[TopicPartition]") -> str:
    from entrepot.client.client import by_topic

    topics = by_topic(dict.fromkeys(sorted(parts)))
    return ";".join(f"{t}:{','.join(str(p) for p, _ in ps)}" for t, ps in topics) or _NONE


def or_none(number: int | None) -> str:
    return _NONE if number is None else str(number)


def print_table(rows: Sequence[dict[str, str]], least: Mapping[str, int] = _WIDTHS) -> None:
    """A table as Kafka's tool prints it: after an empty line, the last column unpadded."""
    if not rows:
        return
    names = list(rows[0])
    widths = [max(least.get(name, 0), *(len(row[name]) for row in rows)) for name in names]
    widths[-1] = 0
    click.echo()
    for row in (dict(zip(names, names, strict=True)), *rows):
        click.echo(" ".join(f"{row[n]:<{w}}" for n, w in zip(names, widths, strict=True)))


# --- changing


async def _delete(admin: "GroupAdmin", names: list[str]) -> None:
    from entrepot.client.errors import Refused

    failed: dict[str, Refused] = {}
    for name in names:
        try:
            await admin.delete(name)
        except Refused as error:
            failed[name] = error
    done = ", ".join(f"'{name}'" for name in names if name not in failed)
    if not failed:
        click.echo(f"Deletion of requested consumer groups ({done}) was successful.")
        return
    if done:
        click.echo(f"These consumer groups were deleted successfully: {done}")
    reasons = "".join(
        f"\n* Group '{name}' could not be deleted due to: {error.words} ({error.name})"
        for name, error in failed.items()
    )
    raise click.ClickException(f"Deletion of some consumer groups failed:{reasons}")


async def _delete_offsets(admin: "GroupAdmin", name: str, parts: "list[TopicPartition]") -> None:
    outcomes = await admin.delete_offsets(name, parts)
    has_failed = any(outcomes.values())
    if not has_failed:
        click.echo(f"Request succeeded for deleting offsets from group {name}.")
    print_table(
        [
            {
                "TOPIC": part.topic,
                "PARTITION": str(part.partition),
                "STATUS": "Successful" if refused is None else f"Error: {refused.words}",
            }
            for part, refused in sorted(outcomes.items())
        ]
    )
    if has_failed:
        raise click.ClickException("Encountered some partition-level error, see above.")


async def _reset(
    client: "Client",
    names: list[str],
    topics: tuple[str, ...],
    target: ResetTarget,
    *,
    is_done: bool,
) -> None:
    from entrepot.client.groups import GroupAdmin

    admin = GroupAdmin(client)
    rows = []
    for name in names:
        await _check_inactive(admin, name)
        parts = await parse_parts(client, topics) if topics else list(await admin.offsets(name))
        plan = await plan_offsets(client, name, parts, target)
        if is_done:
            await admin.commit(name, plan)
        rows += [
            {
                "GROUP": name,
                "TOPIC": part.topic,
                "PARTITION": str(part.partition),
                "NEW-OFFSET": str(offset),
            }
            for part, offset in plan.items()
        ]
    print_table(rows)


async def _check_inactive(admin: "GroupAdmin", name: str) -> None:
    """One that is not there is fine: it begins there when it comes."""
    info = await _found(admin, name)
    if info is not None and info.state != "Empty":
        raise click.ClickException(
            f"Assignments can only be reset if the group '{name}' is inactive, "
            f"but the current state is {info.state}."
        )


async def _found(admin: "GroupAdmin", name: str) -> "GroupInfo | None":
    from kio.schema.errors import ErrorCode

    from entrepot.client.errors import Refused

    try:
        return await admin.describe(name)
    except Refused as error:
        if error.code is not ErrorCode.group_id_not_found:
            raise
        return None


def _target(given: dict[str, object]) -> ResetTarget:
    from entrepot.client.client import EARLIEST, LATEST

    chosen = [name for name in _TARGETS if given[name] not in (None, False)]
    if len(chosen) != 1:
        flags = ", ".join("--" + name.replace("_", "-") for name in _TARGETS)
        raise click.UsageError(f"--reset-offsets needs one of {flags}")
    if given["dry_run"] and given["execute"]:
        raise click.UsageError("either --dry-run or --execute")
    value = given[chosen[0]]
    match chosen[0]:
        case "to_earliest":
            return ResetTarget(time=EARLIEST)
        case "to_latest":
            return ResetTarget(time=LATEST)
        case "to_datetime":
            return ResetTarget(time=parse_datetime(str(value)))
        case "by_duration":
            before = datetime.now(UTC) - parse_duration(str(value))
            return ResetTarget(time=int(before.timestamp() * 1000))
    if chosen[0] == "to_current":
        return ResetTarget()
    assert isinstance(value, int)
    return ResetTarget(offset=value) if chosen[0] == "to_offset" else ResetTarget(shift=value)


def parse_datetime(text: str) -> int:
    """Milliseconds. A time without a zone is UTC, as for Kafka's tool."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to-datetime {text}: not like 2030-01-31T18:00:00.000") from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return int(time.timestamp() * 1000)


def parse_duration(text: str) -> timedelta:
    """ISO 8601, as Java reads it: days, hours, minutes and seconds."""
    pattern = r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
    found = re.fullmatch(pattern, text.upper())
    if found is None or not any(found.groups()):
        raise click.UsageError(f"--by-duration {text}: not like P1DT12H or PT30M")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
