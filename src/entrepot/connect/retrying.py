"""Patience: pauses that grow, and an end to them.

One of these serves a whole run, so that a target which fails, recovers and fails again
is given its time anew, and one that never recovers ends the run with its last words.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from entrepot.client.errors import ClientError
from entrepot.connect.interface import Unavailable

PAUSE_S_FIRST = 0.1
PAUSE_S_MAX = 10.0

_Result = TypeVar("_Result")

log = logging.getLogger("entrepot.connect")


class Stopped(Exception):
    """The run is to end, and what was tried is given up."""


class Patience:
    def __init__(self, name: str, stop: asyncio.Event, *, patience_s: float) -> None:
        self._name = name
        self._stop = stop
        self._patience_s = patience_s
        self._pause_s = PAUSE_S_FIRST
        self._failed_s: float | None = None  # Since when, by the loop's clock.

    def succeeded(self) -> None:
        self._failed_s, self._pause_s = None, PAUSE_S_FIRST

    async def endure(self, error: Exception) -> None:
        """Pause; raises the error instead when it has lasted too long or never gets better."""
        now_s = asyncio.get_running_loop().time()
        if self._failed_s is None:
            self._failed_s = now_s
        if not is_passing(error) or now_s - self._failed_s >= self._patience_s:
            raise error
        log.warning(
            "trying again",
            extra={"connector": self._name, "reason": str(error), "pause_s": self._pause_s},
        )
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, PAUSE_S_MAX)
        if await self.pause(pause_s):
            raise Stopped

    async def persist(self, attempt: Callable[[], Awaitable[_Result]]) -> _Result:
        while True:
            try:
                result = await attempt()
            except Unavailable as error:
                await self.endure(error)
                continue
            self.succeeded()
            return result

    async def pause(self, seconds: float) -> bool:
        """Whether the run is to end."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        return self._stop.is_set()


def is_passing(error: Exception) -> bool:
    if isinstance(error, ClientError):
        return error.retriable
    return isinstance(error, Unavailable)
