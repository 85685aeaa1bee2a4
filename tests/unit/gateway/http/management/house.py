"""A broker with queues on a simulated disk, and its management API without a network."""

import inspect
import json
from base64 import b64encode
from collections.abc import Callable, Coroutine
from typing import Any

from entrepot.broker.access import AccessSettings
from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.broker.queue.message import Taken
from entrepot.broker.sessions import ChannelFacts, ConnectionFacts, ConsumerFacts
from entrepot.broker.users import user_record
from entrepot.core.neutral import Formats
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.http.console.logins import Logins
from entrepot.gateway.http.management.application import Management
from entrepot.gateway.http.management.call import Context, Setting
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.gateway.rabbitmq.rights import DEFAULT_EXCHANGE_NAME
from entrepot.wire.http.request import Request
from sim import loop
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy

Body = Callable[..., Coroutine[Any, Any, None]]

BOSS = "boss"  # May do everything, where anything is asked.


class House:
    def __init__(self, sim: loop.SimLoop, *, asks: bool) -> None:
        self.clock = SimClock(sim)
        self.asks = asks
        self.broker = Broker(
            SimDisk(sim.random("disk")),
            self.clock,
            SimEntropy(sim.random("entropy")),
            formats=Formats((AMQP,)),
            dialect=RabbitDialect(),
            access=AccessSettings(
                is_enforced=asks, super_users=[BOSS], default_exchange_name=DEFAULT_EXCHANGE_NAME
            ),
            predeclared=PREDECLARED,
        )
        self.login = LoginPolicy(self.broker.users, self.broker.access, asks_users=asks)
        self.logins = Logins(self.login, self.clock, self.broker.entropy, "here", is_tls=False)
        self.context = Context(
            self.broker,
            self.clock,
            self.login,
            "1.2.3",
            "entrepot@here",
            0,
            lambda: {"http": ("h", 1)},
            logins=self.logins,
            settings=lambda: [
                Setting("host", "h", "h", "default"),
                Setting("node_id", "7", "1", "command line"),
            ],
        )
        self.handle = Management(self.context)
        self.who = BOSS if asks else "guest"

    async def add_user(self, name: str) -> None:
        await self.broker.change_security(
            user_record(await self.broker.users.with_password(name, name))
        )

    async def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        user: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and what the answer says. A user's password is the name."""
        who = user or self.who
        token = b64encode(f"{who}:{who}".encode()).decode()
        sent = {"host": "localhost", "authorization": f"Basic {token}"} | (headers or {})
        data = (
            body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        )
        response = await self.handle(Request(method, path, sent, data), "127.0.0.1")
        return response.status, json.loads(bytes(response.body)) if response.body else None

    async def get(self, path: str) -> Any:
        status, found = await self.call("GET", path)
        assert status == 200, (status, found)
        return found

    async def declare(self, queue: str, arguments: dict[str, Any] | None = None) -> None:
        status, said = await self.call("PUT", f"/api/queues/%2F/{queue}", {"arguments": arguments})
        assert status == 201, (status, said)

    async def publish(self, queue: str, *payloads: str, headers: object = None) -> None:
        for payload in payloads:
            status, said = await self.call(
                "POST",
                "/api/exchanges/%2F/amq.default/publish",
                {
                    "properties": {"delivery_mode": 2, "headers": headers or {}},
                    "routing_key": queue,
                    "payload": payload,
                    "payload_encoding": "string",
                },
            )
            assert (status, said) == (200, {"routed": True})

    async def take(self, queue: str, mode: str, count: int = 100) -> list[str]:
        status, rows = await self.call(
            "POST",
            f"/api/queues/%2F/{queue}/get",
            {"count": count, "ackmode": mode, "encoding": "auto"},
        )
        assert status == 200, rows
        return [row["payload"] for row in rows]


def in_house(*, asks: bool = False) -> Callable[[Body], Callable[..., None]]:
    """Makes a test of `async def test(house, ...)`; the other arguments stay pytest's."""

    def decorate(body: Body) -> Callable[..., None]:
        async def main(sim: loop.SimLoop, arguments: dict[str, Any]) -> None:
            house = House(sim, asks=asks)
            await house.broker.open()
            if asks:
                await house.add_user(BOSS)
            await body(house, **arguments)
            await house.broker.close()

        def test(**arguments: Any) -> None:
            loop.run(0, lambda sim: main(sim, arguments))

        signature = inspect.signature(body)
        test.__name__ = body.__name__
        test.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=list(signature.parameters.values())[1:], return_annotation=None
        )
        return test

    return decorate


class FakeSession:
    """A connection with one channel and one consumer."""

    def __init__(self, port: int, user: str = "guest", vhost: str = "/", queue: str = "q") -> None:
        self.closed: str | None = None
        self.name = f"127.0.0.1:{port} -> 127.0.0.1:5672"
        consumer = ConsumerFacts("tag", queue, prefetch=7, arguments={"x-priority": 3})
        channel = ChannelFacts(1, (consumer,), unacked=2, prefetch=7, is_confirming=True)
        self._facts = ConnectionFacts(
            self.name,
            f"127.0.0.1:{port}",
            user,
            vhost,
            "AMQP 0-9-1",
            1_000,
            (channel,),
            client_properties={"product": "pika", "capabilities": {"basic.nack": True}},
            owner=self,
        )

    def facts(self) -> ConnectionFacts:
        return self._facts

    def close(self, reason: str) -> None:
        self.closed = reason


class FakeConsumer:
    """Takes nothing, and is there."""

    def __init__(self, tag: str = "tag", *, is_exclusive: bool = False) -> None:
        self.tag = tag
        self.auto_ack = False
        self.is_exclusive = is_exclusive
        self.priority = 0

    def room(self) -> int:
        return 0

    def deliver(self, lane: int, taken: Taken) -> None:
        raise AssertionError("there was no room")

    def cancelled(self) -> None: ...

    def activated(self, is_active: bool) -> None: ...
