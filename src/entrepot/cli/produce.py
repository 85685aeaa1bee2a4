"""`entrepot produce`: lines of text become records.

What is typed goes out as it is typed; a file is read as fast as the broker takes it,
with a progress bar on a terminal.
"""

import asyncio
import contextlib
import os
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import click

from entrepot.cli.talk import bootstrap_option, talk
from entrepot.core.limits import MIB

if TYPE_CHECKING:
    from entrepot.client.client import Client

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
READ_BYTES = 1 * MIB


@click.command()
@click.argument("topic")
@click.argument(
    "files", metavar="[FILE]...", nargs=-1, type=click.Path(exists=True, dir_okay=False)
)
@click.option("-k", "--key", help="The key of every record.")
@click.option("-K", "--key-separator", metavar="TEXT", help="A line is KEY, this text, VALUE.")
@click.option("-H", "--header", "headers", metavar="NAME=VALUE", multiple=True)
@click.option("-p", "--partition", type=click.IntRange(0), help="Else by key, or in turn.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all"]),
    default="all",
    show_default=True,
    help="Who must have a record before the next step: nobody, the leader, all replicas.",
)
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@bootstrap_option
def produce(
    topic: str,
    files: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    acks: str,
    compression: str,
    bootstrap: str,
) -> None:
    """Send lines, from files or from standard input, to TOPIC.

    One line is one record's value. An empty line is an empty value.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("either --key or --key-separator")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    pairs = [_header(header) for header in headers]
    separator = None if key_separator is None else key_separator.encode()
    fixed_key = None if key is None else key.encode()

    async def work(client: "Client") -> int:
        from entrepot.client.producer import Producer
        from entrepot.core.batch import Codec
        from entrepot.core.clock import SystemClock

        producer = Producer(
            client, SystemClock(), acks=parse_acks(acks), codec=Codec[compression.upper()]
        )
        count = 0
        with _inputs(files) as inputs, _progress(inputs) as advance:
            for descriptor in inputs:
                async for line in read_lines(descriptor, advance):
                    count += 1
                    value, line_key = line, fixed_key
                    if separator is not None:
                        line_key, value = _split(line, separator, count)
                    await producer.send(
                        topic, value, key=line_key, headers=pairs, partition=partition
                    )
        await producer.flush()
        return count

    count = talk(bootstrap, work)
    click.echo(f"sent {count} record{'' if count == 1 else 's'} to {topic}", err=True)


def parse_acks(text: str) -> int:
    return -1 if text == "all" else int(text)


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals:
        raise click.UsageError(f"--header {text}: write it as NAME=VALUE")
    return name, value.encode()


def _split(line: bytes, separator: bytes, number: int) -> tuple[bytes, bytes]:
    key, found, value = line.partition(separator)
    if not found:
        text = line[:60].decode(errors="replace")
        raise click.ClickException(f"line {number} has no {separator.decode()!r}: {text!r}")
    return key, value


@contextlib.contextmanager
def _inputs(files: tuple[str, ...]) -> Iterator[list[int]]:
    """Descriptors to read from: the files, or standard input."""
    opened: list[int] = []
    try:
        for name in files:
            try:
                opened.append(os.open(name, os.O_RDONLY))
            except OSError as error:
                raise click.ClickException(f"{name}: {error.strerror}") from None
        yield opened or [sys.stdin.fileno()]
    finally:
        for descriptor in opened:
            os.close(descriptor)


@contextlib.contextmanager
def _progress(inputs: list[int]) -> Iterator[Callable[[int], None]]:
    """A bar, where the end is known and somebody looks."""
    states = [os.fstat(descriptor) for descriptor in inputs]
    if not sys.stderr.isatty() or not all(stat.S_ISREG(state.st_mode) for state in states):
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=sum(state.st_size for state in states))
        yield lambda size: bar.advance(task, size)


async def read_lines(
    descriptor: int, advance: Callable[[int], None] = lambda size: None
) -> AsyncIterator[bytes]:
    """Lines without their ends, as soon as they are there; the loop goes on meanwhile."""
    rest = b""
    async for chunk in _read_chunks(descriptor):
        advance(len(chunk))
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def _read_chunks(descriptor: int) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while True:
        is_readable = asyncio.Event()
        # Watched only while we wait: a reader that is not read from would spin the loop.
        with contextlib.suppress(PermissionError):  # A regular file is always readable.
            loop.add_reader(descriptor, is_readable.set)
            try:
                await is_readable.wait()
            finally:
                loop.remove_reader(descriptor)
        chunk = os.read(descriptor, READ_BYTES)
        if not chunk:
            return
        yield chunk
