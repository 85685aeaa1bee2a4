"""What a server does while nobody asks for anything."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count, pairwise
from types import ModuleType

import pytest

from entrepot import housekeeping
from entrepot.core.ports import Clock, in_place
from entrepot.gateway.kafka import apis
from entrepot.housekeeping import collect_garbage, imports_of, keep_beating, load
from sim import loop
from sim.clock import SimClock
from sim.loop import SimLoop


def test_every_api_is_among_what_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = list(imports_of("kafka"))
    for entry in apis.SERVED:
        assert entry.load in imports
    names: list[str] = []
    monkeypatch.setattr(housekeeping, "import_module", _noting(names))
    for protocol in ("amqp", "http", "stomp"):
        for do_import in imports_of(protocol):
            do_import()
        assert f"entrepot.gateway.{protocol}.adapter" in names
    assert "re2" in names
    assert "entrepot.gateway.http.management.application" in names


def _noting(names: list[str]) -> Callable[[str], ModuleType]:
    def note(name: str) -> ModuleType:
        names.append(name)
        return import_module(name)

    return note


def test_modules_are_loaded_one_at_a_time() -> None:
    loaded: list[tuple[str, float]] = []

    async def main(sim: SimLoop) -> None:
        imports = [lambda name=name: loaded.append((name, sim.time())) for name in "abc"]
        await load(imports, SimClock(sim), in_place)

    loop.run(0, main)
    names, times = zip(*loaded, strict=True)
    assert names == ("a", "b", "c")
    assert times[0] > housekeeping.LOAD_AFTER_S
    assert all(after > before for before, after in pairwise(times))


class BusyClock:
    """Shows that the loop is always late."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_s * 1_000)

    def monotonic(self) -> float:
        self._now_s += 1
        return self._now_s


def test_a_busy_loop_delays_loading_but_not_for_ever() -> None:
    async def main(sim: SimLoop) -> None:
        before_s = sim.time()
        await load([lambda: None], BusyClock(), in_place)
        waited_s = sim.time() - before_s - housekeeping.LOAD_AFTER_S
        assert waited_s == pytest.approx(housekeeping.BUSY_MAX * housekeeping.LOAD_EVERY_S)

    loop.run(0, main)


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What the collector is told."""
    told: list[str] = []
    for name in ("freeze", "unfreeze", "collect"):
        monkeypatch.setattr(gc, name, lambda name=name: told.append(name))
    monkeypatch.setattr(gc, "get_count", lambda: (0, 0, 0))
    monkeypatch.setattr(housekeeping, "blocks", lambda: 0)
    before = gc.get_threshold()
    yield told
    assert gc.get_threshold() == before


async def looking(sim: SimLoop, clock: Clock, seconds: float) -> None:
    task = asyncio.ensure_future(collect_garbage(clock))
    await asyncio.sleep(seconds)
    assert gc.get_threshold()[2] > 1_000_000  # Nobody else looks at everything.
    task.cancel()
    await asyncio.sleep(0)


def test_what_is_quickly_looked_through_is_not_set_aside(frozen: list[str]) -> None:
    loop.run(0, lambda sim: looking(sim, SimClock(sim), 3.5 * housekeeping.LOOK_EVERY_S))
    assert frozen == ["freeze", "collect", "collect", "collect"]


def test_much_that_is_new_is_looked_at_early(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    many = housekeeping.NEW_MAX

    def new() -> tuple[int, int, int]:
        return 0, 0, 0 if "collect" in frozen else many

    monkeypatch.setattr(gc, "get_count", new)
    loop.run(0, lambda sim: looking(sim, SimClock(sim), 1))
    assert frozen == ["freeze", "collect"]


def test_what_takes_long_is_set_aside_and_looked_through_again_at_some_time(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    least = housekeeping.BLOCKS_MAX
    monkeypatch.setattr(housekeeping, "blocks", lambda: least + len(frozen) * least // 8)
    used = count(0, 2 * housekeeping.LOOK_S_MAX)  # Every look takes longer, and it is idle.
    monkeypatch.setattr(housekeeping, "processor_time", lambda: next(used))
    loop.run(0, lambda sim: looking(sim, SimClock(sim), 9.5 * housekeeping.LOOK_EVERY_S))
    look = ["collect", "freeze"]
    # At nine eighths, and when there are half as many again as after that.
    assert frozen[:13] == ["freeze", "unfreeze", *(4 * look), "unfreeze", *look]


def test_what_takes_long_because_others_run_is_not_set_aside(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine everything would be, with all connections there are, again and again."""
    monkeypatch.setattr(housekeeping, "processor_time", lambda: 7.0)
    loop.run(0, lambda sim: looking(sim, BusyClock(), 3.5 * housekeeping.LOOK_EVERY_S))
    assert frozen == ["freeze", "collect", "collect", "collect"]


def test_all_objects_are_visited_only_while_nobody_asks_for_anything(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes seconds: everybody would wait."""
    monkeypatch.setattr(housekeeping, "blocks", lambda: 1.4 * housekeeping.BLOCKS_MAX)

    async def main(sim: SimLoop) -> None:
        busy_until_s = sim.time() + 5.5 * housekeeping.LOOK_EVERY_S
        monkeypatch.setattr(
            housekeeping, "processor_time", lambda: 0.1 * min(sim.time(), busy_until_s)
        )
        await looking(sim, SimClock(sim), 8.5 * housekeeping.LOOK_EVERY_S)

    loop.run(0, main)
    assert frozen == ["freeze", *(6 * ["collect"]), "unfreeze", "collect", "collect"]


def test_the_beat_tells_how_late_it_is() -> None:
    late: list[float] = []

    class Held:
        """A clock that says each look comes 15 ms after it should."""

        def __init__(self, clock: SimClock) -> None:
            self._clock, self._held_s = clock, 0.0

        def monotonic(self) -> float:
            self._held_s += 0.015
            return self._clock.monotonic() + self._held_s

        def now_ms(self) -> int:
            return self._clock.now_ms()

    async def body(sim: SimLoop) -> None:
        task = asyncio.ensure_future(keep_beating(late.append, Held(SimClock(sim))))
        await asyncio.sleep(10.5 * housekeeping.BEAT_S)
        task.cancel()

    loop.run(0, body)
    assert len(late) == 10
    assert all(abs(each - 0.015) < 0.001 for each in late)


def test_it_is_told_how_long_collections_took(frozen: list[str]) -> None:
    took: list[float] = []

    async def body(sim: SimLoop) -> None:
        task = asyncio.ensure_future(collect_garbage(SimClock(sim), took.append))
        await asyncio.sleep(2.5 * housekeeping.LOOK_EVERY_S)
        task.cancel()
        await asyncio.sleep(0)

    loop.run(0, body)
    assert took == [0.0, 0.0]


def test_a_process_that_is_never_idle_does_not_grow_for_ever(
    frozen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    grown = housekeeping.BUSY_GROWTH
    # At two looks it is counted a second time, after the visit.
    sizes = iter([grown * each for each in (0.9, 1.1, 1, 1.1, 1.1, 1.4 * grown, 1.6 * grown, 1)])

    async def main(sim: SimLoop) -> None:
        monkeypatch.setattr(housekeeping, "processor_time", sim.time)
        monkeypatch.setattr(housekeeping, "blocks", lambda: next(sizes) * housekeeping.BLOCKS_MAX)
        await looking(sim, SimClock(sim), 6.5 * housekeeping.LOOK_EVERY_S)

    loop.run(0, main)
    assert [*frozen, "collect"].count("unfreeze") == 2
    assert frozen[:4] == ["freeze", "collect", "unfreeze", "collect"]
