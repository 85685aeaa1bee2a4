"""Clients that wait for a message: what they leave behind, and what they take."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.testing import Broker, broker

WAIT_S = 20.0
PAUSE_S = 0.1  # Until somebody waits.


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@asynccontextmanager
async def connected(server: Broker) -> AsyncIterator[entrepot.AsyncClient]:
    host, port = server.endpoints["amqp"]
    async with entrepot.AsyncClient(f"{host}:{port}", server.bootstrap) as client:
        yield client


async def given_up(work: Awaitable[object]) -> None:
    waiting = asyncio.ensure_future(work)
    await asyncio.sleep(PAUSE_S)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def waited(client: entrepot.AsyncClient, name: str, text: str) -> str:
    """Return the message that comes while somebody waits."""
    waiting = asyncio.create_task(client.get(name, WAIT_S))
    await asyncio.sleep(PAUSE_S)
    await client.put(name, text)
    return (await waiting).text


async def leased(client: entrepot.AsyncClient, name: str) -> str:
    async with client.lease(name) as message:
        return message.text


@pytest.mark.parametrize("wait", [entrepot.AsyncClient.get, leased])
def test_who_gave_up_takes_nothing(
    server: Broker, wait: Callable[[entrepot.AsyncClient, str], Awaitable[object]]
) -> None:
    async def work() -> None:
        async with connected(server) as client:
            name = f"given-up-{wait.__name__}"
            for text in "abc":
                await given_up(wait(client, name))
                assert await waited(client, name, text) == text
            assert await client.count(name) == 0

    asyncio.run(work())


def test_who_gave_up_in_a_transaction_takes_nothing(server: Broker) -> None:
    async def work() -> None:
        async with connected(server) as client, client.transaction() as transaction:
            for text in "abc":
                await given_up(transaction.get("given-up-here"))
                assert await waited(client, "given-up-here", text) == text

    asyncio.run(work())


def test_a_wait_that_is_over_takes_nothing(server: Broker) -> None:
    async def work() -> None:
        async with connected(server) as client:
            for text in "abc":
                with pytest.raises(TimeoutError):
                    await client.get("over", PAUSE_S)
                assert await waited(client, "over", text) == text

    asyncio.run(work())


def test_what_fails_in_a_lease_comes_again(server: Broker) -> None:
    async def fail(client: entrepot.AsyncClient) -> None:
        async with client.lease("failing", WAIT_S) as message:
            raise KeyError(message.text)

    async def work() -> None:
        async with connected(server) as client:
            for text in "abc":
                failing = asyncio.create_task(fail(client))
                await asyncio.sleep(PAUSE_S)
                await client.put("failing", text)
                with pytest.raises(KeyError, match=text):
                    await failing
                assert (await client.get("failing", WAIT_S)).text == text

    asyncio.run(work())


def test_many_wait_at_once_and_again(server: Broker) -> None:
    """More than are kept for the next ones."""

    async def work() -> None:
        async with connected(server) as client:
            for _ in range(3):
                waiting = [asyncio.create_task(client.get("many", WAIT_S)) for _ in range(40)]
                await asyncio.sleep(PAUSE_S)
                await client.put_many("many", [str(number) for number in range(40)])
                found = await asyncio.gather(*waiting)
                assert sorted(int(each.text) for each in found) == list(range(40))
            assert await client.count("many") == 0

    asyncio.run(work())


def test_who_waits_goes_on_after_a_kill() -> None:
    async def work(server: Broker) -> None:
        async with connected(server) as client:
            assert await waited(client, "killed", "before") == "before"
            waiting = asyncio.create_task(client.get("killed", WAIT_S))
            await asyncio.sleep(PAUSE_S)
            await asyncio.to_thread(server.kill)
            await asyncio.to_thread(server.start)
            await client.put("killed", "after")
            assert (await waiting).text == "after"

    with broker() as server:
        asyncio.run(work(server))


def test_ctrl_c_in_a_call_that_waits(server: Broker) -> None:
    """Who waited takes nothing, and the client goes on."""
    host, port = server.endpoints["amqp"]
    with entrepot.Client(f"{host}:{port}") as client:
        for _ in range(3):
            timer = threading.Timer(PAUSE_S, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                client.get("interrupted", WAIT_S)
            timer.join()
            client.put("interrupted", "a")
            assert client.get("interrupted", WAIT_S).text == "a"


def test_a_client_is_closed_while_another_thread_waits(server: Broker) -> None:
    host, port = server.endpoints["amqp"]
    client = entrepot.Client(f"{host}:{port}").__enter__()
    with ThreadPoolExecutor(1) as others:
        waiting = others.submit(client.get, "closed", WAIT_S)
        time.sleep(PAUSE_S)
        client.close()
        with pytest.raises((CancelledError, ClientError)):
            waiting.result(WAIT_S)
