"""What comes late or twice is done in order and once, through crashes."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest

from entrepot.in_order import InOrder, TooFarAhead


def opened(path: Path | str = ":memory:") -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.execute("create table if not exists done (number integer, body blob)")
    connection.commit()
    return connection


def done(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
    return connection.execute("select number, body from done order by rowid").fetchall()


def test_in_the_order_of_the_numbers_and_once() -> None:
    connection = opened()

    @InOrder(connection)
    def book(number: int, body: bytes) -> None:
        connection.execute("insert into done values (?, ?)", [number, body])

    assert book(1, b"b") == []
    assert book(1, b"b") == []
    assert book(3, b"d") == []
    assert book(0, b"a") == [0, 1]
    assert book(0, b"a") == []
    assert book(1, b"b") == []
    assert book(2, b"c") == [2, 3]
    assert done(connection) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_any_order_with_resends_and_crashes_comes_out_the_same(tmp_path: Path) -> None:
    """Work that fails, and a process that dies, leave nothing half done."""
    for seed in range(30):
        chance = random.Random(seed)
        path = tmp_path / f"{seed}.db"
        coming = [*range(20), *chance.choices(range(20), k=10)]
        chance.shuffle(coming)
        while coming:
            connection = opened(path)
            order = InOrder(connection)
            fails_at = chance.randrange(25)

            def work(
                number: int,
                body: bytes,
                fails_at: int = fails_at,
                connection: sqlite3.Connection = connection,
            ) -> None:
                connection.execute("insert into done values (?, ?)", [number, body])
                if number == fails_at:
                    raise RuntimeError

            take = order(work)
            try:
                while coming:
                    take(coming[0], b"%d" % coming[0])
                    coming.pop(0)
            except RuntimeError:  # Nothing was acknowledged: it comes again.
                chance.shuffle(coming)
            connection.close()
        connection = opened(path)
        assert done(connection) == [(number, b"%d" % number) for number in range(20)]
        assert InOrder(connection).next == 20


def test_what_waits_is_bounded() -> None:
    take = InOrder(opened(), waiting_max=2, first=7)(lambda number, body: None)
    assert [take(number, b"") for number in (8, 9, 8)] == [[], [], []]
    with pytest.raises(TooFarAhead, match="2 messages wait for number 7"):
        take(10, b"")
    assert take(7, b"") == [7, 8, 9]


def test_a_name_of_a_table_is_a_name() -> None:
    with pytest.raises(ValueError, match="no name"):
        InOrder(opened(), table="a; drop table done")
