"""Functions that fail: which records are to blame, and what a stop means."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from entrepot.connect.interface import ConnectError
from entrepot.connect.retrying import Stopped
from tests.unit.connect.alone import Bench, drain, message, write


def refuse_odd(messages: list[Any]) -> None:
    if any(each.record.offset % 2 for each in messages):
        raise ValueError("odd\nand more")


async def stopped(messages: list[Any]) -> None:
    await asyncio.sleep(0)
    raise Stopped


def numbers(position: int | None) -> Iterator[tuple[Any, int]]:
    yield from ((f"n{n}", n) for n in range((position or 0) + 1, 4))


def broken(position: int | None) -> Iterator[tuple[Any, int]]:
    raise KeyError("why")


def test_the_culprits_are_found() -> None:
    bench = Bench()
    sink = bench.make("function-sink", function=f"{__name__}:refuse_odd")
    write(sink, *(message(n, b"") for n in range(4)))
    assert bench.rejected == [(1, "ValueError: odd"), (3, "ValueError: odd")]


def test_a_stop_rejects_nothing() -> None:
    bench = Bench()
    with pytest.raises(Stopped):
        write(bench.make("function-sink", function=f"{__name__}:stopped"), message(0, b""))
    assert bench.rejected == []


def test_a_generator_goes_on_where_it_was() -> None:
    found, position = drain(Bench().make("function-source", function=f"{__name__}:numbers"))
    assert found == [b"n1", b"n2", b"n3"]
    source = Bench().make("function-source", function=f"{__name__}:numbers")
    assert drain(source, position) == ([], 3)


def test_a_generator_that_fails_is_named() -> None:
    source = Bench().make("function-source", function=f"{__name__}:broken")
    with pytest.raises(ConnectError, match=r"test_functions:broken: KeyError: 'why'"):
        drain(source)
