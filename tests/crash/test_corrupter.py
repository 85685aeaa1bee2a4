"""Damaged files: what comes back is whole, or refused with a reason that the log has, too."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.crash.corrupter import (
    BAD,
    CLEAN,
    OTHERS,
    SEGMENTS,
    Corrupter,
    Damage,
    DamageOutcome,
    Row,
    table,
)

QUICK = ("body of the first batch", "offset of the last batch", "length of the first batch")
# A bad disk's doings that the file's name alone could tell: see `log.recovery`.
UNTOLD = {("killed", "topic, first", "removed")}


@pytest.fixture(scope="module")
def corrupter() -> Iterator[Corrupter]:
    """In memory where there is such a place: it is about what is read, not about the disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as root:
        yield Corrupter(Path(root))


def is_expected(row: Row) -> bool:
    damage = row.damage
    is_untold = (damage.state, damage.kind, damage.what) in UNTOLD
    return row.outcome not in BAD or (is_untold and row.outcome is DamageOutcome.LOST)


def check(rows: list[Row]) -> None:
    assert all(map(is_expected, rows)), "\n".join(table(rows))


@pytest.mark.slow
def test_a_few_of_each(corrupter: Corrupter) -> None:
    def is_chosen(damage: Damage) -> bool:
        if damage.state != CLEAN or "first" in damage.kind:
            return False
        return damage.what in (*QUICK, "half") or (not damage.position and not damage.shape)

    rows = [corrupter.run(each) for each in corrupter.damages() if is_chosen(each)]
    check(rows)
    refused = [row.damage.kind for row in rows if row.outcome is DamageOutcome.REFUSED]
    for kind in ("topic", "queue", "catalog", "offsets", "ledgers", "share groups", "transactions"):
        assert refused.count(f"{kind}, last") >= len(QUICK), kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*SEGMENTS, *OTHERS])
def test_all_of_each(corrupter: Corrupter, kind: str) -> None:
    damages = [each for each in corrupter.damages() if each.kind.rpartition(",")[0] == kind]
    assert damages
    check([corrupter.run(each) for each in damages])


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_any_byte(corrupter: Corrupter, number: int) -> None:
    check([corrupter.run(each) for each in corrupter.random_damages(number, 100)])


def test_the_corrupter_can_fail(corrupter: Corrupter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that checks nothing is found out."""
    monkeypatch.setattr("entrepot.log.reading.check", lambda data, **options: None)
    damages = [each for each in corrupter.damages() if each.kind == "offsets, last"]
    rows = [corrupter.run(each) for each in damages if each.what == QUICK[0]]
    assert rows
    assert {row.outcome for row in rows} & set(BAD)
