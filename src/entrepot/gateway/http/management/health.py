"""Whether the process lives and the broker serves, for who restarts it or sends clients to it.

`/health/live` answers as long as the loop runs. `/health/ready` says whether clients are served;
what is short or down is told beside that, because one queue that cannot be read is no reason to
send everybody away. Nobody has to log in for this, so it tells counts and no names, and what takes
long to count is counted at most once a second, whoever asks.
"""

from __future__ import annotations

from contextlib import suppress

import msgspec

from entrepot.core import limits
from entrepot.core.errors import UnknownVhost
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Context
from entrepot.wire.http.request import HttpError, Request
from entrepot.wire.http.response import Response

PREFIX = "health"
KEPT_S = 1.0

_HEADERS = (("Content-Type", "application/json"), ("Cache-Control", "no-store"))


class Health:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._down: dict[str, int] = {}
        self._alarms: list[str] = []
        self._until_s = 0.0  # When what is known is too old.

    async def answer(self, path: tuple[str, ...], request: Request) -> Response:
        """Answer a request without a login. Raises HttpError."""
        if path not in ((PREFIX, "live"), (PREFIX, "ready")):
            raise HttpError(404, "Not Found")
        if request.method not in ("GET", "HEAD"):
            return Response(405, headers=(("Allow", "GET, HEAD"),))
        if path[1] == "live":
            return Response(200, msgspec.json.encode({"status": "live"}), _HEADERS)
        return await self._ready()

    async def _ready(self) -> Response:
        context = self._context
        now_s = context.clock.monotonic()
        if now_s >= self._until_s:
            self._until_s = now_s + KEPT_S  # Set before: others who ask meanwhile do not count.
            self._alarms = await alarms(context)
            self._down = await context.broker.turns.run(_down(context))
        is_ready = context.broker.sessions.is_accepting
        status = "ready" if is_ready else "stopped"
        body = {"status": status, "alarms": self._alarms, "down": self._down}
        return Response(200 if is_ready else 503, msgspec.json.encode(body), _HEADERS)


async def alarms(context: Context) -> list[str]:
    """Return what is short: memory, so that publishers wait, or the disk."""
    found = []
    memory = context.broker.vhosts.memory_use
    if memory is not None and memory.is_high:
        found.append("memory")
    if context.sources.space is not None:
        with suppress(OSError):
            if (await context.sources.space()).free < limits.DISK_FREE_BYTES_LOW:
                found.append("disk")
    return found


def _down(context: Context) -> Steps[dict[str, int]]:
    broker = context.broker
    queues = 0
    for name in list(broker.vhosts.names):
        with suppress(UnknownVhost):  # It may be about to be deleted.
            for queue in list(broker.vhosts.get(name).all_queues):
                queues += queue.fault is not None
                yield
    return {
        "partitions": len(broker.partition_faults()),
        "queues": queues,
        "tiers": len(broker.copier.troubles()),
    }
