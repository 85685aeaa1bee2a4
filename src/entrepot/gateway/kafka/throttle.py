"""What a request costs its client, and how long the client has to wait for it.

The answer goes out at once and carries the time to wait; the connection is not served
for that time, whether the client keeps to it or not. The loop's time is counted only
while it works for the request: a fetch that waits for records costs nothing meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, TypeVar

from entrepot.broker.quotas import Limit
from entrepot.core import limits
from entrepot.gateway.kafka.context import Context

T = TypeVar("T")


class Cost:
    """Of one request, counted from when this is made."""

    __slots__ = ("_client_id", "_context", "_since_s", "_spent_s")

    def __init__(self, context: Context, client_id: str | None) -> None:
        self._context = context
        self._client_id = client_id or ""
        self._spent_s = 0.0  # Until the clock was last stopped.
        self._since_s: float | None = context.clock.monotonic()  # None while it is.

    def throttle_ms(self, limit: Limit | None = None, size: int = 0) -> int:
        """To be called once, with the bytes that a limit is set on."""
        context = self._context
        quotas = context.broker.quotas
        if not quotas:
            return 0
        self.stop()
        now_s = context.clock.monotonic()
        user, client_id = context.principal.removeprefix("User:"), self._client_id
        percents = 100 * self._spent_s
        wait_s = quotas.spend(user, client_id, Limit.REQUEST_PERCENTAGE, percents, now_s)
        if limit is not None:
            wait_s = max(wait_s, quotas.spend(user, client_id, limit, size, now_s))
        wait_s = min(wait_s, limits.THROTTLE_MS_MAX / 1_000)
        if wait_s > 0:
            context.muted_until_s = max(context.muted_until_s, now_s + wait_s)
        return round(wait_s * 1_000)

    def watch(self, work: Awaitable[T]) -> Awaitable[T]:
        """The same work, with the clock stopped until it begins and while it waits."""
        self.stop()
        return _Watched(self, work) if self._context.broker.quotas else work

    def stop(self) -> None:
        if self._since_s is not None:
            self._spent_s += self._context.clock.monotonic() - self._since_s
            self._since_s = None

    def go_on(self) -> None:
        self._since_s = self._context.clock.monotonic()


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
