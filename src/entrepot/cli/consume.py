"""`entrepot consume`: records become lines.

Without --follow it is `cat`: what is in the topic when it starts, and then it ends.
With it, it is `tail -f`. With --group it shares the topic with the group's other members,
goes on where the group is, and leaves it at the end.
"""

import asyncio
import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import click

from entrepot.cli.talk import bootstrap_option, json_option, talk

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.group import GroupReader
    from entrepot.client.reader import Message, Reader

PARTITIONS_REFRESH_S = 5.0
POLL_WAIT_MS = 500

Write = Callable[["Message"], bytes]


@click.command()
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="From the first record on; the default.")
@click.option("--from-end", is_flag=True, help="Only what comes from now on; with --follow.")
@click.option("--from-time", metavar="TIME", help="ISO 8601, or milliseconds since 1970.")
@click.option("-o", "--offset", type=click.IntRange(0), help="Of one partition.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only this one.")
@click.option("-g", "--group", metavar="NAME", help="As one of this group, from where it is.")
@click.option("-f", "--follow", is_flag=True, help="Go on when the end is reached.")
@click.option("-n", "--max-messages", metavar="N", type=click.IntRange(1), help="Stop after N.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help="%k key, %v value, %h headers, %t topic, %p partition, %o offset, %T timestamp, %% %.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: nothing of transactions that are open or aborted.",
)
@json_option
@bootstrap_option
def consume(
    topic: str,
    from_beginning: bool,
    from_end: bool,
    from_time: str | None,
    offset: int | None,
    partition: int | None,
    group: str | None,
    follow: bool,
    max_messages: int | None,
    template: str | None,
    isolation: str,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Print the records of TOPIC: their values, one per line."""
    if sum((from_beginning, from_end, from_time is not None, offset is not None)) > 1:
        raise click.UsageError("one of --from-beginning, --from-end, --from-time and --offset")
    if group is not None and (from_time is not None or offset is not None or partition is not None):
        raise click.UsageError("--group: the group knows where it is, and divides the partitions")
    if template is not None and as_json:
        raise click.UsageError("either --format or --json")
    timestamp = None if from_time is None else parse_time(from_time, "--from-time")
    committed = isolation == "read_committed"
    write = as_json_line if as_json else formatter(template) if template is not None else _value

    async def work(client: "Client") -> None:
        from entrepot.client.client import EARLIEST, LATEST
        from entrepot.client.group import GroupReader
        from entrepot.client.reader import Reader

        parts = await partitions_of(client, topic, partition)
        end = None
        if not follow:
            end = await find_offsets(client, parts, LATEST, committed=committed)
        place = LATEST if from_end else EARLIEST if timestamp is None else timestamp
        if group is not None:
            member = GroupReader(client, group, [topic], reset=place, committed=committed)
            await share(Tap(member, write, end=end, count_max=max_messages), member)
            return
        if offset is None:
            start = await find_offsets(client, parts, place, committed=committed)
        elif len(parts) > 1:
            raise click.UsageError("--offset needs --partition: the topic has several")
        else:
            start = {parts[0]: await _checked(client, parts[0], offset)}
        reader = Reader(client, start, committed=committed)
        tap = Tap(reader, write, end=end, count_max=max_messages, is_cut=True)
        if follow and partition is None:
            tap.watch(client, topic)
        await tap.run()

    talk(bootstrap, work)


async def share(tap: "Tap", member: "GroupReader") -> None:
    """Let it run as a member of a group, which hears of the end, whatever the end is."""
    try:
        await member.join()
        await tap.run()
    finally:
        await member.close()


async def _checked(client: "Client", part: "TopicPartition", offset: int) -> int:
    from entrepot.client.client import EARLIEST, LATEST

    first = (await find_offsets(client, [part], EARLIEST))[part]
    end = (await find_offsets(client, [part], LATEST))[part]
    if not first <= offset <= end:
        raise click.ClickException(f"{part} has offsets {first} to {end}, not {offset}")
    return offset


async def partitions_of(
    client: "Client", topic: str, partition: int | None, *, create: bool = False
) -> "list[TopicPartition]":
    """All of them, or the one."""
    from entrepot.client.client import TopicPartition

    count = len((await client.topic(topic, create=create)).partitions)
    if partition is None:
        return [TopicPartition(topic, index) for index in range(count)]
    if partition >= count:
        raise click.ClickException(f"topic {topic} has partitions 0 to {count - 1} only")
    return [TopicPartition(topic, partition)]


async def find_offsets(
    client: "Client", parts: "list[TopicPartition]", timestamp: int, *, committed: bool = False
) -> "dict[TopicPartition, int]":
    """Where each partition is at that time, or at its end when nothing is that young."""
    from entrepot.client.client import LATEST

    found = await client.list_offsets(dict.fromkeys(parts, timestamp), committed=committed)
    late = [part for part, place in found.items() if place.offset < 0]
    if late:
        found |= await client.list_offsets(dict.fromkeys(late, LATEST), committed=committed)
    return {part: place.offset for part, place in found.items()}


class Tap:
    """Lets records run to standard output until one of its bounds is reached."""

    def __init__(
        self,
        reader: "Reader | GroupReader",
        write: Write,
        *,
        end: "Mapping[TopicPartition, int] | None" = None,
        is_cut: bool = False,
        count_max: int | None = None,
        quiet_ms_max: int | None = None,
    ) -> None:
        self.count = 0
        self._reader = reader
        self._write = write
        self._end = end  # Per partition; None: go on for ever.
        self._is_cut = is_cut  # What is after the end does not show. In a group it would be lost.
        self._count_max = count_max
        self._quiet_ms_max = quiet_ms_max  # So long without a record is the end, too.
        self._watched: tuple[Client, str] | None = None
        self._watched_at = 0.0

    def watch(self, client: "Client", topic: str) -> None:
        """Also read partitions that the topic gets while we read."""
        self._watched = (client, topic)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        quiet_since = self._watched_at = loop.time()
        while not self._is_done():
            wait_ms = POLL_WAIT_MS
            if self._quiet_ms_max is not None:
                left_ms = self._quiet_ms_max - int((loop.time() - quiet_since) * 1000)
                if left_ms <= 0:
                    return
                wait_ms = min(wait_ms, left_ms)
            if self._pour(await self._reader.poll(wait_ms)):
                quiet_since = loop.time()
            if loop.time() - self._watched_at > PARTITIONS_REFRESH_S:
                self._watched_at = loop.time()
                await self._add_partitions()

    def _is_done(self) -> bool:
        if self._count_max is not None and self.count >= self._count_max:
            return True
        end = self._end
        return end is not None and all(
            position >= end.get(part, 0) for part, position in self._reader.positions.items()
        )

    def _pour(self, messages: "Iterator[Message]") -> bool:
        """Print them; whether there were any."""
        count_before = self.count
        output = sys.stdout.buffer
        for message in messages:
            if self._is_cut and self._end and message.record.offset >= self._end[message.part]:
                continue
            output.write(self._write(message))
            self.count += 1
            if self.count == self._count_max:
                break
        output.flush()
        return self.count > count_before

    async def _add_partitions(self) -> None:
        if self._watched is None:
            return
        client, topic = self._watched
        await client.cluster.describe([topic])
        for part in await partitions_of(client, topic, None):
            self._reader.positions.setdefault(part, 0)


def parse_time(text: str, flag: str) -> int:
    """Milliseconds. A time without a zone is the local one."""
    if text.isdecimal():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise click.UsageError(
            f"{flag} {text}: not like 2030-01-31T18:00:00+01:00, nor milliseconds"
        ) from None


def _value(message: "Message") -> bytes:
    return (message.record.value or b"") + b"\n"


_FIELDS: "dict[str, Callable[[Message], bytes]]" = {
    "%k": lambda message: message.record.key or b"",
    "%v": lambda message: message.record.value or b"",
    "%h": lambda message: format_headers(message.record.headers),
    "%t": lambda message: message.part.topic.encode(),
    "%p": lambda message: str(message.part.partition).encode(),
    "%o": lambda message: str(message.record.offset).encode(),
    "%T": lambda message: str(message.record.timestamp_ms).encode(),
    "%%": lambda message: b"%",
}
_ESCAPES = {r"\n": "\n", r"\t": "\t", r"\r": "\r", r"\0": "\0", r"\\": "\\"}


def formatter(template: str) -> Write:
    """A function that fills in the template; a line's end is added."""
    parts: list[bytes | Write] = []
    for piece in re.split(r"(%.|\\.)", template):
        if piece.startswith("%") and piece not in _FIELDS:
            raise click.UsageError(f"--format: {piece} is not one of {' '.join(_FIELDS)}")
        parts.append(_FIELDS.get(piece) or _ESCAPES.get(piece, piece).encode())

    def fill(message: "Message") -> bytes:
        return b"".join(p if isinstance(p, bytes) else p(message) for p in parts) + b"\n"

    return fill


def format_headers(headers: "tuple[tuple[str, bytes | None], ...]") -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in headers)


def as_json_line(message: "Message") -> bytes:
    record = message.record
    document = {
        "topic": message.part.topic,
        "partition": message.part.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "key": _text(record.key),
        "value": _text(record.value),
        "headers": [[name, _text(value)] for name, value in record.headers],
    }
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _text(data: bytes | None) -> object:
    """Bytes that are not text are no string in JSON; this says so."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
