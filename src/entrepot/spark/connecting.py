"""The client, for code that does not wait.

Spark calls the source and the sink, in processes of its own, and wants answers. So a loop
runs here for as long as a call takes. Between two calls nothing runs: what has come in
waits in the socket, and a connection that was lost meanwhile is noticed, and made anew,
by the next request.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Self, TypeVar

from entrepot.client.client import Client
from entrepot.client.security import BadProperty, connection_security
from entrepot.spark.options import Address, OptionError

ATTEMPTS = 30  # About 25 seconds: a broker may be started again under a running query.
STEPS_TO_SEND = 4  # Turns of the loop until a request is out, if its connection is open.

_Result = TypeVar("_Result")


class Underway(Generic[_Result]):
    """A request that was sent."""

    def __init__(self, task: "asyncio.Task[_Result]") -> None:
        self.task = task


class Connected:
    """A client and its loop. Connects with its first request."""

    def __init__(self, address: Address, *, client_id: str | None = None) -> None:
        self._client = new_client(address, client_id or address.client_id)
        self._runner = asyncio.Runner()
        # Not through `Runner.run`: its handling of signals writes the result out as text.
        self._finished = self._runner.get_loop().run_until_complete

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def check(self) -> None:
        """Connect, or raise Unreachable without trying for long."""
        self._finished(self._client.cluster.connect())

    def run(self, work: Callable[[Client], Awaitable[_Result]]) -> _Result:
        async def finish() -> _Result:
            return await work(self._client)

        return self._finished(finish())

    def start(self, work: Callable[[Client], Awaitable[_Result]]) -> Underway[_Result]:
        """Send a request whose answer is wanted later."""

        async def finish() -> _Result:
            return await work(self._client)

        async def send() -> "asyncio.Task[_Result]":
            task = asyncio.create_task(finish())
            for _ in range(STEPS_TO_SEND):
                await asyncio.sleep(0)
            return task

        return Underway(self._finished(send()))

    def finish(self, underway: Underway[_Result]) -> _Result:
        return self._finished(underway.task)

    def close(self) -> None:
        self._finished(self._client.close())
        self._runner.close()


def new_client(address: Address, client_id: str) -> Client:
    try:
        net, credentials = connection_security(dict(address.properties))
    except BadProperty as error:
        raise OptionError(f"kafka.{error}") from None
    return Client(
        net,
        address.bootstrap,
        client_id=client_id,
        attempts=ATTEMPTS,
        credentials=credentials,
    )
