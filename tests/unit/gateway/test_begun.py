"""Coroutines that run at once: they begin in the call, and end in the turn in which a wait does."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import pytest

from entrepot.gateway.begun import Begun


def in_a_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(story)
    def test(**arguments: object) -> None:
        asyncio.run(story(**arguments))

    return test


class Story:
    """Work that notes what happens to it."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.ended: list[Begun] = []

    def begin(self, work: Coroutine[Any, Any, None]) -> Begun:
        return Begun(work, self.ended.append)


@in_a_loop
async def test_what_waits_for_nothing_is_done_in_the_call() -> None:
    story = Story()

    async def work() -> None:
        story.said.append("done")

    begun = story.begin(work())
    assert (story.said, begun.is_done, begun.exception()) == (["done"], True, None)
    assert not story.ended, "told of what the caller sees"


@in_a_loop
async def test_what_waits_goes_on_when_the_wait_ends() -> None:
    story, waited = Story(), asyncio.get_running_loop().create_future()

    async def work() -> None:
        story.said.append(await waited)

    begun = story.begin(work())
    await asyncio.sleep(0)
    assert (story.said, begun.is_done) == ([], False)
    waited.set_result("came")
    await asyncio.sleep(0)
    assert (story.said, story.ended) == (["came"], [begun])


@in_a_loop
async def test_it_may_let_others_have_a_turn() -> None:
    story = Story()

    async def work() -> None:
        await asyncio.sleep(0)
        story.said.append("done")

    story.begin(work())
    assert not story.said
    await asyncio.sleep(0)
    assert story.said == ["done"]


@pytest.mark.parametrize("waits", [False, True])
@in_a_loop
async def test_an_error_is_told(waits: bool) -> None:
    story = Story()

    async def work() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("wrong")

    begun = story.begin(work())
    await asyncio.sleep(0)
    assert begun.is_done
    assert isinstance(begun.exception(), ValueError)
    assert len(story.ended) == waits


@pytest.mark.parametrize("waits_for_a_future", [False, True])
@in_a_loop
async def test_it_can_be_cancelled(waits_for_a_future: bool) -> None:
    story = Story()

    async def work() -> None:
        try:
            await (asyncio.Future[None]() if waits_for_a_future else asyncio.sleep(0))
        finally:
            story.said.append("tidied up")

    begun = story.begin(work())
    begun.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert story.said == ["tidied up"]
    assert begun.cancelled()
    assert story.ended == [begun]
