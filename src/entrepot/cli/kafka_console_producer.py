"""`kafka-console-producer`: the flags and the manners of Kafka's tool of that name."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from entrepot.cli.kafka_flags import (
    bootstrap_options,
    integer,
    is_true,
    note_ignored,
    note_ignored_of_client,
    properties,
)
from entrepot.cli.produce import CODECS, parse_acks, read_lines
from entrepot.cli.talk import talk

if TYPE_CHECKING:
    from entrepot.client.client import Client

_PRODUCER_PROPERTIES = ("acks", "batch.size", "client.id", "compression.type", "linger.ms")
_READER_PROPERTIES = (
    "headers.delimiter",
    "headers.key.separator",
    "headers.separator",
    "ignore.error",
    "key.separator",
    "null.marker",
    "parse.headers",
    "parse.key",
)


@click.command("kafka-console-producer")
@click.option("--topic", required=True)
@click.option(
    "--property",
    "--reader-property",
    "reader_properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="How a line is read: parse.key=true, key.separator=: (else a tab), parse.headers=true, "
    "null.marker=TEXT, …",
)
@click.option("--reader-config", metavar="FILE", help="The same, from a file.")
@click.option(
    "--producer-property",
    "--command-property",
    "producer_properties",
    metavar="NAME=VALUE",
    multiple=True,
    help="acks, batch.size, client.id, compression.type, linger.ms.",
)
@click.option(
    "--producer.config", "--command-config", "producer_config", metavar="FILE", help="From a file."
)
@click.option(
    "--compression-codec",
    type=click.Choice(CODECS),
    is_flag=False,
    flag_value="gzip",
    help="Codec.",
)
@click.option("--request-required-acks", type=click.Choice(["0", "1", "-1", "all"]))
@click.option("--batch-size", type=click.IntRange(1), metavar="BYTES")
@click.option("--timeout", "linger_ms", type=click.IntRange(0), metavar="MS")
@click.option("--sync", is_flag=True, help="Wait for each record's acknowledgement.")
@bootstrap_options
def kafka_console_producer(
    topic: str,
    reader_properties: tuple[str, ...],
    reader_config: str | None,
    producer_properties: tuple[str, ...],
    producer_config: str | None,
    compression_codec: str | None,
    request_required_acks: str | None,
    batch_size: int | None,
    linger_ms: int | None,
    sync: bool,
    bootstrap: str,
    broker_list: str | None,
) -> None:
    """Send the lines of standard input to a topic, with the flags of Kafka's tool."""
    reading = properties(reader_properties, "--reader-property", [reader_config])
    note_ignored(reading, _READER_PROPERTIES, "--reader-property")
    line_reader = LineReader.configure(reading)
    given = properties(producer_properties, "--producer-property", [producer_config])
    note_ignored_of_client(given, _PRODUCER_PROPERTIES, "--producer-property")
    acks = request_required_acks or given.get("acks", "all")
    codec = compression_codec or given.get("compression.type", "none")
    if acks not in ("0", "1", "-1", "all") or codec not in CODECS:
        raise click.UsageError(f"acks={acks}, compression.type={codec}: one is not legal")

    async def work(client: "Client") -> None:
        from entrepot.client.producer import Producer
        from entrepot.core.batch import Codec
        from entrepot.core.clock import SystemClock

        producer = Producer(
            client,
            SystemClock(),
            acks=parse_acks(acks),
            codec=Codec[codec.upper()],
            linger_ms=linger_ms if linger_ms is not None else integer(given, "linger.ms", 5),
            batch_bytes=batch_size or integer(given, "batch.size", 16 * 1024),
        )
        is_interactive = os.isatty(0) and os.isatty(1)
        prompt(is_interactive)
        async for line in read_lines(sys.stdin.fileno()):
            key, value, headers = line_reader.read(line)
            await producer.send(topic, value, key=key, headers=headers)
            if sync or is_interactive:
                await producer.flush()
            prompt(is_interactive)
        await producer.flush()

    client_id = given.get("client.id", "console-producer")
    talk(broker_list or bootstrap, work, client_id=client_id, properties=given)


def prompt(is_interactive: bool) -> None:
    if is_interactive:
        click.echo(">", nl=False)


@dataclass(slots=True)
class LineReader:
    """`headers<delimiter>key<separator>value`, with the first two only where asked for."""

    parse_key: bool = False
    key_separator: str = "\t"
    parse_headers: bool = False
    headers_delimiter: str = "\t"
    headers_separator: str = ","
    headers_key_separator: str = ":"
    ignore_error: bool = False
    null_marker: str | None = None
    line_number: int = 0

    @classmethod
    def configure(cls, given: dict[str, str]) -> "LineReader":
        reader = cls(
            parse_key=is_true(given, "parse.key"),
            key_separator=given.get("key.separator", "\t"),
            parse_headers=is_true(given, "parse.headers"),
            headers_delimiter=given.get("headers.delimiter", "\t"),
            headers_separator=given.get("headers.separator", ","),
            headers_key_separator=given.get("headers.key.separator", ":"),
            ignore_error=is_true(given, "ignore.error"),
            null_marker=given.get("null.marker"),
        )
        separators = (reader.key_separator, reader.headers_delimiter, reader.headers_separator)
        if "" in (*separators, reader.headers_key_separator):
            raise click.UsageError("--reader-property: a separator must not be empty")
        return reader

    def read(
        self, line: bytes
    ) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]:
        """Key, value and headers."""
        self.line_number += 1
        text = line.decode(errors="surrogateescape")
        headers, text = self._cut(
            text, self.parse_headers, self.headers_delimiter, "headers delimiter"
        )
        key, text = self._cut(text, self.parse_key, self.key_separator, "key separator")
        pairs = [] if headers is None or headers == self.null_marker else self._pairs(headers)
        return self._bytes(key), self._bytes(text), pairs

    def _cut(self, text: str, wanted: bool, mark: str, name: str) -> tuple[str | None, str]:
        if not wanted:
            return None, text
        first, found, rest = text.partition(mark)
        if found:
            return first, rest
        if not self.ignore_error:
            raise click.ClickException(
                f"No {name} found on line number {self.line_number}: '{text}'"
            )
        return None, text

    def _pairs(self, headers: str) -> list[tuple[str, bytes | None]]:
        pairs: list[tuple[str, bytes | None]] = []
        for pair in headers.split(self.headers_separator):
            name, found, value = pair.partition(self.headers_key_separator)
            if not found and not self.ignore_error:
                raise click.ClickException(
                    f"No header key separator found in pair '{pair}' "
                    f"on line number {self.line_number}"
                )
            pairs.append((name, self._bytes(value) if found else None))
        return pairs

    def _bytes(self, text: str | None) -> bytes | None:
        if text is None or text == self.null_marker:
            return None
        return text.encode(errors="surrogateescape")
