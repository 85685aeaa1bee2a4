"""Objects in a directory: whole or not at all, and remembered by their names."""

from pathlib import Path

import pytest

from entrepot.connect.interface import ConfigError, ConnectError, Rejected
from tests.unit.connect.alone import PART, Bench, drain, message, run, write


def test_names_are_the_memory(tmp_path: Path) -> None:
    bench = Bench()
    assert write(bench.make("store-sink", path=tmp_path), message(3, b"1"), message(4, b"2")) == {}
    (tmp_path / "t" / "0" / "00000000000000000005-00000000000000000009.jsonl.new").touch()
    (tmp_path / "t" / "0" / "notes.jsonl").touch()
    assert write(bench.make("store-sink", path=tmp_path)) == {PART: 5}


def test_poison_leaves_its_place_in_the_name(tmp_path: Path) -> None:
    bench = Bench()
    sink = bench.make("store-sink", path=tmp_path, format="parquet", columns={"n": "int8"})
    write(sink, message(0, b'{"n": 300}'), message(1, b'{"n": 1}'), message(2, b'{"m": 1}'))
    assert [offset for offset, _ in bench.rejected] == [0, 2]
    source = Bench().make("store-source", path=tmp_path, format="parquet")
    assert drain(source)[0] == [b'{"n":1}']
    again = bench.make("store-sink", path=tmp_path, format="parquet", columns={"n": "int8"})
    assert write(again) == {PART: 3}


def test_raw_objects_hold_one_record_each(tmp_path: Path) -> None:
    sink = Bench().make("store-sink", path=tmp_path, format="raw")
    write(sink, message(0, b"a\nb"), message(1, None))
    found, position = drain(Bench().make("store-source", path=tmp_path, format="raw"))
    assert found == [b"a\nb", b""]
    assert drain(Bench().make("store-source", path=tmp_path, format="raw"), position)[0] == []


def test_a_source_goes_on_in_the_middle_of_an_object(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n0\n1\n2\nx,y\n4\n")

    async def two() -> object:
        source = Bench().make("store-source", path=tmp_path, format="csv", key="n")
        await source.open(None)
        polled = await source.poll(2)
        await source.close()
        return polled.position

    found, _ = drain(Bench().make("store-source", path=tmp_path, format="csv"), run(two()))
    assert [found[0], found[2]] == [b'{"n":"2"}', b'{"n":"4"}']
    assert isinstance(found[1], Rejected)
    assert found[1].where == "a.csv, entry 3"


def test_two_do_not_write_to_one_directory(tmp_path: Path) -> None:
    async def work() -> None:
        first, second = (Bench().make("store-sink", path=tmp_path) for _ in range(2))
        await first.open([PART])
        try:
            with pytest.raises(ConnectError, match="runs in another process"):
                await second.open([PART])
        finally:
            await second.close()
            await first.close()

    run(work())


def test_a_type_that_arrow_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"options\.columns\.n: Arrow has no type number"):
        Bench().make("store-sink", path=tmp_path, format="parquet", columns={"n": "number"})
