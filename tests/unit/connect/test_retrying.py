"""Pauses that grow, an end to them, and a stop in the middle of one."""

import asyncio

import pytest

from entrepot.client.errors import BadAnswer, Unreachable
from entrepot.connect import retrying
from entrepot.connect.interface import ConnectError, Unavailable
from entrepot.connect.retrying import Patience, Stopped


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrying, "PAUSE_S_FIRST", 0.01)
    monkeypatch.setattr(retrying, "PAUSE_S_MAX", 0.02)


def test_what_fails_for_a_while_succeeds() -> None:
    async def work() -> None:
        failures = [Unavailable("busy"), Unavailable("still")]

        async def attempt() -> str:
            if failures:
                raise failures.pop()
            return "done"

        patience = Patience("test", asyncio.Event(), patience_s=10)
        assert await patience.persist(attempt) == "done"

    asyncio.run(work())


def test_patience_ends_with_the_last_words() -> None:
    async def work() -> None:
        async def attempt() -> None:
            raise Unavailable("gone for good")

        patience = Patience("test", asyncio.Event(), patience_s=0.05)
        with pytest.raises(Unavailable, match="gone for good"):
            await patience.persist(attempt)
        patience.succeeded()  # From now on, it has its time anew.
        await patience.endure(Unreachable("once"))

    asyncio.run(work())


@pytest.mark.parametrize("error", [ConnectError("no"), BadAnswer("no")])
def test_what_never_gets_better_is_raised_at_once(error: Exception) -> None:
    async def work() -> None:
        with pytest.raises(type(error)):
            await Patience("test", asyncio.Event(), patience_s=10).endure(error)

    asyncio.run(work())


def test_a_stop_ends_a_pause() -> None:
    async def work() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.005, stop.set)
        with pytest.raises(Stopped):
            await Patience("test", stop, patience_s=10).endure(Unavailable("busy"))

    asyncio.run(work())
