"""Coroutines that run at once, and without a task.

A task takes a turn of the loop before its first step, and another one after its last. What mostly
waits for nothing, or for one commit, is begun here by the call that asks for it and ends in the
turn in which its wait does. There is no current task meanwhile, so the coroutine must not use
`asyncio.timeout`, task groups, or anything else that asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Begun:
    """A coroutine that is running, and then how it ended, as a future tells it."""

    __slots__ = ("_error", "_is_cancelled", "_loop", "_then", "_waited", "_work", "is_done")

    def __init__(self, work: Coroutine[Any, Any, None], then: Callable[[Begun], None]) -> None:
        """Run the work until it waits. `then` is called when it ends, unless that is now."""
        self._work = work
        self._then = then
        self._loop = asyncio.get_running_loop()
        self._waited: asyncio.Future[Any] | None = None  # What it waits for.
        self._error: BaseException | None = None
        self._is_cancelled = False
        self.is_done = False
        self._step()

    def cancelled(self) -> bool:
        return isinstance(self._error, asyncio.CancelledError)

    def exception(self) -> BaseException | None:
        return self._error

    def cancel(self) -> None:
        """End what the work waits for; the work gets a CancelledError there."""
        if self._waited is None or not self._waited.cancel():
            self._is_cancelled = True

    def _go_on(self, _: object = None) -> None:
        """Take the next steps, in a call of the loop's own."""
        self._step()
        if self.is_done:
            self._then(self)

    def _step(self) -> None:
        self._waited = None
        try:
            if self._is_cancelled:
                self._is_cancelled = False
                waited = self._work.throw(asyncio.CancelledError())
            else:
                waited = self._work.send(None)
        except StopIteration:
            self.is_done = True
        except (Exception, asyncio.CancelledError) as error:
            self.is_done, self._error = True, error
        else:
            self._wait_for(waited)

    def _wait_for(self, waited: asyncio.Future[Any] | None) -> None:
        if waited is None:  # It only lets others have a turn.
            self._loop.call_soon(self._go_on)
            return
        waited._asyncio_future_blocking = False  # As a task does.
        self._waited = waited
        waited.add_done_callback(self._go_on)
