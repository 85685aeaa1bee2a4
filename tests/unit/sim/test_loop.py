import asyncio
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sim import loop as loop_module
from sim.clock import SimClock
from sim.loop import Deadlock, Livelock, Process, SimLoop, run


def test_waiting_costs_nothing() -> None:
    async def main(loop: SimLoop) -> float:
        await asyncio.gather(*(asyncio.sleep(3_600 * hour) for hour in range(1, 25)))
        return loop.time()

    assert run(0, main) == 24 * 3_600


def test_timers_fire_in_order_of_time() -> None:
    async def main(loop: SimLoop) -> list[float]:
        fired: list[float] = []
        for delay in (0.5, 0.1, 0.9, 0.3):
            loop.call_later(delay, lambda: fired.append(loop.time()))
        loop.call_later(0.2, fired.append, -1.0).cancel()
        await asyncio.sleep(1)
        return fired

    assert run(0, main) == pytest.approx([0.1, 0.3, 0.5, 0.9])


def test_who_is_ready_together_runs_in_an_order_of_chance() -> None:
    async def main(loop: SimLoop) -> tuple[int, ...]:
        order: list[int] = []

        async def append(number: int) -> None:
            await asyncio.sleep(1)
            order.append(number)

        await asyncio.gather(*(append(number) for number in range(4)))
        return tuple(order)

    orders = {run(seed, main) for seed in range(300)}
    assert len(orders) == 24
    assert run(0, main, shuffle=False) == (0, 1, 2, 3)
    assert run(7, main) == run(7, main)


def test_what_asyncio_builds_on_the_loop_works() -> None:
    async def main(loop: SimLoop) -> list[str]:
        said: list[str] = []
        try:
            async with asyncio.timeout(1):
                await asyncio.sleep(2)
        except TimeoutError:
            said.append("timeout")
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(queue.put("queue"), name="putter")
            said.append(await queue.get())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        done, pending = await asyncio.wait(
            [asyncio.create_task(asyncio.sleep(delay)) for delay in (1, 5)],
            return_when=asyncio.FIRST_COMPLETED,
        )
        said.append(f"{len(done)} done, {len(pending)} pending at {loop.time():.0f} s")
        return said

    assert run(0, main) == ["timeout", "queue", "1 done, 1 pending at 3 s"]


def test_an_exception_in_a_callback_stops_the_world() -> None:
    async def main(loop: SimLoop) -> None:
        loop.call_later(1, [].pop)
        await asyncio.sleep(1_000)

    with pytest.raises(IndexError) as caught:
        run(42, main)
    assert caught.value.__notes__ == ["seed 42, 1.000000 s into the simulation"]


def test_an_exception_in_a_task_nobody_looks_at_stops_the_world() -> None:
    async def main(loop: SimLoop) -> None:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError("nobody sees this")

        task = asyncio.create_task(fail())
        await asyncio.sleep(1_000)
        pytest.fail(f"went on after {task}")

    with pytest.raises(LookupError, match="nobody sees this"):
        run(0, main)


def test_an_exception_in_the_last_moment_counts() -> None:
    async def main(loop: SimLoop) -> None:
        async def fail() -> None:
            raise LookupError("too late")

        task = asyncio.create_task(fail())
        await asyncio.wait([task])

    with pytest.raises(LookupError):
        run(0, main)


def test_an_exception_somebody_looks_at_is_theirs() -> None:
    async def main(loop: SimLoop) -> list[object]:
        async def fail() -> None:
            await asyncio.sleep(1)
            raise LookupError

        answers = await asyncio.gather(fail(), fail(), return_exceptions=True)
        with pytest.raises(LookupError):
            await asyncio.create_task(fail())
        await asyncio.sleep(5)
        return answers

    assert [type(answer) for answer in run(0, main)] == [LookupError, LookupError]


def test_the_main_tasks_own_exception_comes_out() -> None:
    async def main(loop: SimLoop) -> None:
        await asyncio.sleep(1)
        raise LookupError

    with pytest.raises(LookupError):
        run(0, main)


