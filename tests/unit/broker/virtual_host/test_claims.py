"""Names that somebody has for the moment."""

import asyncio

import pytest

from entrepot.broker.virtual_host.claims import Claims
from tests.unit.log.bed import Life, simulated


@simulated
async def test_others_wait_for_it(bed: Life) -> None:
    claims, got = Claims(), list[str]()

    async def take(who: str) -> None:
        await claims.wait("a")
        claims.take("a")
        got.append(who)
        await asyncio.sleep(1)
        claims.release("a")

    await asyncio.gather(take("first"), take("second"), take("third"))
    assert sorted(got) == ["first", "second", "third"]
    assert bed.loop.time() == 3
    assert "a" not in claims


@simulated
async def test_nobody_waits_for_another_name(bed: Life) -> None:
    claims = Claims()
    claims.take("a")
    await claims.wait("b")
    assert "a" in claims
    with pytest.raises(AssertionError):
        claims.take("a")
    waiting = asyncio.ensure_future(claims.wait_all())
    other = asyncio.ensure_future(claims.wait("a"))
    await asyncio.sleep(1)
    other.cancel()  # Who gives up does not take it from the others.
    await asyncio.sleep(1)
    assert not waiting.done()
    claims.release("a")
    await waiting
