"""Damage of every kind in every kind of file, and what becomes of it.

    python -m tests.crash.corrupter [--seed N] [--random COUNT] [--only TEXT]

A directory with something of everything (`full_house`) is copied, one file of it is damaged, a
broker is started on the copy, and everything is read back; where something is refused, twice.
Each row of the table is one damage:

    whole     all of it came back
    refused   what is missing was refused, with a reason, and the log says where
    cut       after a kill only: what was not known to be permanent ends before the damage, and
              the log says so, because damage cannot be told there from an unfinished write
    short     after a kill only: what was not known to be permanent is gone, to the last byte of
              a batch, and nothing is left that could tell
    LOST      something else came back, without a word
    UNSAID    refused, and the log does not say where
    CRASHED   a traceback
    HUNG      no start, and no answer

The exit code is 1 when there is one of the last four.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from entrepot.core import batch
from entrepot.core.errors import StorageError
from tests.crash.full_house import Refused, furnish, live, log_lines, read_back

CLEAN, KILLED = "stopped", "killed"

# The last byte of each field of a batch, and of its body.
FIELDS = {
    "offset": 7,
    "high offset": 4,
    "length": 11,
    "epoch": 15,
    "magic": 16,
    "checksum": 20,
    "attributes": 22,
    "last offset": 26,
    "first time": 34,
    "largest time": 42,
    "producer": 50,
    "producer epoch": 52,
    "sequence": 56,
    "count": 60,
    "body": -1,
}
SHAPES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte short": lambda data: data[:-1],
    "one byte more": lambda data: data + b"\0",
}
SEGMENTS = {
    "topic": "partitions/events-0",
    "compacted topic": "partitions/latest-0",
    "queue": "partitions/jobs-0",
    "catalog": "partitions/__catalog-0",
    "offsets": "partitions/__consumer_offsets-*",
    "ledgers": "partitions/__queue_ledgers-0",
    "share groups": "partitions/__share_group_state-0",
    "transactions": "partitions/__transaction_state-*",
}
OTHERS = {
    "seal": "partitions/events-0/*.index",
    "seal of a compacted one": "partitions/latest-0/*.index",
    "view": "partitions/events-0/*.view",
    "clean checkpoint": "clean.checkpoint",
    "recovery checkpoint": "recovery.checkpoint",
    "cleaner checkpoint": "cleaner.checkpoint",
    "journal": "journal/*.journal",
}


class DamageOutcome(StrEnum):
    WHOLE = "whole"
    REFUSED = "refused"
    CUT = "cut"
    SHORT = "short"
    LOST = "LOST"
    UNSAID = "UNSAID"
    CRASHED = "CRASHED"
    HUNG = "HUNG"


BAD = (DamageOutcome.LOST, DamageOutcome.UNSAID, DamageOutcome.CRASHED, DamageOutcome.HUNG)


class Damage(NamedTuple):
    state: str  # How the broker ended.
    kind: str  # Of file.
    path: str
    what: str
    position: int | None = None  # Of the byte that changes.
    shape: str | None = None  # Of what is left; None: nothing is, if no byte changes.


class Row(NamedTuple):
    damage: Damage
    outcome: DamageOutcome
    why: str


class Corrupter:
    """Damaged copies of two directories: of a broker that was stopped, and of one killed."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._expected: dict[str, dict[str, object]] = {}
        for state in (CLEAN, KILLED):
            furnish(root / state, stops=state == CLEAN)
            shutil.copytree(root / state, root / "copy")
            self._expected[state] = live(root / "copy", read_back, stops=True)
            shutil.rmtree(root / "copy")

    # --- what to do

    def damages(self) -> Iterator[Damage]:
        """Each kind of file, each class of its bytes."""
        for state in (CLEAN, KILLED):
            for kind, pattern in SEGMENTS.items():
                for name, path in self._ends(state, f"{pattern}/*.log"):
                    for what, position in _fields(self._root / state / path):
                        yield Damage(state, f"{kind}, {name}", path, what, position)
                    yield from _shapes(state, f"{kind}, {name}", path)
            for kind, pattern in OTHERS.items():
                for name, path in self._ends(state, pattern):
                    size = (self._root / state / path).stat().st_size
                    for what, position in _spread(size).items():
                        yield Damage(state, f"{kind}, {name}", path, what, position)
                    yield from _shapes(state, f"{kind}, {name}", path)

    def random_damages(self, seed: int, count: int) -> Iterator[Damage]:
        """A bit of any file."""
        chance = random.Random(seed)
        for _ in range(count):
            state = chance.choice((CLEAN, KILLED))
            path = chance.choice([each for each in self._files(state, "**/*") if each != "lock"])
            size = (self._root / state / path).stat().st_size
            if size:
                yield Damage(state, "any", path, "a byte", chance.randrange(size))

    def _ends(self, state: str, pattern: str) -> list[tuple[str, str]]:
        found = [each for each in self._files(state, pattern) if self._size(state, each)]
        named = {"first": found[0], "last": found[-1]} if found else {}
        if len(found) == 1:
            named.pop("first")
        return list(named.items())

    def _files(self, state: str, pattern: str) -> list[str]:
        home = self._root / state
        found = sorted(each for each in home.glob(pattern) if each.is_file())
        return [str(each.relative_to(home)) for each in found]

    def _size(self, state: str, path: str) -> int:
        return (self._root / state / path).stat().st_size

    # --- doing it

    def run(self, damage: Damage) -> Row:
        copy = self._root / "copy"
        shutil.copytree(self._root / damage.state, copy)
        try:
            _apply(copy / damage.path, damage)
            row = self._judge(copy, damage)
            if row.outcome is DamageOutcome.REFUSED:  # So it is at the next start.
                again = self._judge(copy, damage)
                row = again if again.outcome in BAD else row
            return row
        finally:
            shutil.rmtree(copy)

    def _judge(self, copy: Path, damage: Damage) -> Row:
        with log_lines() as said:
            try:
                found = live(copy, read_back, stops=True)
            except StorageError as error:
                is_told = damage.path.rpartition("/")[0] in str(error)
                return Row(
                    damage, DamageOutcome.REFUSED if is_told else DamageOutcome.UNSAID, str(error)
                )
            except TimeoutError:
                return Row(damage, DamageOutcome.HUNG, "")
            except Exception:
                return Row(damage, DamageOutcome.CRASHED, traceback.format_exc())
        expected = self._expected[damage.state]
        missing = {name: each for name, each in found.items() if each != expected[name]}
        if not missing:
            return Row(damage, DamageOutcome.WHOLE, "; ".join(said))
        place = damage.path.rpartition("/")[0] or damage.path
        lines = [line for line in said if place in line]
        others = {name: each for name, each in missing.items() if not isinstance(each, Refused)}
        if others and damage.state == KILLED and any("cut off" in line for line in lines):
            return Row(damage, DamageOutcome.CUT, "; ".join(lines))
        if others and self._is_short(damage):
            return Row(damage, DamageOutcome.SHORT, ", ".join(others))
        if others:
            return Row(damage, DamageOutcome.LOST, f"{others} instead of what was; said: {said}")
        refused = [each for each in missing.values() if isinstance(each, Refused)]
        reasons = "; ".join(dict.fromkeys(each.reason for each in refused))
        is_said = bool(lines) or all(each.by_client for each in refused)
        return Row(damage, DamageOutcome.REFUSED if is_said else DamageOutcome.UNSAID, reasons)

    def _is_short(self, damage: Damage) -> bool:
        """Whether a last segment ends sooner, where a batch does."""
        if damage.state != KILLED or damage.position is not None:
            return False
        path = self._root / damage.state / damage.path
        if path.suffix != ".log" or path != max(path.parent.glob("*.log")):
            return False
        data = path.read_bytes()
        left = b"" if damage.shape is None else SHAPES[damage.shape](data)
        ends = [0, *(position + header.size for position, header in batch.walk(data))]
        return len(left) in ends


