"""Files that grow, are moved, cut off and replaced."""

import asyncio
import os
from pathlib import Path

import pytest

from entrepot.connect import file_source
from entrepot.connect.interface import ConfigError, ConnectError, Polled, Rejected
from tests.unit.connect.alone import Bench, drain, run

pa = pytest.importorskip("pyarrow")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "app.log"


def tail(log: Path, pattern: str = "") -> file_source.FileSource:
    made: file_source.FileSource = Bench().make("file-source", path=f"{log}{pattern}", tail=True)
    return made


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def test_a_line_counts_when_it_has_an_end(log: Path) -> None:
    log.write_text("one\ntw")
    found, position = drain(tail(log))
    assert found == [b"one"]
    append(log, "o\nthree\n")
    assert drain(tail(log), position)[0] == [b"two", b"three"]


def test_a_rotated_file_is_finished_first(log: Path) -> None:
    log.write_text("one\n")
    _, position = drain(tail(log))
    append(log, "two\n")
    log.rename(log.with_name("app.log.1"))
    log.write_text("three\n")
    found, position = drain(tail(log), position)
    assert found == [b"two", b"three"]
    assert drain(tail(log), position)[0] == []


def test_files_rotated_before_they_were_seen_are_found_by_a_pattern(log: Path) -> None:
    for number, text in ((2, "one\n"), (1, "two\n")):
        path = log.with_name(f"app.log.{number}")
        path.write_text(text)
        os.utime(path, ns=(0, 10 - number))
    log.write_text("three\n")
    assert drain(tail(log, "*"))[0] == [b"one", b"two", b"three"]


def test_a_file_that_was_cut_off_begins_anew(log: Path) -> None:
    log.write_text("a long line\n")
    _, position = drain(tail(log))
    with log.open("r+") as file:
        file.truncate()
    append(log, "one\n")
    assert drain(tail(log), position)[0] == [b"one"]


def test_a_file_that_begins_otherwise_is_another_one(log: Path) -> None:
    log.write_text("one\n")
    _, position = drain(tail(log))
    with log.open("r+") as file:  # The same inode, and longer than before.
        file.write("two\nthree\n")
    assert drain(tail(log), position)[0] == [b"two", b"three"]


def test_a_file_that_is_gone_is_forgotten(log: Path) -> None:
    log.write_text("one\n")
    _, position = drain(tail(log))
    log.unlink()
    other = log.with_name("app.log.x")  # Not by that name, nor that inode.
    other.write_text("no\n")
    log.write_text("two\n")
    assert drain(tail(log), position)[0] == [b"two"]


def test_a_file_is_gone_when_it_was_missed_often(log: Path) -> None:
    """Not at once: a directory in which a file is just being renamed may show neither name."""
    log.write_text("one\n")
    source = tail(log)
    with asyncio.Runner() as runner:

        def poll() -> Polled | None:
            return runner.run(source.poll(2))

        runner.run(source.open(None))
        assert poll() is not None
        hidden = log.rename(log.parent.parent / "hidden")
        assert poll() is None
        hidden.rename(log)
        assert poll() is None
        log.unlink()
        for _ in range(file_source.MISSED_MAX):
            poll()
        log.write_text("two\n")
        polled = poll()
        runner.run(source.close())
    assert polled is not None
    assert len(polled.position["files"]) == 1


def test_whole_files_come_by_name_and_their_last_line_needs_no_end(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("three")
    (tmp_path / "a.txt").write_text("one\ntwo")
    source = Bench().make("file-source", path=tmp_path / "*.txt")
    found, position = drain(source)
    assert found == [b"one", b"two", b"three"]
    (tmp_path / "a0.txt").write_text("four")
    append(tmp_path / "a.txt", "\nignored")
    source = Bench().make("file-source", path=tmp_path / "*.txt")
    assert drain(source, position)[0] == [b"four"]


def test_csv_goes_on_in_the_middle_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\r\n1,"a\r\nb"\r\n')
    options = {"path": path, "format": "csv", "tail": True}
    found, position = drain(Bench().make("file-source", **options))
    assert found == [b'{"id":"1","name":"a\\r\\nb"}']
    append(path, '2,"open\nstill open')
    assert drain(Bench().make("file-source", **options), position)[0] == []
    append(path, '"\n')
    found, _ = drain(Bench().make("file-source", **options), position)
    assert found == [b'{"id":"2","name":"open\\nstill open"}']


def test_a_parquet_file_is_read_row_by_row(tmp_path: Path) -> None:
    import pyarrow.parquet

    table = pa.table({"n": range(7), "b": [b"\xff"] * 7})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    (tmp_path / "b.parquet").write_bytes(b"not Parquet")
    options = {"path": tmp_path / "*.parquet", "format": "parquet", "key": "n"}
    found, position = drain(Bench().make("file-source", **options))
    assert found[:-1] == [b'{"n":%d,"b":"/w=="}' % n for n in range(7)]
    assert isinstance(found[-1], Rejected)
    assert drain(Bench().make("file-source", **options), position)[0] == []
    _, first = drain_one(Bench().make("file-source", **options))
    found, _ = drain(Bench().make("file-source", **options), first)
    assert found[:-1] == [b'{"n":%d,"b":"/w=="}' % n for n in range(2, 7)]


def drain_one(source: file_source.FileSource) -> tuple[int, object]:
    async def work() -> tuple[int, object]:
        await source.open(None)
        polled = await source.poll(2)
        await source.close()
        assert polled is not None
        return len(polled.records), polled.position

    return run(work())


def test_a_line_without_an_end_in_sight_is_an_error(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_source, "CHUNK_BYTES", 8)
    monkeypatch.setattr(file_source, "ENTRY_BYTES_MAX", 64)
    log.write_text("x" * 60 + "\n")
    assert drain(tail(log))[0] == [b"x" * 60]
    log.write_text("short\n" + "x" * 200)
    with pytest.raises(ConnectError, match="byte 6: more than 64 bytes without a line end"):
        drain(tail(log))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"key": "id"}, "options.key: lines have no fields"),
        ({"format": "csv", "header": False}, "options.columns"),
        ({"format": "csv", "columns": ["a"]}, "options.columns"),
        ({"format": "parquet", "tail": True}, "options.tail"),
        ({"format": "xml"}, "options.format: .*; one of lines, json, csv, parquet"),
    ],
)
def test_options_that_do_not_go_together(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Bench().make("file-source", path="x", **options)
