"""Internal errors (mistakes in our own code): logged with their traceback, and counted.

Code that runs on behalf of one peer, one queue or one partition catches its exceptions, reports
them here, and ends that one: the connection, the queue, the partition. Nothing else is
affected. An exception that nobody caught is reported by the loop's exception handler.

Simulations, and tests unless they say otherwise, use `Uncaught`: it raises the error again, so
that it ends the simulation or the test.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

log = logging.getLogger("entrepot.faults")


class Faults:
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0  # Since the start.

    def caught(self, where: str, error: BaseException) -> None:
        """Log and count an internal error. The caller ends what may be inconsistent now."""
        self.count += 1
        log.error("internal error %d: %s", self.count, where, exc_info=error)

    def guard(self, where: str, call: Callable[..., object], *arguments: object) -> None:
        """Call a function; report an exception in it and go on. Only for calls that leave no shared
        state broken."""
        try:
            call(*arguments)
        except Exception as error:
            self.caught(where, error)


class Uncaught(Faults):
    __slots__ = ()

    def caught(self, where: str, error: BaseException) -> None:
        """Raise the error again, so that the simulation or the test ends with it."""
        raise error