def _apply(path: Path, damage: Damage) -> None:
    if damage.position is not None:
        data = bytearray(path.read_bytes())
        data[damage.position] ^= 0x04
        path.write_bytes(data)
    elif damage.shape is not None:
        path.write_bytes(SHAPES[damage.shape](path.read_bytes()))
    else:
        path.unlink()


def _fields(path: Path) -> Iterator[tuple[str, int]]:
    """Of the first batch, one in the middle, and the last."""
    data = path.read_bytes()
    starts = [(position, header.size) for position, header in batch.walk(data)]
    chosen = {"first": starts[0], "middle": starts[len(starts) // 2], "last": starts[-1]}
    seen: dict[int, None] = {}
    for name, (start, size) in chosen.items():
        if start not in seen:
            seen[start] = None
            for field, at in FIELDS.items():
                yield f"{field} of the {name} batch", start + at % size


def _spread(size: int) -> dict[str, int]:
    """Bytes all over a file."""
    places = {"first byte": 0, "fifth": 4, "ninth": 8, "at a quarter": size // 4}
    places |= {"in the middle": size // 2, "last byte": size - 1}
    return {name: place for name, place in places.items() if place < size}


def _shapes(state: str, kind: str, path: str) -> Iterator[Damage]:
    for shape in SHAPES:
        yield Damage(state, kind, path, shape, shape=shape)
    yield Damage(state, kind, path, "removed")


def table(rows: list[Row]) -> Iterator[str]:
    """A line for each kind of file and outcome; all of the bad ones."""
    counts = Counter((row.damage.state, row.damage.kind, row.outcome) for row in rows)
    kinds = dict.fromkeys((row.damage.state, row.damage.kind) for row in rows)
    yield f"{'ended':8} {'file':30} " + " ".join(f"{each:>8}" for each in DamageOutcome)
    for state, kind in kinds:
        cells = " ".join(f"{counts[state, kind, each] or '':>8}" for each in DamageOutcome)
        yield f"{state:8} {kind:30} {cells}"
    for row in rows:
        if row.outcome in BAD:
            damage = row.damage
            yield f"{row.outcome} {damage.state} {damage.path}, {damage.what}: {row.why[:1500]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of the damages that chance makes")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="so many of those")
    parser.add_argument("--only", default="", help="kinds of file whose name has this in it")
    parser.add_argument("--verbose", action="store_true", help="print every row")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as root:
        corrupter = Corrupter(Path(root))
        damages = [each for each in corrupter.damages() if chosen.only in each.kind]
        damages += corrupter.random_damages(chosen.seed, chosen.random)
        rows = []
        for damage in damages:
            rows.append(corrupter.run(damage))
            if chosen.verbose:
                print(*rows[-1].damage[:4], rows[-1].outcome, rows[-1].why[:300], flush=True)
    print("\n".join(table(rows)))
    print(f"{len(rows)} damages, seed {chosen.seed}")
    sys.exit(any(row.outcome in BAD for row in rows))


if __name__ == "__main__":
    main()
