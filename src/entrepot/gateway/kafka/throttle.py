"""Measures what a request uses of its client's quotas, and how long the client is throttled.

The answer is sent at once and has the throttle time. For that time the broker serves no request
of the connection, whether the client waits or not. The time of a request is counted only while
the event loop works for it: a fetch that waits for records uses none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from entrepot.broker.quotas import Limit
from entrepot.core import limits
from entrepot.gateway.kafka.context import Context

T = TypeVar("T")


class Cost:
    """Counts the time that one request takes, from when this object is made."""

    __slots__ = ("_client_id", "_context", "_since_s", "_spent_s")

    def __init__(self, context: Context, client_id: str | None) -> None:
        self._context = context
        self._client_id = client_id or ""
        self._spent_s = 0.0  # Up to when the clock was last stopped.
        self._since_s: float | None = context.clock.monotonic()  # None means: the clock is stopped.

    def throttle_ms(self, limit: Limit | None = None, size: int = 0) -> int:
        """Return how long the client has to wait. Called once, with the bytes of the limit."""
        context = self._context
        quotas = context.broker.quotas
        self.stop()
        now_s = context.clock.monotonic()
        user, client_id = context.principal.user, self._client_id
        percents = 100 * self._spent_s
        wait_s = quotas.spend(user, client_id, Limit.REQUEST_PERCENTAGE, percents, now_s)
        if limit is not None:
            wait_s = max(wait_s, quotas.spend(user, client_id, limit, size, now_s))
        wait_s = min(wait_s, limits.THROTTLE_MS_MAX / 1_000)
        if wait_s > 0:
            context.muted_until_s = max(context.muted_until_s, now_s + wait_s)
        return round(wait_s * 1_000)

    def watch(self, work: Awaitable[T]) -> Awaitable[T]:
        """Return the same work, with the clock stopped until it begins and while it waits."""
        self.stop()
        return _Watched(self, work)

    def stop(self) -> None:
        if self._since_s is not None:
            self._spent_s += self._context.clock.monotonic() - self._since_s
            self._since_s = None

    def go_on(self) -> None:
        self._since_s = self._context.clock.monotonic()


class _Free(Cost):
    """The cost of a request while there are no quotas: nothing is measured."""

    __slots__ = ()

    def __init__(self) -> None:
        """Hold nothing."""

    def throttle_ms(self, limit: Limit | None = None, size: int = 0) -> int:
        return 0

    def watch(self, work: Awaitable[T]) -> Awaitable[T]:
        return work


_FREE = _Free()


def cost_of(context: Context, client_id: str | None) -> Cost:
    """Begin to count what a request takes."""
    return Cost(context, client_id) if context.broker.quotas else _FREE


class _Watched(Awaitable[T]):
    def __init__(self, cost: Cost, work: Awaitable[T]) -> None:
        self._cost = cost
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        cost, step, given = self._cost, steps.send, None
        while True:
            cost.go_on()
            try:
                waits_for = step(given)
            except StopIteration as done:
                result: T = done.value
                return result
            cost.stop()
            try:
                given, step = (yield waits_for), steps.send
            except BaseException as error:
                given, step = error, steps.throw
