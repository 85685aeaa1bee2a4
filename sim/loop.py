"""An event loop without a world: time is a number, and chance decides who runs first.

Time moves only when nothing is left to do, straight to the next timer, so an hour of
waiting costs nothing. Callbacks that are ready together run in an order drawn from the
seed: asyncio promises more (first come, first served), but code that needs the promise
is code that no real network keeps it for.

What makes a run repeatable, and is therefore kept out: threads, sockets and executors
(an `AbstractEventLoop` refuses what it does not have), the garbage collector's timing
(the loop holds every task), and memory addresses (asyncio keeps tasks in sets; here
their hash is a serial number).

What makes a run honest: an exception in a callback, or in a task that nobody looked at
by the time the clock moves on, stops the world instead of becoming a log line. So does
a world in which nobody can ever run again.

Of asyncio's insides this uses `Handle._run`, `_cancelled` and `_context`, the loop's
`_timer_handle_cancelled`, and a task's `_log_traceback` and `_log_destroy_pending`.
They are the same in Python 3.11 to 3.14.
"""

import asyncio
import contextlib
import contextvars
import heapq
from asyncio import Handle, TimerHandle
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NoReturn, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

TURNS_PER_INSTANT_MAX = 100_000  # More, and the clock will never move again.


class Deadlock(Exception):
    """Nothing is ready and no timer is set: nobody will ever run again."""


class Livelock(Exception):
    """Somebody is always ready, so the clock stands still."""


class Process:
    """What dies together: the tasks and callbacks started from inside, and theirs.

    A kill is what kill -9 or a power failure is to a program: it stops between two
    awaits, no `finally` runs, and nobody is told. Membership travels with the context,
    as asyncio hands it from task to task and from timer to callback.
    """

    def __init__(self, loop: "SimLoop") -> None:
        self._loop = loop
        self.killed = False

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run as a part of this process. A task that is killed is never done."""
        context = contextvars.copy_context()
        context.run(_PROCESS.set, self)
        return self._loop.create_task(coroutine, context=context)

    def kill(self) -> None:
        self.killed = True


_PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimTask(asyncio.Task[T]):
    """A task that falls into the same place of a set in every run."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, T], serial: int, loop: "SimLoop", **options: Any
    ) -> None:
        self.serial = serial  # Set first: the parent puts the task into a set.
        super().__init__(coroutine, loop=loop, **options)

    def __hash__(self) -> int:
        return self.serial


def run(
    seed: int,
    main: Callable[["SimLoop"], Coroutine[Any, Any, T]],
    *,
    shuffle: bool = True,
) -> T:
    """Build a world from the seed, run `main` in it to its end, and return its result."""
    loop = SimLoop(seed, shuffle=shuffle)  # type: ignore[abstract]  # What it lacks it refuses.
    try:
        result: T = loop.run_until_complete(main(loop))
        return result
    except BaseException as error:
        error.add_note(f"seed {seed}, {loop.time():.6f} s into the simulation")
        raise


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self, seed: int, *, shuffle: bool = True) -> None:
        self.seed = seed
        self.steps = 0  # Callbacks run so far.
        self._chance = self.random("loop").random if shuffle else None
        self._time = 0.0
        self._turns = 0  # Since the clock last moved.
        self._serial = 0
        self._ready: list[Handle] = []
        self._timers: list[tuple[float, int, TimerHandle]] = []  # A heap.
        self._tasks: dict[int, SimTask[Any]] = {}  # Those not done, oldest first.
        self._failed: list[SimTask[Any]] = []  # Done, with an exception nobody may have seen.
        self._failure: BaseException | None = None  # What stops the world.
        self._running = False

    def random(self, name: str) -> Random:
        """A stream of chance of its own, so that no part disturbs another's."""
        return Random(f"{self.seed}/{name}")

    def run_until_complete(self, future: Any) -> Any:
        """Run a coroutine to its end. Whatever else goes on ends with it, unfinished."""
        task = self.create_task(future)
        asyncio._set_running_loop(self)
        self._running = True
        try:
            while not task.done():
                self._turn()
            if not task.cancelled() and task.exception() is None:
                self._check_failed()
            return task.result()
        finally:
            self._end()
            self._running = False
            asyncio._set_running_loop(None)

    def _turn(self) -> None:
        """Run everything that is ready now, in an order of chance."""
        if not self._ready:
            self._move_time()
        ready, self._ready = self._ready, []
        chance = self._chance
        if chance is not None and len(ready) > 1:
            ready.sort(key=lambda _: chance())
        for handle in ready:
            if handle._cancelled or _dead(handle):
                continue
            self.steps += 1
            handle._run()
            if self._failure is not None:
                raise self._failure
        self._turns += 1
        if self._turns > TURNS_PER_INSTANT_MAX:
            raise Livelock(f"the clock stands still at {self._time} s{self._whereabouts()}")

    def _move_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not timers or timers[0][0] > self._time:
            self._check_failed()
            self._turns = 0
        if not timers:
            raise Deadlock(f"nobody will ever run again{self._whereabouts()}")
        self._time = max(self._time, timers[0][0])
        while timers and timers[0][0] <= self._time:
            self._ready.append(heapq.heappop(timers)[2])

    def _check_failed(self) -> None:
        failed, self._failed = self._failed, []
        for task in failed:
            if task._log_traceback:
                task.result()

    def _end(self) -> None:
        """Let go of what did not finish, in order, and of what it says about that."""
        for task in self._tasks.values():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            assert coroutine is not None
            with contextlib.suppress(BaseException):
                coroutine.close()
        self._tasks.clear()
        self._ready.clear()
        self._timers.clear()

    def _whereabouts(self) -> str:
        return "".join(
            f"\n  {task.get_name()} waits at {_place(task.get_coro())}"
            for task in self._tasks.values()
        )

    # Scheduling, as asyncio calls it.

    def time(self) -> float:
        return self._time

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        return self.call_at(self._time + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: contextvars.Context | None = None,
    ) -> TimerHandle:
        handle = TimerHandle(when, callback, args, self, context)
        handle._scheduled = True  # type: ignore[attr-defined]
        self._serial += 1
        heapq.heappush(self._timers, (when, self._serial, handle))
        return handle

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """It is skipped when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, **options: Any) -> SimTask[Any]:
        self._serial += 1
        task = SimTask(coro, self._serial, self, **options)
        self._tasks[task.serial] = task
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        assert isinstance(task, SimTask)
        del self._tasks[task.serial]
        if task._log_traceback:
            self._failed.append(task)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A callback failed. What a destructor has to say comes at no fixed time: ignored."""
        if "handle" in context and self._failure is None:
            self._failure = context["exception"]

    def run_in_executor(self, executor: object, func: object, *args: object) -> NoReturn:
        raise RuntimeError("a simulated world has no threads")

    def call_soon_threadsafe(self, callback: object, *args: object, **options: object) -> NoReturn:
        raise RuntimeError("a simulated world has no threads")

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return False

    def get_debug(self) -> bool:
        return False


def _dead(handle: Handle) -> bool:
    process = handle._context.get(_PROCESS)  # type: ignore[attr-defined]
    return process is not None and process.killed


def _place(awaitable: Any) -> str:
    """Where the innermost coroutine of an await chain stands."""
    place = "its start"
    while (frame := getattr(awaitable, "cr_frame", None)) is not None:
        place = f"{awaitable.__qualname__}, {frame.f_code.co_filename}:{frame.f_lineno}"
        awaitable = awaitable.cr_await
    return place
