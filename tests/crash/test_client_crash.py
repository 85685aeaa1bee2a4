"""`entrepot.AsyncClient` while its broker is killed again and again: it goes on by itself, and what
it promised holds."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import entrepot
from entrepot.testing import Broker, broker

KILLS = 3
WAIT_S = 60.0


@asynccontextmanager
async def killed_meanwhile(server: Broker, kills: int = KILLS) -> AsyncIterator[asyncio.Event]:
    """Kill the broker a few times while the block runs; the event is set after the last start."""
    is_over = asyncio.Event()

    async def work() -> None:
        for _ in range(kills):
            await asyncio.sleep(0.3)
            server.kill()
            await asyncio.sleep(0.05)
            await asyncio.to_thread(server.start)
        is_over.set()

    task = asyncio.create_task(work())
    try:
        yield is_over
        await task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def connect(server: Broker) -> entrepot.AsyncClient:
    host, port = server.endpoints["amqp"]
    return entrepot.AsyncClient(f"{host}:{port}", server.bootstrap, patience_s=WAIT_S)


async def drain(client: entrepot.AsyncClient, name: str) -> list[Any]:
    found: list[Any] = []
    async for batch in client.batches(name, timeout_s=1):
        found += [message.value for message in batch]
    return found


@pytest.mark.usefixtures("every_durability")
@pytest.mark.parametrize("kills", [True, False])
def test_one_kill(kills: bool) -> None:
    """What is waited for survives it, or a restart: a get, a subscription, and a request."""

    async def work() -> None:
        async with broker() as server, connect(server) as client:
            events: list[Any] = []
            await client.subscribe("news.*", lambda _, event: events.append(event.value))
            await client.put("kept", "before")
            waiting = asyncio.create_task(client.get("later", WAIT_S))
            asked = asyncio.create_task(client.request("service", 20, WAIT_S))

            async def is_asked() -> bool:
                return await count(client, "service") > 0

            async def is_heard() -> bool:
                return events == ["after"]

            await until(is_asked)
            await asyncio.to_thread(server.kill if kills else server.stop)
            await asyncio.to_thread(server.start)
            await client.put("later", "came")
            assert (await waiting).value == "came"
            serving = await client.serve("service", lambda request: request.value + 1)
            assert (await asked).value == 21
            await serving.stop()
            await client.publish("news.a", "after")
            assert (await client.get("kept", WAIT_S)).value == "before"
            await until(is_heard)

    asyncio.run(work())


async def until(is_so: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not await is_so():  # noqa: ASYNC110  # Nothing says when.
            await asyncio.sleep(0.02)


async def count(client: entrepot.AsyncClient, name: str) -> int:
    try:
        return await client.count(name)
    except entrepot.client.amqp_connection.AmqpRefused:
        return 0


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.parametrize("once", [False, True])
def test_what_was_put_is_there_and_once_if_that_was_asked_for(once: bool) -> None:
    async def work() -> None:
        async with broker() as server, connect(server) as client:
            done: list[int] = []
            async with killed_meanwhile(server) as is_over:
                number = 0
                while not is_over.is_set():
                    numbers = range(number, number + 50)
                    number += 50
                    puts = [client.put("work", each, id=str(each), once=once) for each in numbers]
                    await asyncio.gather(*puts)
                    done += numbers
            counts = Counter(await drain(client, "work"))
            assert sorted(counts) == done
            if once:
                assert set(counts.values()) == {1}
            assert client._keeper.connections > KILLS

    asyncio.run(work())


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_every_message_is_handled_and_what_was_settled_before_the_kill_is_not_lost() -> None:
    async def work() -> None:
        async with broker() as server, connect(server) as client:
            handled: Counter[int] = Counter()
            await client.put_many("work", range(3_000))

            async def handle(message: entrepot.Message) -> None:
                handled[message.value] += 1
                await asyncio.sleep(0)

            await client.notify("work", handle)
            async with killed_meanwhile(server):
                await client.put_many("work", range(3_000, 4_000))

            async def is_done() -> bool:
                return len(handled) == 4_000

            await until(is_done)
            assert sorted(handled) == list(range(4_000))

    asyncio.run(work())


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_what_is_appended_through_kills_is_there_once_and_in_order() -> None:
    async def work() -> None:
        async with broker() as server, connect(server) as client:
            topic = await client.topic("log", partitions=1)
            number = 0
            async with killed_meanwhile(server) as is_over:
                while not is_over.is_set():
                    await topic.append(number)
                    number += 1
            reader = await topic.read()
            found: list[Any] = []
            while len(found) < number:
                found += [entry.value for entry in await reader.poll(1)]
            assert found == list(range(number))

    asyncio.run(work())


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_a_transaction_loses_nothing() -> None:
    """Moved from one queue to the other under kills: nothing is lost, and a few may be twice."""

    async def work() -> None:
        async with broker() as server, connect(server) as client:
            await client.put_many("in", range(300))
            unknown = 0
            async with killed_meanwhile(server) as is_over:
                while not is_over.is_set():
                    try:
                        async with client.transaction() as transaction:
                            found = await transaction.get("in", 0.2)
                            await transaction.put("out", found.value)
                    except entrepot.client.errors.Unreachable:
                        unknown += 1
                    except TimeoutError:
                        pass
            counts = Counter(await drain(client, "out") + await drain(client, "in"))
            assert sorted(counts) == list(range(300))
            assert sum(counts.values()) - 300 <= unknown

    asyncio.run(work())
