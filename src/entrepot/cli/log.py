"""`entrepot log`: a data directory without a broker. Reads only."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from entrepot.cli.talk import json_option, progress
from entrepot.log import layout

if TYPE_CHECKING:
    from entrepot.core.batch import BatchHeader
    from entrepot.core.ports import File
    from entrepot.log.disk import FileDisk

directory_argument = click.argument(
    "directory", metavar="DIR", type=click.Path(exists=True, file_okay=False)
)


@click.group()
def log() -> None:
    """Look into a data directory: verify it, dump it."""


@log.command()
@directory_argument
@json_option
def verify(directory: str, as_json: bool) -> None:
    """Check every batch of every segment in DIR.

    Exit code 1 when something is corrupt: damage in what was permanent. A tail that was
    never permanent, as a crash leaves it, is reported and is no error: the broker cuts
    it off when it starts. Verify while no broker runs; beside a running one the ends of
    the last segments are in motion.
    """
    from entrepot.log.verify import Verdict, verify

    disk = _disk(directory)
    counts = dict.fromkeys(Verdict, 0)
    with progress(_log_bytes(directory), of_bytes=True) as advance:
        for report in verify(disk):
            counts[report.verdict] += 1
            advance(report.size)
            if as_json:
                document = {name: getattr(report, name) for name in report.__slots__}
                click.echo(json.dumps(document))
            elif report.verdict is not Verdict.GOOD:
                reason = f": {report.detail}" if report.detail else ""
                click.echo(f"{report.path}: {report.verdict}{reason}")
    if not as_json:
        total = sum(counts.values())
        found = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        click.echo(f"{total} segment{'' if total == 1 else 's'}" + (f": {found}" if found else ""))
    if counts[Verdict.CORRUPT]:
        sys.exit(1)


@log.command()
@directory_argument
@click.option("-t", "--topic", help="Only this one's partitions.")
@click.option("-p", "--partition", type=click.IntRange(0), help="Only partitions of this number.")
@click.option("-r", "--records", "with_records", is_flag=True, help="Also what is in the batches.")
@json_option
def dump(
    directory: str, topic: str | None, partition: int | None, with_records: bool, as_json: bool
) -> None:
    """Print the batches in DIR, segment by segment.

    Where a segment cannot be read on, that is said, and the next one follows; the exit
    code is 1 then.
    """
    disk = _disk(directory)
    is_damaged = False
    for name in disk.names(layout.PARTITIONS):
        of_topic, _, index = name.rpartition("-")
        if topic not in (None, of_topic) or partition not in (None, int(index)):
            continue
        for file_name in disk.names(f"{layout.PARTITIONS}/{name}"):
            if layout.offset_of(file_name, layout.SEGMENT) is not None:
                path = f"{layout.PARTITIONS}/{name}/{file_name}"
                is_damaged |= not _dump_segment(disk, path, with_records, as_json)
    if is_damaged:
        sys.exit(1)


def _dump_segment(disk: "FileDisk", path: str, with_records: bool, as_json: bool) -> bool:
    """Whether it could be read to its end."""
    from entrepot.core.batch import check, records
    from entrepot.core.errors import InvalidBatch

    if not as_json:
        click.echo(path)
    position = 0
    try:
        for position, batch in _batches(disk.open(path)):
            header = check(batch, allow_gaps=True)
            facts = {"segment": path, "position": position, **_facts(header)}
            click.echo(json.dumps(facts) if as_json else _batch_line(facts))
            for record in records(batch) if with_records else ():
                shown = {
                    "offset": record.offset,
                    "timestamp": record.timestamp_ms,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                }
                click.echo(json.dumps(shown) if as_json else f"    {json.dumps(shown)}")
    except InvalidBatch as error:
        click.echo(f"{path}: damaged at or after byte {position}: {error}", err=True)
        return False
    return True


def _batches(file: "File") -> "Iterator[tuple[int, bytes]]":
    """Position and bytes of each batch, unchecked."""
    from entrepot.core.batch import HEADER_BYTES, read_header
    from entrepot.core.errors import InvalidBatch

    position, end = 0, file.size()
    while position < end:
        size = read_header(file.read(position, HEADER_BYTES)).size
        if not HEADER_BYTES <= size <= end - position:
            raise InvalidBatch(f"a batch of {size} bytes with {end - position} left in the file")
        yield position, file.read(position, size)
        position += size


def _facts(header: "BatchHeader") -> dict[str, object]:
    return {
        "offset_first": header.offset_first,
        "offset_last": header.offset_last,
        "count": header.count,
        "size": header.size,
        "codec": header.codec.name.lower(),
        "timestamp_max": header.timestamp_max,
        "is_append_time": header.is_append_time,
        "leader_epoch": header.leader_epoch,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "sequence_first": header.sequence_first,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
    }


def _batch_line(facts: dict[str, object]) -> str:
    line = (
        "  byte {position}: offsets {offset_first} to {offset_last}, {count} records, "
        "{size} bytes, {codec}, time {timestamp_max}".format(**facts)
    )
    if facts["producer_id"] != -1:
        line += ", producer {producer_id}/{producer_epoch} from {sequence_first}".format(**facts)
    return line + (", control" if facts["is_control"] else "")


def _text(data: bytes | None) -> str | None:
    """For looking at: what is not text shows as escapes."""
    return None if data is None else data.decode(errors="backslashreplace")


def _disk(directory: str) -> "FileDisk":
    from entrepot.log.disk import FileDisk

    if not (Path(directory) / layout.PARTITIONS).is_dir():
        raise click.ClickException(f"{directory}: not a broker's data directory")
    return FileDisk(directory)


def _log_bytes(directory: str) -> int:
    partitions = Path(directory) / layout.PARTITIONS
    return sum(path.stat().st_size for path in partitions.glob(f"*/*{layout.SEGMENT}"))
