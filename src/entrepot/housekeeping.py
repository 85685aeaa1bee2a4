"""Imports modules and collects garbage in the background.

**Imports.** A broker starts quickly because it imports little; but the first request for an API
then has to wait for its modules, and all other clients with it. So they are imported after the
start, one at a time, in a thread, while the loop is idle. The longest import takes 40 ms, on a
busy machine three times that. All of them take about ten MiB of memory.

**Garbage.** A full garbage collection of Python visits all objects: with a hundred thousand
partitions it takes more than a second. Most of these objects live as long as the process. So
objects that survived a long collection are frozen (`gc.freeze`), and later collections visit only
objects made since. A frozen object is still freed when its last reference goes; only cycles of
frozen objects are not, and a closed connection is one. So when there are very many objects, half
as many again as after the last time, all of them are unfrozen and visited once: as soon as nobody
asks for anything, because that may take seconds; or at last, if there are more and more, all the
same. What counts is how many there are: a large message is memory, too, but nothing to visit.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from pkgutil import iter_modules
from resource import RUSAGE_SELF, getrusage

from entrepot.core import limits
from entrepot.core.ports import Clock, Worker
from entrepot.gateway.kafka import apis
from entrepot.wire.kafka.api import request_class, response_class

LOAD_AFTER_S = 1.0  # After the start: clients that waited for it come first.
LOAD_EVERY_S = 0.02
LATE_S = 0.005  # The loop is busy if a timer fires later than this.
BUSY_MAX = 50  # How often an import is put off because the loop is busy.
LOOK_EVERY_S = 10.0  # Between collections, unless there are many new objects earlier.
CHECK_EVERY_S = 0.05
BEAT_S = 0.025  # Between two looks at how late the loop is.
NEW_MAX = 4  # Collections of the middle generation: some 7,000 new objects each.
# After a collection that took longer, the survivors are frozen. In processor time: on a busy
# machine every collection takes long, and connections that are frozen are not collected.
LOOK_S_MAX = 0.01
MEMORY_MIN = 512 * limits.MIB  # Of the process at its peak, before its objects are counted.
BLOCKS_MAX = 6_000_000  # Of memory, for objects, before all are visited for the first time.
GROWTH = 1.5  # How many times as many there are when they are visited again,
BUSY_GROWTH = 4.0  # and how many more until others have to wait for it, perhaps for seconds.
IDLE_SHARE_MAX = 0.005  # Of the processor, since the last look, if nobody asks for anything.
_NEVER = 1_000_000_000


async def load(imports: Iterable[Callable[[], object]], clock: Clock, worker: Worker) -> None:
    """Do the imports one after the other, while the loop is idle."""
    await asyncio.sleep(LOAD_AFTER_S)
    for do_import in imports:
        for _ in range(BUSY_MAX):
            due_s = clock.monotonic() + LOAD_EVERY_S
            await asyncio.sleep(LOAD_EVERY_S)
            if clock.monotonic() - due_s < LATE_S:
                break
        await worker(do_import)


def imports_of(protocol: str) -> Iterator[Callable[[], object]]:
    """Yield functions that import the modules of a protocol, dependencies first."""
    yield partial(import_module, "re2")  # For names of topics, and for permissions.
    if protocol == "kafka":
        for entry in apis.SERVED:
            # The newest version. Others then take only milliseconds.
            yield partial(request_class, entry.api, entry.api.version_last)
            yield partial(response_class, entry.api, entry.api.version_last)
            yield entry.load
        return
    for package in (f"entrepot.wire.{protocol}", f"entrepot.gateway.{protocol}"):
        for name in _modules_in(package):
            yield partial(import_module, name)


def _modules_in(package: str) -> Iterator[str]:
    found = list(iter_modules(import_module(package).__path__, f"{package}."))
    yield from (each.name for each in found)
    for each in found:
        if each.ispkg:
            yield from _modules_in(each.name)


async def _until_there_is_much() -> None:
    """Wait until there are many new objects, but not longer than LOOK_EVERY_S."""
    for _ in range(round(LOOK_EVERY_S / CHECK_EVERY_S)):
        await asyncio.sleep(CHECK_EVERY_S)
        if gc.get_count()[2] >= NEW_MAX:
            return


def memory_peak() -> int:
    """Return the peak of the process's resident memory, in bytes."""
    peak = getrusage(RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * limits.KIB


def blocks() -> int:
    """Return how many blocks of memory Python's objects take. In a large process that takes some
    milliseconds; a small one has none worth counting."""
    return sys.getallocatedblocks() if memory_peak() > MEMORY_MIN else 0


def processor_time() -> float:
    """Return how long the process has run on a processor, in seconds."""
    used = getrusage(RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def keep_beating(beat: Callable[[float], None], clock: Clock) -> None:
    """Call `beat` some times a second with how late that is, until the task is cancelled."""
    while True:
        due_s = clock.monotonic() + BEAT_S
        await asyncio.sleep(BEAT_S)
        beat(max(0.0, clock.monotonic() - due_s))


async def collect_garbage(clock: Clock, took: Callable[[float], None] | None = None) -> None:
    """Collect garbage again and again, until the task is cancelled.

    `took` is called with the seconds of each collection.
    """
    gc.freeze()  # Objects made during the start live as long as the process.
    blocks_max, looked_s, used_s = float(BLOCKS_MAX), clock.monotonic(), processor_time()
    count_at_s = looked_s
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)  # Full collections happen only below.
    try:
        while True:
            await _until_there_is_much()
            used_before_s, used_s = used_s, processor_time()
            is_idle = used_s - used_before_s < IDLE_SHARE_MAX * (clock.monotonic() - looked_s)
            begun_s = clock.monotonic()
            visits_all = False
            if begun_s >= count_at_s:
                count_at_s = begun_s + LOOK_EVERY_S / 2
                visits_all = blocks() > (blocks_max if is_idle else BUSY_GROWTH * blocks_max)
            if visits_all:
                gc.unfreeze()
            gc.collect()
            if visits_all:
                blocks_max = max(BLOCKS_MAX, GROWTH * blocks())
            if took is not None:
                took(clock.monotonic() - begun_s)
            looked_s, used_before_s, used_s = clock.monotonic(), used_s, processor_time()
            if used_s - used_before_s > LOOK_S_MAX:
                gc.freeze()
    finally:
        gc.set_threshold(young, middle, old)
