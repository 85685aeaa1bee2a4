"""Threads for what takes long, so that the event loop need not wait for it.

Each kind of work has threads of its own: none of them holds up another.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import TypeVar

from entrepot.core.ports import Worker

T = TypeVar("T")

_STORE_THREADS = 4  # One copies; the others check the addresses of new tiers.


def password_worker() -> Worker:
    """Return a worker with one thread: guessing passwords then uses one core, and not the loop."""
    return _worker("passwords")


def codec_worker() -> Worker:
    """Return a worker with one thread: a batch may be large when decompressed, so one at a time."""
    return _worker("codecs")


def store_worker() -> Worker:
    """Return a worker with a few threads, each for one task. They do not hold up the end of the
    process: a store may take long to answer, and what it was told is complete or does not count."""
    free = asyncio.Semaphore(_STORE_THREADS)

    async def work(task: Callable[[], T], /) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def run() -> None:
            try:
                tell = partial(_set_result, done, task())
            except Exception as error:
                tell = partial(_set_exception, done, error)
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                loop.call_soon_threadsafe(tell)

        async with free:
            Thread(target=run, name="stores", daemon=True).start()
            return await done

    return work


def _set_result(done: asyncio.Future[T], result: T) -> None:
    if not done.cancelled():
        done.set_result(result)


def _set_exception(done: asyncio.Future[T], error: Exception) -> None:
    if not done.cancelled():
        done.set_exception(error)


def _worker(name: str) -> Worker:
    pool = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def work(task: Callable[[], T], /) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, task)

    return work
