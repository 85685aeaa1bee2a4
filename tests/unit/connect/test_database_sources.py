"""The change log of a SQLite database, through crashes and late commits."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from entrepot.connect.database import NAME_SIZE_MAX, trigger_name
from entrepot.connect.database_sources import ranges
from entrepot.connect.interface import ConnectError, Polled
from tests.unit.connect.alone import Bench, drain, run


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(tmp_path / "x.db", isolation_level=None)) as opened:
        opened.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, blob BLOB)")
        yield opened


def changes(tmp_path: Path, **options: Any) -> Any:
    path = tmp_path / "x.db"
    return Bench().make("sqlite-changes", path=path, tables=["t"], **options)


def ids(values: list[bytes]) -> list[int]:
    return [json.loads(value)["after"]["id"] for value in values]


def test_a_crash_before_the_log_is_pruned_repeats_nothing(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    drain(changes(tmp_path, install=True))
    database.execute("INSERT INTO t VALUES (1, NULL), (2, NULL)")

    async def crash() -> Any:
        source = changes(tmp_path)
        await source.open(None)
        polled = await source.poll(10)
        await source.close()
        assert isinstance(polled, Polled)
        return polled.position

    position = run(crash())
    database.execute("INSERT INTO t VALUES (3, NULL)")
    assert ids(drain(changes(tmp_path), position)[0]) == [3]
    assert ids(drain(changes(tmp_path), None)[0]) == []


def test_a_change_that_is_committed_late_is_not_passed_over(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    """As when its writer took a number first and committed last."""
    drain(changes(tmp_path, install=True))
    database.execute("INSERT INTO t VALUES (1, NULL)")
    database.execute("INSERT INTO t VALUES (2, NULL)")
    late = database.execute("SELECT * FROM entrepot_changes WHERE id = 1").fetchone()
    database.execute("DELETE FROM entrepot_changes WHERE id = 1")
    found, position = drain(changes(tmp_path))
    assert ids(found) == [2]
    database.execute("INSERT INTO entrepot_changes VALUES (?, ?, ?, ?, ?, ?)", late)
    assert ids(drain(changes(tmp_path), position)[0]) == [1]


def test_bytes_become_hexadecimal(tmp_path: Path, database: sqlite3.Connection) -> None:
    database.execute("INSERT INTO t VALUES (1, x'00FF')")
    found, _ = drain(changes(tmp_path, install=True, snapshot=True))
    assert [json.loads(value)["after"] for value in found] == [{"id": 1, "blob": "00FF"}]


def test_without_a_change_log_it_says_what_to_do(
    tmp_path: Path, database: sqlite3.Connection
) -> None:
    with pytest.raises(ConnectError, match=r"no change log entrepot_changes; options\.install"):
        drain(changes(tmp_path))


def test_a_missing_table_or_column_is_named(tmp_path: Path, database: sqlite3.Connection) -> None:
    options = {"path": tmp_path / "x.db", "incrementing": "nr"}
    with pytest.raises(ConnectError, match="there is no table u"):
        drain(Bench().make("sqlite-source", table="u", **options))
    database.execute("INSERT INTO t VALUES (1, NULL)")
    with pytest.raises(ConnectError, match="no column nr"):
        drain(Bench().make("sqlite-source", table="t", **options))


def test_runs_of_numbers() -> None:
    assert ranges([]) == []
    assert ranges([1, 2, 3, 7, 9, 10]) == [[1, 3], [7, 7], [9, 10]]


def test_long_names_of_triggers_stay_apart() -> None:
    names = {trigger_name("entrepot_changes", "t" * 60 + end, "insert") for end in "ab"}
    assert len(names) == 2
    assert max(map(len, names)) <= NAME_SIZE_MAX


def test_a_row_without_a_number_hides_no_other(tmp_path: Path) -> None:
    """It is never read: nothing would say where to go on after it."""
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as opened:
        opened.execute("CREATE TABLE seen (number INTEGER, at INTEGER)")
        opened.execute("INSERT INTO seen VALUES (1, 10), (2, 20)")
        said = {"path": path, "table": "seen", "incrementing": "number", "timestamp": "at"}
        _, position = drain(Bench().make("sqlite-source", **said))
        opened.execute("INSERT INTO seen VALUES (NULL, 30)")
        found, position = drain(Bench().make("sqlite-source", **said), position)
        assert found == []
        opened.execute("INSERT INTO seen VALUES (3, 30)")
        found, _ = drain(Bench().make("sqlite-source", **said), position)
    assert [json.loads(value)["number"] for value in found] == [3]


def test_a_row_that_json_cannot_say_is_a_dead_letter(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as opened:
        opened.execute("CREATE TABLE measured (id INTEGER PRIMARY KEY, value REAL)")
        opened.execute("INSERT INTO measured VALUES (1, 1.5), (2, 9e999), (3, 2.5)")
    said = {"path": path, "table": "measured", "incrementing": "id"}
    found, position = drain(Bench().make("sqlite-source", **said))
    assert [each if isinstance(each, bytes) else each.where for each in found] == [
        b'{"id":1,"value":1.5}',
        "measured, id 2",
        b'{"id":3,"value":2.5}',
    ]
    assert position == {"incrementing": 3}
