"""What a server does while nobody asks for anything: load what may be asked for, look for garbage.

**Loading.** A broker is ready quickly because it imports little; but whoever asks for an API
first then waits for its modules, and everybody else with them. So they are loaded after the
start, one at a time, when the loop has nothing else to do, in a thread: the longest takes
40 ms, on a busy machine three times that. All of it is some ten MiB of memory.

**Garbage.** Python looks through all objects for cycles now and then, all at once: with a
hundred thousand partitions that takes more than a second. Partitions are there to stay, so
what survived a look that took long is set aside (frozen) and not looked at again: the next
look is short, because it is only at what came since. What is set aside is freed as always
when nobody refers to it; only a cycle among such objects stays. So when the process has become
large, and twice as large as it was the last time, everything is looked through once more.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from resource import RUSAGE_SELF, getrusage

from entrepot.core import limits
from entrepot.core.ports import Clock, Worker
from entrepot.gateway.kafka import apis
from entrepot.wire.kafka.api import Api

LOAD_AFTER_S = 1.0  # From the start; whoever waited for the broker is served by then.
LOAD_EVERY_S = 0.02
LATE_S = 0.005  # A timer that is later than this says that the loop is busy.
BUSY_MAX = 50  # So often a module waits for a loop that is not busy.
LOOK_EVERY_S = 10.0  # Or earlier, when there is much that is new.
CHECK_EVERY_S = 0.1
NEW_MAX = 10  # Collections of the middle generation: some 7,000 new objects each.
LOOK_S_MAX = 0.02  # A look that took longer is followed by setting aside.
MEMORY_MAX = 2 * limits.GIB  # Of the process, before everything is looked through at first.
_NEVER = 1_000_000_000


async def load(modules: Iterable[str], clock: Clock, worker: Worker) -> None:
    """Import them one after the other, while the loop is idle."""
    await asyncio.sleep(LOAD_AFTER_S)
    for name in modules:
        for _ in range(BUSY_MAX):
            due_s = clock.monotonic() + LOAD_EVERY_S
            await asyncio.sleep(LOAD_EVERY_S)
            if clock.monotonic() - due_s < LATE_S:
                break
        await worker(partial(import_module, name))


def modules_of(protocol: str) -> Iterator[str]:
    """What a protocol's requests need, those first that others import."""
    yield "re2"  # For names of topics, and for permissions.
    if protocol == "kafka":
        for api in apis.SERVED:
            yield from _modules_of_api(api)
        return
    for package in (f"entrepot.wire.{protocol}", f"entrepot.gateway.{protocol}"):
        yield from _modules_in(package)


def _modules_of_api(api: Api) -> Iterator[str]:
    """Of its newest version. An older one is a matter of milliseconds then."""
    name = api.name.lower()
    for direction in ("request", "response"):
        yield f"kio.schema.{name}.v{api.version_last}.{direction}"
    yield f"entrepot.gateway.kafka.{name}"


def _modules_in(package: str) -> Iterator[str]:
    found = list(iter_modules(import_module(package).__path__, f"{package}."))
    yield from (each.name for each in found)
    for each in found:
        if each.ispkg:
            yield from _modules_in(each.name)


async def _until_there_is_much() -> None:
    for _ in range(round(LOOK_EVERY_S / CHECK_EVERY_S)):
        await asyncio.sleep(CHECK_EVERY_S)
        if gc.get_count()[2] >= NEW_MAX:
            return


def memory_peak() -> int:
    """Return the most memory that the process ever had, in bytes."""
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * limits.KIB


async def collect_garbage(clock: Clock) -> None:
    """Look for garbage for ever, a little at a time. Ends with the task."""
    gc.freeze()  # What there is after a start is there to stay.
    memory_max = MEMORY_MAX
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)  # The oldest are looked at here, and only here.
    try:
        while True:
            await _until_there_is_much()
            if memory_peak() > memory_max:
                gc.unfreeze()
                memory_max = 2 * memory_peak()
            before_s = clock.monotonic()
            gc.collect()
            if clock.monotonic() - before_s > LOOK_S_MAX:
                gc.freeze()
    finally:
        gc.set_threshold(young, middle, old)
