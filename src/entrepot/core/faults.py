"""Our own mistakes, where they are contained: logged with their traceback, and counted.

Whoever runs something on behalf of one peer, one queue or one partition catches what goes wrong
there, tells it here, and ends that one: the connection, the queue, the partition. Nobody else
notices. What nobody caught comes to the loop's exception handler, which tells it here, too.

A simulation, and a test that does not say otherwise, has `Uncaught` in its place: there a
mistake is to be seen, so it is raised again and ends everything.
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
        """Log and count a mistake. The caller ends what it can no longer vouch for."""
        self.count += 1
        log.error("internal error %d: %s", self.count, where, exc_info=error)

    def guard(self, where: str, call: Callable[..., object], *arguments: object) -> None:
        """Call it, and go on whatever happens: for what is nobody's state."""
        try:
            call(*arguments)
        except Exception as error:
            self.caught(where, error)


class Uncaught(Faults):
    __slots__ = ()

    def caught(self, where: str, error: BaseException) -> None:
        """Raise it again, so that the simulation or the test ends with it."""
        raise error
