"""The checker finds what it is for: each kind of mistake, planted."""

from collections.abc import Callable

import pytest

from tests.cluster.history import KINDS, At, History, Record, tally

P, Q = ("t", 0), ("t", 1)


def honest() -> tuple[History, dict[tuple[str, int], list[tuple[int, Record]]]]:
    """What happened to a log that keeps its promises."""
    history = History()
    final: dict[tuple[str, int], list[tuple[int, Record]]] = {P: [], Q: []}
    for number in range(8):
        record = Record("a", number)
        history.note_sent(record)
        if number == 5:
            continue  # Never answered, and not there.
        part = (P, Q)[number % 2]
        at = At(*part, len(final[part]) * 2)  # Markers of transactions are between.
        final[part].append((at.offset, record))
        if number != 3:
            history.note_acknowledged(record, at)
        if number < 6:
            history.note_seen(at, record)
    history.note_committed([Record("a", 6), Record("a", 7)])
    history.note_sent(Record("b", 0))
    history.note_aborted([Record("b", 0)])
    return history, final


def test_an_honest_log_is_not_blamed() -> None:
    history, final = honest()
    assert history.check(final) == []


Change = Callable[[History, dict[tuple[str, int], list[tuple[int, Record]]]], object]


@pytest.mark.parametrize(
    ("kinds", "change"),
    [
        (["lost"], lambda history, final: history.note_acknowledged(Record("a", 5), At(*P, 9))),
        (["lost", "torn"], lambda history, final: final[P].pop()),
        (["lost"], lambda h, final: h.note_acknowledged(Record("a", 0), At(*P, 2))),
        (["duplicated"], lambda history, final: final[P].append((99, Record("a", 6)))),
        (["reordered", "duplicated"], lambda h, final: final[P].append((99, Record("a", 0)))),
        (["dirty"], lambda history, final: history.note_seen(At(*P, 98), Record("a", 5))),
        (["dirty"], lambda history, final: history.note_seen(At(*P, 0), Record("a", 1))),
        (["torn"], lambda history, final: history.note_committed([Record("a", 5)])),
        (["undone"], lambda history, final: final[Q].append((99, Record("b", 0)))),
        (["invented"], lambda history, final: final[Q].append((99, Record("c", 0)))),
    ],
)
def test_each_mistake_is_found(kinds: list[str], change: Change) -> None:
    history, final = honest()
    change(history, final)
    counts = tally(history.check(final))
    assert [kind for kind in KINDS if counts[kind]] == sorted(kinds, key=KINDS.index)
