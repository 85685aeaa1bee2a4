"""A pump with the smallest protocol there is: an event is a byte, and its answer is that byte."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps

import pytest

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.faults import Faults
from entrepot.core.ports import Link
from entrepot.gateway import pump
from entrepot.gateway.pump import Pump
from sim import loop
from sim.clock import SimClock
from tests.unit.gateway.amqp.node import FakeLink

pytestmark = pytest.mark.pure  # Of a compiled pump only compiled classes inherit.


class Bytes:
    """The codec."""

    def __init__(self) -> None:
        self._area = bytearray(100)

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> list[bytes]:
        return [self._area[place : place + 1] for place in range(size)]


class Echo(Pump[bytes]):
    """Answers `s` later, when `gate` is open, and fails for `p` (the peer) and `o` (ours)."""

    def __init__(self, link: Link, sim: loop.SimLoop, faults: Faults) -> None:
        super().__init__(link, Bytes(), self._serve, SimClock(sim), faults)
        self.gate = asyncio.Event()
        self.out: list[bytes] = []
        self.failures: list[str] = []
        self.released = 0
        self.is_much = False

    def _serve(self, event: bytes) -> Awaitable[None] | None:
        if event in b"sPO":
            return self._serve_slowly(event)
        if event == b"p":
            raise PeerError("theirs")
        self._answer(event)
        return None

    async def _serve_slowly(self, event: bytes) -> None:
        await self.gate.wait()
        if event == b"P":
            raise PeerError("theirs, late")
        if event == b"O":
            raise RuntimeError("ours")
        self._answer(event)

    def _answer(self, event: bytes) -> None:
        self.out.append(event)
        self._turn_bytes += 1

    def output(self) -> list[bytes]:
        out, self.out = self.out, []
        return out

    def pace(self) -> None:
        self.pause(self.is_much)

    def failed(self, error: PeerError | None) -> None:
        self.failures.append(str(error))

    def release(self) -> None:
        self.released += 1

    def unfinished(self) -> None: ...


class Bench:
    def __init__(self, sim: loop.SimLoop) -> None:
        self.link = FakeLink()
        self.faults = Faults()
        self.echo = Echo(self.link, sim, self.faults)

    def say(self, data: bytes) -> None:
        self.echo.writable()[: len(data)] = data
        self.echo.received(len(data))

    @property
    def writes(self) -> list[bytes]:
        return self.link.writes


def on_bench(story: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(story)
    def test(**arguments: object) -> None:
        async def main(sim: loop.SimLoop) -> None:
            await story(Bench(sim), **arguments)

        loop.run(0, main)

    del test.__wrapped__  # type: ignore[attr-defined]
    return test


@on_bench
async def test_a_read_is_answered_with_one_write(bench: Bench) -> None:
    bench.say(b"abc")
    bench.say(b"de")
    assert bench.writes == [b"abc", b"de"]
    assert (bench.echo.reads, bench.echo.writes) == (2, 2)


@on_bench
async def test_an_event_waits_for_what_is_awaited_before_it(bench: Bench) -> None:
    bench.say(b"asb")
    assert bench.writes == [b"a"]
    bench.echo.gate.set()
    await asyncio.sleep(0.1)
    assert bench.writes == [b"a", b"sb"]


@on_bench
async def test_whoever_wakes_it_there_is_one_turn(bench: Bench) -> None:
    for each in (b"a", b"b", b"c"):
        bench.echo.out.append(each)
        bench.echo.wake()
    assert bench.writes == []
    await asyncio.sleep(0.1)
    assert bench.writes == [b"abc"]


@on_bench
async def test_a_mistake_of_the_peer_is_answered_and_the_next_event_served(bench: Bench) -> None:
    bench.say(b"pPa")
    bench.echo.gate.set()
    await asyncio.sleep(0.1)
    assert bench.echo.failures == ["theirs", "theirs, late"]
    assert bench.writes == [b"a"]


@on_bench
async def test_a_mistake_of_ours_is_counted(bench: Bench) -> None:
    bench.say(b"O")
    bench.echo.gate.set()
    await asyncio.sleep(0.1)
    assert (bench.echo.failures, bench.faults.count) == (["None"], 1)


@on_bench
async def test_after_the_end_what_was_awaited_is_released(bench: Bench) -> None:
    bench.say(b"sab")
    bench.echo.closed("gone")
    bench.echo.gate.set()
    await asyncio.sleep(0.1)
    assert (bench.writes, bench.echo.released) == ([], 1)


@on_bench
async def test_a_late_mistake_after_the_end_is_nobodys(bench: Bench) -> None:
    """The simulated loop fails if a task's error is not asked for."""
    bench.say(b"P")
    bench.echo.closed("gone")
    bench.echo.gate.set()
    await asyncio.sleep(0.1)
    assert (bench.echo.failures, bench.echo.released) == ([], 1)


@on_bench
async def test_what_is_cancelled_has_begun(bench: Bench) -> None:
    bench.say(b"s")
    bench.echo.closed("gone")
    bench.echo.cancel()
    await asyncio.sleep(0.1)
    assert bench.echo.released == 1


@on_bench
async def test_the_link_is_paused_and_goes_on(bench: Bench) -> None:
    bench.echo.is_much = True
    bench.say(b"a")
    assert bench.link.is_paused
    bench.echo.is_much = False
    bench.echo.drained()
    assert not bench.link.is_paused


@pytest.mark.parametrize("bound", ["TURN_EVENTS_MAX", "TURN_BYTES_MAX"])
def test_much_is_served_in_turns(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, bound, 2)

    @on_bench
    async def story(bench: Bench) -> None:
        bench.say(b"abcde")
        assert bench.writes == [b"ab"]
        await asyncio.sleep(0.1)
        assert bench.writes == [b"ab", b"cd", b"e"]

    story()


def test_what_takes_long_is_served_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TURN_MS", 0)

    @on_bench
    async def story(bench: Bench) -> None:
        bench.say(b"abc")
        assert bench.writes == [b"a"]
        await asyncio.sleep(0.1)
        assert bench.writes == [b"a", b"b", b"c"]

    story()
