"""Tables and topics, both ways, against a real broker and real databases.

SQLite here; compat/connect/run.sh has the same on PostgreSQL and MariaDB.
"""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from entrepot.connect import ConnectError
from entrepot.testing import Broker
from tests.end_to_end.connecting import Process, describe, received, run_once, send
from tests.end_to_end.databases import Trial, open_trial, trials


@pytest.fixture(params=trials())
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    opened = open_trial(request.param, tmp_path)
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return "".join(c if c.isalnum() else "-" for c in request.node.name)[:200]


def values(server: Broker, topic: str) -> list[Any]:
    return [
        value and json.loads(value) for value in map(value_of, received(server.bootstrap, topic))
    ]


def value_of(message: Any) -> bytes | None:
    found: bytes | None = message.value()
    return found


def make_orders(database: Trial) -> None:
    database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer VARCHAR(50), at DATE)")


def test_a_query_reads_each_row_once(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    make_orders(database)
    database.execute("INSERT INTO orders VALUES (1, 'ana', '2030-01-31'), (2, 'b''s', NULL)")
    options = {**database.options, "table": "orders", "incrementing": "id", "key": ["id"]}
    path = describe(tmp_path, topic, f"{database.name}-source", topic=topic, options=options)
    run_once(server.bootstrap, path)
    database.execute("INSERT INTO orders VALUES (7, 'eve', NULL)")
    run_once(server.bootstrap, path)
    assert values(server, topic) == [
        {"id": 1, "customer": "ana", "at": "2030-01-31"},
        {"id": 2, "customer": "b's", "at": None},
        {"id": 7, "customer": "eve", "at": None},
    ]
    assert [each.key() for each in received(server.bootstrap, topic)] == [b"1", b"2", b"7"]


def test_a_timestamp_shows_changed_rows(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE notes (id INTEGER PRIMARY KEY, text VARCHAR(50), at TIMESTAMP)")
    database.execute("INSERT INTO notes VALUES (1, 'one', '2030-01-01 10:00:00')")
    database.execute("INSERT INTO notes VALUES (2, 'two', '2030-01-01 10:00:00')")
    query = "SELECT id, text, at FROM notes WHERE text NOT LIKE '%secret%'"
    options = {**database.options, "query": query, "incrementing": "id", "timestamp": "at"}
    path = describe(
        tmp_path,
        topic,
        f"{database.name}-source",
        topic=topic,
        batch={"records": 1},
        options=options,
    )
    run_once(server.bootstrap, path)
    database.execute("UPDATE notes SET text = 'uno', at = '2030-01-01 11:00:00' WHERE id = 1")
    run_once(server.bootstrap, path)
    assert [row["text"] for row in values(server, topic)] == ["one", "two", "uno"]


def test_a_change_log_tells_everything(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    make_orders(database)
    database.execute("INSERT INTO orders VALUES (1, 'ana', NULL)")
    options = {**database.options, "tables": ["orders"], "install": True, "snapshot": True}
    path = describe(tmp_path, topic, f"{database.name}-changes", topic=topic, options=options)
    run_once(server.bootstrap, path)
    database.execute("INSERT INTO orders VALUES (2, 'bob', NULL)")
    database.execute("UPDATE orders SET customer = 'Bob' WHERE id = 2")
    database.execute("UPDATE orders SET id = 3 WHERE id = 2")
    database.execute("DELETE FROM orders WHERE id = 1")
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)

    def short(row: dict[str, Any] | None) -> Any:
        return row and (row["id"], row["customer"])

    found = [(v["op"], short(v["before"]), short(v["after"])) for v in values(server, topic)]
    assert found == [
        ("snapshot", None, (1, "ana")),
        ("insert", None, (2, "bob")),
        ("update", (2, "bob"), (2, "Bob")),
        ("delete", (2, "Bob"), None),  # To those who go by keys, a new key is a new row.
        ("insert", None, (3, "Bob")),
        ("delete", (1, "ana"), None),
    ]
    keys = [each.key() for each in received(server.bootstrap, topic)]
    assert keys == [b"1", b"2", b"2", b"2", b"3", b"1"]
    assert database.execute("SELECT count(*) FROM entrepot_changes") == [(0,)]


def test_a_column_added_later_is_in_the_change_log(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    make_orders(database)
    options = {**database.options, "tables": ["orders"], "install": True}
    path = describe(tmp_path, topic, f"{database.name}-changes", topic=topic, options=options)
    run_once(server.bootstrap, path)
    database.execute("ALTER TABLE orders ADD COLUMN note VARCHAR(20)")
    run_once(server.bootstrap, path)  # Which looks at the triggers.
    database.execute("INSERT INTO orders VALUES (1, 'ana', NULL, 'new')")
    run_once(server.bootstrap, path)
    assert [value["after"]["note"] for value in values(server, topic)] == ["new"]


def test_records_become_rows(server: Broker, database: Trial, topic: str, tmp_path: Path) -> None:
    make_orders(database)
    send(
        server.bootstrap,
        topic,
        ("1", '{"id": 1, "customer": "ana"}'),
        ("2", '{"customer": "bob"}'),  # The key says the rest.
        ('{"id": 3}', '{"customer": "eve", "at": "2030-01-31"}'),
        ("1", '{"id": 1, "customer": "Ana"}'),
        ("2", None),
    )
    options = {**database.options, "table": "orders"}
    path = describe(tmp_path, topic, f"{database.name}-sink", topic=topic, options=options)
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    found = database.execute("SELECT id, customer FROM orders ORDER BY id")
    assert found == [(1, "Ana"), (3, "eve")]
    assert database.execute("SELECT next_offset FROM entrepot_offsets") == [(5,)]


def test_poison_goes_to_the_dead_letters_and_the_rest_goes_on(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE parts (id INTEGER PRIMARY KEY, name VARCHAR(9) NOT NULL)")
    send(
        server.bootstrap,
        topic,
        ("1", '{"name": "one"}'),
        ("2", "not JSON"),
        ("3", '{"name": null}'),  # Which only the database finds.
        ("4", '{"colour": "red"}'),
        ("5", '{"name": "five"}'),
    )
    options = {**database.options, "table": "parts"}
    connector, letters = f"{database.name}-sink", f"{topic}.dead"
    path = describe(tmp_path, topic, connector, topic=topic, options=options)
    with pytest.raises(ConnectError, match=f"topic {topic}, partition 0, offset 1: not JSON"):
        run_once(server.bootstrap, path)
    assert database.execute("SELECT id FROM parts") == []
    errors = {"dead_letters": letters}
    path = describe(tmp_path, topic, connector, topic=topic, options=options, errors=errors)
    run_once(server.bootstrap, path)
    assert database.execute("SELECT id FROM parts ORDER BY id") == [(1,), (5,)]
    dead = received(server.bootstrap, letters)
    assert sorted(each.key() for each in dead) == [b"2", b"3", b"4"]
    offsets = [dict(each.headers())["entrepot-offset"] for each in dead]
    assert sorted(offsets) == [b"1", b"2", b"3"]


def test_a_table_is_mirrored_by_its_changes(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    make_orders(database)
    database.execute("CREATE TABLE mirror (id INTEGER PRIMARY KEY, customer VARCHAR(50), at DATE)")
    options = {**database.options, "tables": ["orders"], "install": True, "tombstones": True}
    source = describe(
        tmp_path, f"{topic}-out", f"{database.name}-changes", topic=topic, options=options
    )
    options = {**database.options, "table": "mirror", "changes": True}
    sink = describe(tmp_path, f"{topic}-in", f"{database.name}-sink", topic=topic, options=options)
    run_once(server.bootstrap, source)
    database.execute("INSERT INTO orders VALUES (1, 'ana', NULL), (2, 'bob', '2030-01-31')")
    database.execute("UPDATE orders SET customer = 'Bob', id = 20 WHERE id = 2")
    database.execute("DELETE FROM orders WHERE id = 1")
    run_once(server.bootstrap, source)
    run_once(server.bootstrap, sink)
    rows = database.execute("SELECT * FROM orders ORDER BY id")
    assert rows != []
    assert database.execute("SELECT * FROM mirror ORDER BY id") == rows


def test_two_sinks_of_one_name_do_not_write_twice(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    database.execute("CREATE TABLE seen (n INTEGER)")
    send(server.bootstrap, topic, '{"n": 0}')
    options = {**database.options, "table": "seen", "mode": "insert"}
    path = describe(
        tmp_path,
        topic,
        f"{database.name}-sink",
        topic=topic,
        options=options,
        errors={"patience_s": 1},
    )
    run_once(server.bootstrap, path)
    first = Process(path, server.bootstrap)
    first.start()
    try:
        send(server.bootstrap, topic, '{"n": 1}')
        wait_until(lambda: len(database.execute("SELECT n FROM seen")) == 2)
        # Somebody else moves the offset on: the first must not go on from its own.
        database.execute("UPDATE entrepot_offsets SET next_offset = 3")
        send(server.bootstrap, topic, '{"n": 2}')
        wait_until(lambda: not first.is_running())
    finally:
        first.stop()
    assert "runs in another process, too" in first.log_path.read_text()
    assert database.execute("SELECT n FROM seen ORDER BY n") == [(0,), (1,)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_table_is_copied_once_through_kills_and_disturbances(
    server: Broker, database: Trial, topic: str, tmp_path: Path
) -> None:
    for table in ("numbers", "copies"):
        database.execute(f"CREATE TABLE {table} (n INTEGER PRIMARY KEY)")
    options = {**database.options, "tables": ["numbers"], "install": True}
    settings: dict[str, Any] = {"topic": topic, "poll_ms": 20, "batch": {"records": 20}}
    source = describe(
        tmp_path, f"{topic}-out", f"{database.name}-changes", options=options, **settings
    )
    # Inserted, not upserted: what came twice would be poison, and end the sink.
    options = {**database.options, "table": "copies", "changes": True, "mode": "insert"}
    sink = describe(tmp_path, f"{topic}-in", f"{database.name}-sink", options=options, **settings)
    processes = [Process(path, server.bootstrap) for path in (source, sink)]
    run_once(server.bootstrap, source)  # Which makes the triggers.
    for process in processes:
        process.start()
    try:
        for number in range(900):
            database.execute(f"INSERT INTO numbers VALUES ({number})")
            if number % 100 == 50:
                processes[number // 100 % 2].kill()
                processes[number // 100 % 2].start()
            if number % 300 == 299:
                time.sleep(1.5)
                database.disturb()
        wait_until(lambda: database.execute("SELECT count(*) FROM copies") == [(900,)])
    finally:
        codes = [process.stop() for process in processes]
    assert codes == [0, 0], [process.log_path.read_text() for process in processes]
    found = [json.loads(each.value())["after"]["n"] for each in received(server.bootstrap, topic)]
    assert sorted(found) == list(range(900))


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)
