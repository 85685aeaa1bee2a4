"""One node on a simulated disk, without a network: handlers are called directly."""

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from entrepot.broker.access import ANONYMOUS
from entrepot.broker.broker import Broker
from entrepot.broker.served_partition import committed
from entrepot.broker.server_settings import Defaults
from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.fetch_session import FetchSessions
from sim import loop
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy

NODE_ID = 7
HOST, PORT = "node.example", 19092

Body = Callable[..., Coroutine[Any, Any, None]]


class Node:
    """What a test's body gets: the context, and the disk to break things with."""

    def __init__(self, sim: loop.SimLoop, defaults: Defaults) -> None:
        self.disk = SimDisk(sim.random("disk"))
        self.clock, self._entropy = SimClock(sim), SimEntropy(sim.random("entropy"))
        self._defaults = defaults
        self._sim = sim
        self._process = loop.Process(sim)
        self.context = self._context()

    def _context(self) -> Context:
        clock, entropy = self.clock, self._entropy
        broker = Broker(self.disk, clock, entropy, self._defaults, node_id=NODE_ID)
        principal = broker.access.principal(ANONYMOUS, "")
        return Context(broker, clock, FetchSessions(clock, entropy), NODE_ID, HOST, PORT, principal)

    def act_as(self, user: str, host: str = "") -> None:
        """From now on requests come from this user."""
        self.context.principal = self.context.broker.access.principal(user, host)

    async def start(self) -> None:
        """What goes on in the background dies with the process."""
        await self._process.start(self.context.broker.open())

    async def power_fails(self) -> None:
        """Start again from what is permanent."""
        self._process.kill()
        self.context.broker.groups.close()  # A test's calls set its timers, not the process.
        self.context.broker.share_groups.close()
        self._process = loop.Process(self._sim)
        self.disk = self.disk.crash()
        self.context = self._context()
        await self.start()

    async def stop(self) -> None:
        """Cleanly; files can be damaged then, before the next `start`."""
        await self._process.start(self.context.broker.close())
        self._process.kill()
        self._process = loop.Process(self._sim)
        self.disk = self.disk.kill()
        self.context = self._context()

    async def append(self, topic: str, timestamps: Sequence[int], index: int = 0) -> None:
        """One batch with a record per timestamp, committed."""
        broker = self.context.broker
        served = broker.served_partition(broker.topic(topic), index)
        records = [Record(b"key", b"value", (), timestamp) for timestamp in timestamps]
        appended = served.append(batch.build(records, now_ms=self.clock.now_ms()))
        await committed(served.partition, appended.offset_end)


def on_node(defaults: Defaults | None = None) -> Callable[[Body], Callable[..., None]]:
    """Makes a test of `async def test(node, ...)`; the other arguments stay pytest's."""

    def decorate(body: Body) -> Callable[..., None]:
        async def main(sim: loop.SimLoop, arguments: dict[str, Any]) -> None:
            node = Node(sim, defaults or Defaults())
            await node.start()
            await body(node, **arguments)

        def test(**arguments: Any) -> None:
            loop.run(0, lambda sim: main(sim, arguments))

        signature = inspect.signature(body)
        test.__name__ = body.__name__
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[1:], return_annotation=None
        )
        return test

    return decorate
