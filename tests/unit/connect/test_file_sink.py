"""What a crash may leave, and who else may write."""

import json
from pathlib import Path

import pytest

from entrepot.connect.interface import ConnectError
from tests.unit.connect.alone import PART, Bench, message, run, write


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "out.txt"


def test_the_offset_is_kept_beside_the_file(target: Path) -> None:
    assert write(Bench().make("file-sink", path=target), message(4, b"one")) == {}
    assert write(Bench().make("file-sink", path=target), message(5, b"two")) == {PART: 5}
    assert target.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize("is_first", [True, False])
def test_what_was_not_recorded_is_cut_off(target: Path, is_first: bool) -> None:
    bench = Bench()
    write(bench.make("file-sink", path=target), *([] if is_first else [message(0, b"one")]))
    with target.open("ab") as file:
        file.write(b"left by a crash")
    write(bench.make("file-sink", path=target), message(1, b"two"))
    assert target.read_bytes() == (b"two\n" if is_first else b"one\ntwo\n")


def test_poison_is_rejected_and_passed(target: Path) -> None:
    bench = Bench()
    write(bench.make("file-sink", path=target), message(0, b"a\nb"), message(1, b"c"))
    assert bench.rejected == [(0, "the value holds a line end")]
    assert write(bench.make("file-sink", path=target)) == {PART: 2}
    assert target.read_bytes() == b"c\n"


def test_two_do_not_write_to_one_file(target: Path) -> None:
    bench = Bench()

    async def work() -> None:
        first = bench.make("file-sink", path=target)
        second = bench.make("file-sink", path=target)
        await first.open([PART])
        try:
            with pytest.raises(ConnectError, match="another process writes to it"):
                await second.open([PART])
        finally:
            await second.close()
            await first.close()

    run(work())


def test_a_file_that_is_not_ours_is_left_alone(target: Path) -> None:
    target.parent.mkdir()
    target.write_text("a will")
    with pytest.raises(ConnectError, match="not ours"):
        write(Bench().make("file-sink", path=target))
    assert target.read_text() == "a will"


def test_a_file_that_lost_its_end_is_an_error(target: Path) -> None:
    write(Bench().make("file-sink", path=target), message(0, b"one"))
    target.write_bytes(b"on")
    with pytest.raises(ConnectError, match="has 2 bytes, but 4 were written"):
        write(Bench().make("file-sink", path=target))
    offsets = target.with_name("out.txt.offsets")
    offsets.write_text(json.dumps({"size": "x"}))
    with pytest.raises(ConnectError, match="damaged"):
        write(Bench().make("file-sink", path=target))
