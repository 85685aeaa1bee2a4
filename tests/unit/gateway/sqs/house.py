"""A broker with queues on a simulated disk, and SQS without a network."""

import inspect
import json
from collections.abc import Callable, Coroutine
from typing import Any

from entrepot.broker.broker import Broker
from entrepot.broker.login import LoginPolicy
from entrepot.core.measures import MessageCount
from entrepot.core.neutral import Formats
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.gateway.sqs.application import TARGET, Sqs
from entrepot.gateway.sqs.call import Context
from entrepot.wire.http.request import Request
from sim import loop
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy

Body = Callable[..., Coroutine[Any, Any, None]]


class House:
    def __init__(self, sim: loop.SimLoop) -> None:
        self.clock = SimClock(sim)
        self.disk = SimDisk(sim.random("disk"))
        self.broker = Broker(
            self.disk,
            self.clock,
            SimEntropy(sim.random("entropy")),
            formats=Formats(),
            dialect=RabbitDialect(),
            predeclared=PREDECLARED,
        )
        self.messages = MessageCount()
        login = LoginPolicy(self.broker.users, self.broker.access)
        self.handle = Sqs(Context(self.broker, self.clock, login, self.messages))

    async def __call__(self, action: str, **parameters: Any) -> Any:
        """What the answer says; a text is the code of an error."""
        headers = {"host": "localhost:9324", "x-amz-target": f"{TARGET}{action}"}
        request = Request("POST", "/", headers, json.dumps(parameters).encode())
        response = await self.handle(request, "127.0.0.1")
        if response.status != 200:
            return dict(response.headers)["x-amzn-query-error"].partition(";")[0]
        return json.loads(bytes(response.body)) if response.body else None

    async def queue(self, name: str = "work", **attributes: str) -> str:
        url = (await self("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        assert isinstance(url, str)
        return url


def in_house(body: Body) -> Callable[..., None]:
    """A test function: the house comes first, parameters after."""
    signature = inspect.signature(body)
    _, *parameters = signature.parameters.values()

    async def main(sim: loop.SimLoop, arguments: dict[str, Any]) -> None:
        house = House(sim)
        await house.broker.open()
        await body(house, **arguments)
        await house.broker.close()

    def test(**arguments: Any) -> None:
        loop.run(0, lambda sim: main(sim, arguments))

    test.__name__, test.__doc__, test.__module__ = body.__name__, body.__doc__, body.__module__
    test.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return test