def test_a_deadlock_is_found_and_says_where() -> None:
    async def wait_for_godot() -> None:
        await asyncio.Event().wait()

    async def main(loop: SimLoop) -> None:
        await asyncio.sleep(1)
        await wait_for_godot()

    with pytest.raises(Deadlock, match=r"Event\.wait"):
        run(0, main)


def test_a_clock_that_stands_still_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "TURNS_PER_INSTANT_MAX", 100)

    async def main(loop: SimLoop) -> None:
        for _ in itertools.count():
            await asyncio.sleep(0)

    with pytest.raises(Livelock):
        run(0, main)

    async def restless(loop: SimLoop) -> None:
        loop.call_later(0, lambda: asyncio.create_task(restless(loop)))
        await asyncio.sleep(1)

    with pytest.raises(Livelock):
        run(0, restless)


def test_threads_and_sockets_are_refused() -> None:
    async def main(loop: SimLoop) -> None:
        with pytest.raises(RuntimeError, match="no threads"):
            await asyncio.to_thread(print)
        with pytest.raises(RuntimeError, match="no threads"):
            loop.call_soon_threadsafe(print)
        with pytest.raises(NotImplementedError):
            await asyncio.open_connection("127.0.0.1", 1)
        with pytest.raises(NotImplementedError):
            loop.add_reader(0, print)

    run(0, main)


def test_a_killed_process_stops_where_it_is() -> None:
    async def main(loop: SimLoop) -> tuple[list[str], list[str]]:
        said: list[str] = []

        async def child(name: str) -> None:
            try:
                while True:
                    await asyncio.sleep(1)
                    said.append(name)
            finally:
                said.append("cleaned up")

        async def parent() -> None:
            asyncio.get_running_loop().call_later(2.5, said.append, "timer")
            await asyncio.gather(child("a"), child("b"))

        process, other = Process(loop), Process(loop)
        process.start(parent())
        other.start(child("other"))
        await asyncio.sleep(1.5)
        before = sorted(said)
        said.clear()
        process.kill()
        await asyncio.sleep(2)
        return before, list(said)

    assert run(0, main) == (["a", "b", "other"], ["other", "other"])


def test_a_killed_process_does_not_wake_for_what_others_do() -> None:
    async def main(loop: SimLoop) -> list[str]:
        said: list[str] = []
        signal = asyncio.Event()

        async def listen() -> None:
            await signal.wait()
            said.append("heard")

        process = Process(loop)
        process.start(listen())
        await asyncio.sleep(1)
        process.kill()
        signal.set()
        await asyncio.sleep(1)
        return list(said)

    assert run(0, main) == []


def test_only_the_dead_waiting_is_a_deadlock() -> None:
    async def main(loop: SimLoop) -> None:
        process = Process(loop)
        process.start(asyncio.sleep(1_000))
        await asyncio.sleep(1)
        process.kill()
        await asyncio.Event().wait()

    with pytest.raises(Deadlock):
        run(0, main)


def test_the_wall_clock_jumps_and_the_other_does_not() -> None:
    async def main(loop: SimLoop) -> tuple[int, float]:
        clock = SimClock(loop)
        wall, monotonic = clock.now_ms(), clock.monotonic()
        clock.jump(-5_000)
        await asyncio.sleep(1)
        return clock.now_ms() - wall, clock.monotonic() - monotonic

    assert run(0, main) == (-4_000, 1.0)


def test_one_seed_gives_one_trace() -> None:
    """In other processes, with other hash seeds and other addresses of everything."""
    script = Path(__file__).with_name("trace.py")
    traces = [_trace(script, hash_seed, seed=1) for hash_seed in (0, 1, 2, 3)]
    assert len(set(traces)) == 1
    assert traces[0] != _trace(script, 0, seed=2)


def _trace(script: Path, hash_seed: int, seed: int) -> str:
    environment = {
        **os.environ,
        "PYTHONHASHSEED": str(hash_seed),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    return subprocess.run(
        [sys.executable, script, str(seed)],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
