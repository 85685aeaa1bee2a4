"""`AsyncClient`: the verbs of the lectures, for programs that wait in a loop."""

from __future__ import annotations

from typing import Self

from entrepot.client.messaging.keeper import PATIENCE_S, Keeper
from entrepot.client.messaging.transactions import TransactionVerbs
from entrepot.client.queue_leases import Login
from entrepot.core.ports import Net
from entrepot.net.sockets import SocketNet

AMQP, KAFKA = "127.0.0.1:5672", "127.0.0.1:9092"


class AsyncClient(TransactionVerbs):
    """Queues, publish/subscribe, requests, topics and transactions of one broker.

        async with entrepot.AsyncClient() as client:
            await client.put("work", {"id": 7})
            message = await client.get("work", timeout_s=5)

    It connects when it has to, and again when a connection breaks; `patience_s` is how long it
    tries before that is an error, and `connect_s` how long the first time, if that is another time.
    Of several addresses, with commas, it takes one that answers.
    """

    def __init__(
        self,
        amqp: str = AMQP,
        kafka: str = KAFKA,
        *,
        user: str = "guest",
        password: str = "guest",
        vhost: str = "/",
        patience_s: float = PATIENCE_S,
        connect_s: float | None = None,
        net: Net | None = None,
    ) -> None:
        """`amqp` and `kafka` are `host:port`: for queues and subjects, and for topics."""
        self._net = net or SocketNet()
        login = Login(user, password)
        keeper = Keeper(self._net, amqp, login, vhost, patience_s=patience_s, connect_s=connect_s)
        super().__init__(keeper)
        self.__post_init__()
        self._bootstrap = kafka
        self._kafka = None
        self._replicas = []

    async def __aenter__(self) -> Self:
        """Connected, or Unreachable when the patience is over."""
        await self._keeper.session()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything. What was not confirmed fails, and what was not settled is ready again."""
        for each in self._replicas:
            await each.stop()
        await self._keeper.close()
        if self._kafka is not None:
            await self._kafka.close()
