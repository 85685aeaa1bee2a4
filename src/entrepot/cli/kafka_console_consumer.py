"""`kafka-console-consumer`: the flags and the output of Kafka's tool of that name."""

from typing import TYPE_CHECKING

import click

from entrepot.cli.consume import Tap, Write, find_offsets, partitions_of, share
from entrepot.cli.kafka_flags import (
    bootstrap_options,
    integer,
    is_true,
    note_ignored,
    note_ignored_of_client,
    properties,
)
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.client import Client, TopicPartition
    from entrepot.client.group import Pace
    from entrepot.client.reader import Message

_CONSUMER_PROPERTIES = (
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "client.id",
    "enable.auto.commit",
    "group.id",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.poll.interval.ms",
    "session.timeout.ms",
)
_FORMATTER_PROPERTIES = (
    "headers.separator",
    "key.separator",
    "line.separator",
    "null.literal",
    "print.headers",
    "print.key",
    "print.offset",
    "print.partition",
    "print.timestamp",
    "print.value",
)


@click.command("kafka-console-consumer")
@click.option("--topic", required=True)
@click.option(
    "--from-beginning",
    is_flag=True,
    help="Else only what comes from now on. A group goes on where it is, with or without.",
)
@click.option("--partition", type=click.IntRange(0), help="Only this one.")
@click.option("--offset", metavar="N", help="With --partition: a number, earliest or latest.")
@click.option("--max-messages", type=click.IntRange(0), metavar="N", help="Stop after N.")
@click.option("--timeout-ms", type=click.IntRange(0), metavar="MS", help="Stop when none comes.")
@click.option(
    "--property",
    "--formatter-property",
    "formatter_properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="What a line shows: print.key=true, print.offset, print.partition, print.timestamp, "
    "print.headers, print.value=false, key.separator=TEXT, …",
)
@click.option("--formatter-config", metavar="FILE", help="The same, from a file.")
@click.option(
    "--consumer-property",
    "--command-property",
    "consumer_properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="auto.offset.reset, client.id, group.id, isolation.level, session.timeout.ms, …",
)
@click.option(
    "--consumer.config", "--command-config", "consumer_config", metavar="FILE", help="From a file."
)
@click.option("--isolation-level", type=click.Choice(["read_committed", "read_uncommitted"]))
@click.option("--group", metavar="ID", help="Share the topic with the others of this group.")
@bootstrap_options
def kafka_console_consumer(
    topic: str,
    from_beginning: bool,
    partition: int | None,
    offset: str | None,
    max_messages: int | None,
    timeout_ms: int | None,
    formatter_properties: tuple[str, ...],
    formatter_config: str | None,
    consumer_properties: tuple[str, ...],
    consumer_config: str | None,
    isolation_level: str | None,
    group: str | None,
    bootstrap: str,
    broker_list: str | None,
) -> None:
    """Print the records of a topic as they come, with the flags of Kafka's tool."""
    formatting = properties(formatter_properties, "--formatter-property", [formatter_config])
    note_ignored(formatting, _FORMATTER_PROPERTIES, "--formatter-property")
    given = properties(consumer_properties, "--consumer-property", [consumer_config])
    note_ignored_of_client(given, _CONSUMER_PROPERTIES, "--consumer-property")
    group = _parse_group(group, given, partition)
    from_earliest = from_beginning or given.get("auto.offset.reset") == "earliest"
    start = _parse_start(offset, partition, from_beginning, from_earliest)
    committed = (isolation_level or given.get("isolation.level")) == "read_committed"
    taps: list[Tap] = []

    async def work(client: "Client") -> None:
        from entrepot.client.client import EARLIEST, LATEST
        from entrepot.client.group import GroupReader
        from entrepot.client.reader import Reader

        parts = await partitions_of(client, topic, partition, create=True)
        reset = EARLIEST if from_earliest else LATEST
        reader: GroupReader | Reader
        if group is not None:
            pace = _pace(given)
            reader = GroupReader(
                client, group, [topic], reset=reset, committed=committed, pace=pace
            )
        else:
            positions = await _positions(client, parts, start, committed=committed)
            reader = Reader(client, positions, reset=reset, committed=committed)
        write = line_writer(formatting)
        tap = Tap(reader, write, count_max=max_messages, quiet_ms_max=timeout_ms)
        taps.append(tap)
        if isinstance(reader, GroupReader):
            await share(tap, reader)
            return
        if partition is None:
            tap.watch(client, topic)
        await tap.run()

    client_id = given.get("client.id", "console-consumer")
    try:
        talk(broker_list or bootstrap, work, client_id=client_id, properties=given)
    except SystemExit:  # Ctrl-C, the usual end.
        _say_total(taps)
        raise
    _say_total(taps)


