"""Files, URLs and functions as connectors, against a real broker; and the command itself."""

import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from entrepot.connect import ConnectError, Message, Unavailable
from entrepot.connect.interface import SourceRecord
from entrepot.testing import Broker
from tests.end_to_end.connecting import (
    AT_LEAST_ONCE,
    EXPERIMENTS,
    Experiment,
    Inbox,
    Outcome,
    Process,
    describe,
    experiment,
    received,
    run_once,
    send,
)


def values(server: Broker, topic: str) -> list[bytes]:
    return [each.value() for each in received(server.bootstrap, topic)]


# --- files


def test_a_file_is_read_once(server: Broker, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,name\n1,ana\n2,"b,\nb"\n3\n')
    (tmp_path / "b.csv").write_text("name,id\neve,4\n")
    path = describe(
        tmp_path,
        "csv",
        "file-source",
        topic="csv",
        errors={"dead_letters": "csv.dead"},
        options={"path": tmp_path / "*.csv", "format": "csv", "key": "id"},
    )
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    found = [(each.key(), json.loads(each.value())) for each in received(server.bootstrap, "csv")]
    assert found == [
        (b"1", {"id": "1", "name": "ana"}),
        (b"2", {"id": "2", "name": "b,\nb"}),
        (b"4", {"name": "eve", "id": "4"}),
    ]
    (dead,) = received(server.bootstrap, "csv.dead")
    headers = dict(dead.headers())
    assert dead.value() == b"3"
    assert headers["entrepot-where"] == f"{tmp_path}/a.csv, byte 23".encode()
    assert headers["entrepot-error"] == b"1 fields, but there are 2 columns"


def test_poison_ends_a_source_that_has_no_place_for_it(server: Broker, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n{"n": \n')
    options = {"path": tmp_path / "in.jsonl", "format": "json"}
    path = describe(tmp_path, "strict", "file-source", topic="strict", options=options)
    with pytest.raises(ConnectError, match=r"in\.jsonl, byte 9: .*errors\.dead_letters is not set"):
        run_once(server.bootstrap, path)


def test_a_topic_is_appended_to_a_file(server: Broker, tmp_path: Path) -> None:
    target = tmp_path / "out.csv"
    options = {"path": target, "format": "csv", "columns": ["n", "text"]}
    path = describe(tmp_path, "filed", "file-sink", topic="filed", options=options)
    send(server.bootstrap, "filed", '{"n": 1, "text": "a \\"b\\"\\nc"}')
    run_once(server.bootstrap, path)
    with target.open("ab") as file:
        file.write(b"torn by a cra")  # After what is recorded: it never counted.
    send(server.bootstrap, "filed", '{"n": 2}')
    run_once(server.bootstrap, path)
    assert target.read_text() == 'n,text\n1,"a ""b""\nc"\n2,\n'


# --- HTTP


def test_records_are_posted_and_what_is_refused_is_put_aside(
    server: Broker, tmp_path: Path
) -> None:
    with Inbox(fails_every=3) as inbox:
        inbox.answer = lambda body: 400 if b"bad" in body else 200
        path = describe(
            tmp_path,
            "posted",
            "http-sink",
            topic="posted",
            errors={"dead_letters": "posted.dead"},
            options={"url": inbox.url, "headers": {"X-Token": "t"}},
        )
        send(server.bootstrap, "posted", "one", "bad", "two", "three")
        run_once(server.bootstrap, path)
        run_once(server.bootstrap, path)
    assert inbox.bodies == [b"one", b"two", b"three"]
    assert inbox.headers[0]["Idempotency-Key"] == '"posted/0/0"'
    assert inbox.headers[0]["X-Token"] == "t"
    (dead,) = received(server.bootstrap, "posted.dead")
    assert dead.value() == b"bad"
    assert b"400" in dict(dead.headers())["entrepot-error"]


def test_a_batch_is_posted_as_an_array(server: Broker, tmp_path: Path) -> None:
    with Inbox() as inbox:
        inbox.answer = lambda body: 422 if b'"x"' in body else 200
        options = {"url": inbox.url, "send": "array"}
        errors = {"dead_letters": "arrays.dead"}
        path = describe(
            tmp_path, "arrays", "http-sink", topic="arrays", errors=errors, options=options
        )
        send(server.bootstrap, "arrays", "1", '{"a":\n2}')
        run_once(server.bootstrap, path)
        send(server.bootstrap, "arrays", "3", '"x"', "4")
        run_once(server.bootstrap, path)
    assert inbox.bodies == [b'[1,{"a":2}]', b"[3]", b"[4]"]
    assert values(server, "arrays.dead") == [b'"x"']


@pytest.fixture
def page() -> Iterator[Any]:
    """A document over HTTP: set `items`, and it has changed."""

    class Handler(http.server.BaseHTTPRequestHandler):
        items: list[Any] = []  # noqa: RUF012 - A handler is made per request.
        paths: list[str] = []  # noqa: RUF012

        def do_GET(self) -> None:
            body = json.dumps({"data": {"items": type(self).items}}).encode()
            tag = f'"{hash(body)}"'
            is_known = self.headers.get("If-None-Match") == tag
            type(self).paths.append(self.path)
            self.send_response(304 if is_known else 200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", "0" if is_known else str(len(body)))
            self.end_headers()
            if not is_known:
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    handler = type("Page", (Handler,), {"items": [], "paths": []})
    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=serving.serve_forever, args=(0.01,), daemon=True).start()
    handler.url = f"http://127.0.0.1:{serving.server_address[1]}/list?all=1"  # type: ignore[attr-defined]
    yield handler
    serving.shutdown()
    serving.server_close()


def test_a_page_is_read_when_it_has_changed(server: Broker, tmp_path: Path, page: Any) -> None:
    options = {"url": page.url, "items": "data.items"}
    batch = {"records": 2}
    path = describe(tmp_path, "page", "http-source", topic="page", batch=batch, options=options)
    page.items = [1, 2, 3]
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    page.items = [1, 2, 3, 4]
    run_once(server.bootstrap, path)
    assert values(server, "page") == [b"1", b"2", b"3", b"1", b"2", b"3", b"4"]


def test_a_cursor_reads_only_what_is_new(server: Broker, tmp_path: Path, page: Any) -> None:
    options = {
        "url": page.url,
        "items": "data.items",
        "cursor": "id",
        "cursor_parameter": "since",
        "key": "id",
    }
    path = describe(tmp_path, "cursor", "http-source", topic="cursor", options=options)
    page.items = [{"id": 1}, {"id": 2}]
    run_once(server.bootstrap, path)
    page.items = [{"id": 2}, {"id": 5}]
    run_once(server.bootstrap, path)
    assert values(server, "cursor") == [b'{"id":1}', b'{"id":2}', b'{"id":5}']
    assert page.paths[-1] == "/list?all=1&since=5"


# --- functions


def count(position: int | None) -> Iterator[tuple[Any, int]]:
    """What a user would write."""
    for number in range(position or 0, 5):
        yield {"n": number}, number + 1


class Calls:
    """What the function below was called with; and what is wrong with it."""

    seen: list[list[bytes | None]] = []  # noqa: RUF012
    failures = 0


def take(messages: list[Message]) -> None:
    if Calls.failures:
        Calls.failures -= 1
        raise Unavailable("not now")
    found = [message.record.value for message in messages]
    if b"bad" in found:
        raise ValueError("bad")
    Calls.seen.append(found)


def test_a_function_generates_records(server: Broker, tmp_path: Path) -> None:
    options = {"function": f"{__name__}:count"}
    path = describe(tmp_path, "count", "function-source", topic="count", options=options)
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    assert [json.loads(value)["n"] for value in values(server, "count")] == list(range(5))


def archive(position: int | None) -> Iterator[tuple[Any, int]]:
    for number in range(position or 0, 3):
        yield SourceRecord(b"old", timestamp_ms=1_000 + number, topic="archive"), number + 1


def test_old_timestamps_are_warned_of_once(
    server: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"function": f"{__name__}:archive"}
    path = describe(tmp_path, "archive", "function-source", topic="archive", options=options)
    run_once(server.bootstrap, path)
    said = [each.getMessage() for each in caplog.records if "retention.ms" in each.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("topic archive: a record is older than the topic keeps records")


def test_a_function_takes_batches(
    server: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Calls, "seen", [])
    monkeypatch.setattr(Calls, "failures", 2)
    options = {"function": f"{__name__}:take"}
    errors = {"dead_letters": "taken.dead"}
    path = describe(
        tmp_path, "taken", "function-sink", topic="taken", errors=errors, options=options
    )
    send(server.bootstrap, "taken", "one", "bad", "two")
    run_once(server.bootstrap, path)
    assert Calls.seen == [[b"one"], [b"two"]]
    assert values(server, "taken.dead") == [b"bad"]


# --- the command


def command(server: Broker, path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "entrepot.cli", "connect", "run", str(path), *options]
    return subprocess.run(
        [*line, "-b", server.bootstrap], capture_output=True, text=True, check=False
    )


def test_a_mistake_in_the_file_is_one_line(server: Broker, tmp_path: Path) -> None:
    path = describe(tmp_path, "wrong", "file-sink", topic="t", options={"pth": "x"})
    ran = command(server, path)
    assert ran.returncode == 1
    assert ran.stderr == (
        f'Error: {path}: unknown key "options.pth"; did you mean "options.path"?\n'
    )


def test_a_connector_of_your_own_runs_until_it_is_told_to_stop(
    server: Broker, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(
        "from entrepot.connect import Polled, Source, SourceRecord\n"
        "class Ticks(Source):\n"
        "    async def open(self, position):\n"
        "        self.next = position or 0\n"
        "    async def poll(self, count_max):\n"
        "        if self.next == 3:\n"
        "            return None\n"
        "        self.next += 1\n"
        "        return Polled([SourceRecord(str(self.next).encode())], self.next)\n"
    )
    path = describe(tmp_path, "ticks", "mine:Ticks", topic="ticks")
    line = [sys.executable, "-m", "entrepot.cli", "connect", "run", str(path)]
    process = subprocess.Popen(
        [*line, "--log-format", "json", "-b", server.bootstrap],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: topic_has(server, "ticks", 3))
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130, said
    first, *_, last = map(json.loads, said.splitlines())
    assert (first["message"], last["message"]) == ("started", "ended")
    assert last["records"] == 3
    assert values(server, "ticks") == [b"1", b"2", b"3"]


@pytest.mark.parametrize("kind", ["Source", "Sink"])
def test_ctrl_c_while_the_other_side_is_away(server: Broker, tmp_path: Path, kind: str) -> None:
    (tmp_path / "mine.py").write_text(
        "from entrepot.connect import Sink, Source, Unavailable\n"
        f"class Away({kind}):\n"
        "    async def open(self, position):\n"
        "        raise Unavailable('it is away')\n"
        "    async def poll(self, count_max): ...\n"
        "    async def write(self, messages): ...\n"
    )
    which = {"topics": ["ticks"]} if kind == "Sink" else {"topic": "ticks"}
    send(server.bootstrap, "ticks", "1")
    path = describe(tmp_path, f"away-{kind}", "mine:Away", **which)
    process = subprocess.Popen(
        [sys.executable, "-m", "entrepot.cli", "connect", "run", str(path),
         "--log-format", "json", "-b", server.bootstrap],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        lines = [process.stderr.readline()]
        while lines[-1] and "trying again" not in lines[-1]:
            lines.append(process.stderr.readline())
    finally:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert (process.returncode, "Traceback" in said) == (130, False), said
    assert json.loads(said.splitlines()[-1])["message"] == "ended"


def test_a_second_source_of_the_same_name_ends_the_first(server: Broker, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("one\n")
    options = {"path": log, "tail": True}
    path = describe(tmp_path, "twins", "file-source", topic="twins", poll_ms=20, options=options)
    first = Process(path, server.bootstrap)
    first.start()
    try:
        until(lambda: topic_has(server, "twins", 1))
        run_once(server.bootstrap, path)
        with log.open("a") as file:
            file.write("two\n")
        until(lambda: not first.is_running())
    finally:
        first.stop()
    assert "runs in another process too" in first.log_path.read_text()
    run_once(server.bootstrap, path)
    assert values(server, "twins") == [b"one", b"two"]


def topic_has(server: Broker, topic: str, count: int) -> bool:
    try:
        return len(values(server, topic)) >= count
    except KeyError:
        return False


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.05)


# --- kills


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("which", EXPERIMENTS, ids=lambda each: each.__name__)
def test_nothing_is_lost_when_connectors_and_brokers_are_killed(
    which: Callable[[Experiment], Outcome],
) -> None:
    outcome = experiment(which, 5_000, 5)
    assert outcome.lost == 0, outcome
    assert outcome.connectors_killed == outcome.brokers_killed == 5
    if which not in AT_LEAST_ONCE:
        assert (outcome.duplicated, outcome.misplaced) == (0, 0), outcome
