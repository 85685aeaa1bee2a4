"""Where a group is and where it shall go: what both tools for groups have in common."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import click

from entrepot.cli.consume import find_offsets

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.groups import GroupAdmin, GroupInfo, GroupMember


class Row(NamedTuple):
    """One partition, as the group sees it."""

    part: "TopicPartition"
    committed: int | None
    end: int | None  # None: the topic is gone.
    member: "GroupMember | None"

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.end is None:
            return None
        return self.end - self.committed


async def rows_of(admin: "GroupAdmin", group: "GroupInfo") -> list[Row]:
    """What its members read and what they have read, in order."""
    committed = await admin.offsets(group.name)
    owned = [part for member in group.members for part in member.parts]
    parts = sorted({*committed, *owned})
    ends = await admin.ends(parts)
    return [Row(part, committed.get(part), ends.get(part), group.owner(part)) for part in parts]


@dataclass(frozen=True, slots=True)
class ResetTarget:
    """Where to go: one of these, or none to stay."""

    time: int | None = None  # Milliseconds, EARLIEST or LATEST.
    offset: int | None = None
    shift: int | None = None


async def parse_parts(client: "Client", scopes: Iterable[str]) -> "list[TopicPartition]":
    """`topic`, or `topic:0,2` for some of its partitions."""
    from entrepot.client.client import TopicPartition

    found: list[TopicPartition] = []
    for scope in scopes:
        topic, colon, indexes = scope.partition(":")
        count = len((await client.topic(topic)).partitions)
        if not colon:
            found += [TopicPartition(topic, index) for index in range(count)]
        for index in indexes.split(",") if colon else ():
            if not index.isdecimal():
                raise click.UsageError(f"--topic {scope}: write it as topic or topic:0,1")
            if int(index) >= count:
                raise click.ClickException(f'The partitions "{topic}-{index}" do not exist')
            found.append(TopicPartition(topic, int(index)))
    return found


async def plan_offsets(
    client: "Client", group: str, parts: "list[TopicPartition]", target: ResetTarget
) -> "dict[TopicPartition, int]":
    """The offsets to commit. What is outside of a log becomes its nearest end, with a word."""
    from entrepot.client.client import EARLIEST, LATEST
    from entrepot.client.groups import GroupAdmin

    if target.time is not None:
        return await find_offsets(client, parts, target.time)
    firsts = await find_offsets(client, parts, EARLIEST)
    ends = await find_offsets(client, parts, LATEST)
    committed = await GroupAdmin(client).offsets(group)
    plan = {}
    for part in parts:
        wanted = committed.get(part)
        if target.offset is not None:
            wanted = target.offset
        elif target.shift is not None:
            if wanted is None:
                raise click.ClickException(f"{part}: nothing is committed that could be shifted")
            wanted += target.shift
        elif wanted is None:
            wanted = ends[part]
        plan[part] = min(max(wanted, firsts[part]), ends[part])
        if plan[part] != wanted:
            has = f"has offsets {firsts[part]} to {ends[part]}"
            click.echo(f"{part} {has}: {plan[part]} instead of {wanted}", err=True)
    return plan