def _say_total(taps: list[Tap]) -> None:
    count = sum(tap.count for tap in taps)
    click.echo(f"Processed a total of {count} messages", err=True)


def _parse_group(group: str | None, given: dict[str, str], partition: int | None) -> str | None:
    named = given.get("group.id")
    if group is not None and named not in (None, group):
        raise click.UsageError(f"--group {group}, but group.id={named}")
    group = group or named
    if group is not None and partition is not None:
        raise click.UsageError("Options group and partition cannot be specified together.")
    return group


def _pace(given: dict[str, str]) -> "Pace":
    """When a member does what, as Kafka's properties say it."""
    from entrepot.client.group import USUAL, Pace

    session_ms = integer(given, "session.timeout.ms", USUAL.session_ms)
    heartbeat_ms = min(USUAL.heartbeat_ms, session_ms // 3)
    commits = given.get("enable.auto.commit", "true").strip().lower() == "true"
    assert USUAL.commit_ms is not None
    return Pace(
        session_ms=session_ms,
        heartbeat_ms=integer(given, "heartbeat.interval.ms", heartbeat_ms),
        rebalance_ms=integer(given, "max.poll.interval.ms", USUAL.rebalance_ms),
        commit_ms=integer(given, "auto.commit.interval.ms", USUAL.commit_ms) if commits else None,
    )


async def _positions(
    client: "Client", parts: "list[TopicPartition]", start: int | str, *, committed: bool
) -> "dict[TopicPartition, int]":
    from entrepot.client.client import EARLIEST, LATEST

    if isinstance(start, int):
        return dict.fromkeys(parts, start)
    place = EARLIEST if start == "earliest" else LATEST
    return await find_offsets(client, parts, place, committed=committed)


def _parse_start(
    offset: str | None, partition: int | None, from_beginning: bool, from_earliest: bool
) -> int | str:
    """Where to begin: an offset, `earliest` or `latest`."""
    if offset is None:
        return "earliest" if from_earliest else "latest"
    if partition is None:
        raise click.UsageError("--offset needs --partition")
    if from_beginning:
        raise click.UsageError("either --offset or --from-beginning")
    if offset in ("earliest", "latest"):
        return offset
    if not offset.isdecimal():
        raise click.UsageError(f"--offset {offset}: a number, earliest or latest")
    return int(offset)


def line_writer(given: dict[str, str]) -> Write:
    """How a record is printed; the order of the fields is Kafka's."""
    separator = given.get("key.separator", "\t").encode()
    line_end = given.get("line.separator", "\n").encode()
    headers_separator = given.get("headers.separator", ",").encode()
    null = given.get("null.literal", "null").encode()

    def headers(message: "Message") -> bytes:
        pairs = message.record.headers
        return (
            headers_separator.join(
                name.encode() + b":" + (null if value is None else value) for name, value in pairs
            )
            or b"NO_HEADERS"
        )

    def timestamp(message: "Message") -> bytes:
        if message.record.timestamp_ms < 0:
            return b"NO_TIMESTAMP"
        kind = "LogAppendTime" if message.is_append_time else "CreateTime"
        return f"{kind}:{message.record.timestamp_ms}".encode()

    def key(message: "Message") -> bytes:
        return null if message.record.key is None else message.record.key

    def value(message: "Message") -> bytes:
        return null if message.record.value is None else message.record.value

    fields: list[Write] = []
    if is_true(given, "print.timestamp"):
        fields.append(timestamp)
    if is_true(given, "print.partition"):
        fields.append(lambda message: b"Partition:%d" % message.part.partition)
    if is_true(given, "print.offset"):
        fields.append(lambda message: b"Offset:%d" % message.record.offset)
    if is_true(given, "print.headers"):
        fields.append(headers)
    if is_true(given, "print.key"):
        fields.append(key)
    if given.get("print.value", "true").strip().lower() == "true":
        fields.append(value)
    return lambda message: separator.join(field(message) for field in fields) + line_end
