"""Once for each id, also when something goes wrong in between."""

import sqlite3
from pathlib import Path

import pytest

from entrepot.once import Once


@pytest.fixture
def database(tmp_path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute("create table payments (euros integer)")
    connection.commit()
    return connection


def paid(database: sqlite3.Connection) -> list[int]:
    return [euros for (euros,) in database.execute("select euros from payments")]


def test_a_second_time_changes_nothing(database: sqlite3.Connection, tmp_path: Path) -> None:
    @Once(database)
    def pay(message_id: str, euros: int) -> None:
        database.execute("insert into payments values (?)", [euros])

    assert [pay("a", 1), pay("b", 2), pay("a", 1)] == [True, True, False]
    assert paid(database) == [1, 2]
    again = sqlite3.connect(tmp_path / "shop.db")

    @Once(again)
    def pay_later(message_id: str, euros: int) -> None:
        again.execute("insert into payments values (?)", [euros])

    assert [pay_later("a", 1), pay_later("c", 3)] == [False, True]
    assert paid(database) == [1, 2, 3]


def test_what_failed_is_not_done_and_may_be_tried_again(database: sqlite3.Connection) -> None:
    failing = [True, False]

    @Once(database)
    def pay(message_id: str, *, euros: int) -> None:
        database.execute("insert into payments values (?)", [euros])
        if failing.pop(0):
            raise OSError("the power fails")

    with pytest.raises(OSError, match="power"):
        pay("a", euros=1)
    assert paid(database) == []
    assert pay("a", euros=1)
    assert paid(database) == [1]


def test_two_kinds_of_work_do_not_know_each_other(database: sqlite3.Connection) -> None:
    done: list[str] = []
    assert Once(database, table="mails")(done.append)("a")
    assert Once(database, table="bills")(done.append)("a")
    assert done == ["a", "a"]


def test_a_connection_without_transactions_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    with pytest.raises(ValueError, match="commits by itself"):
        Once(connection)


def test_a_name_that_is_none(database: sqlite3.Connection) -> None:
    with pytest.raises(ValueError, match="no name of a table"):
        Once(database, table="a; drop table payments")
