"""One at a time, in the order in which they came."""

import asyncio

from entrepot.broker.one_at_a_time import OneAtATime


async def _enter(gate: OneAtATime, name: str, entered: list[str]) -> None:
    await gate.wait_and_enter("group")
    entered.append(name)


def test_who_waits_enters_in_order_and_who_is_gone_is_passed_over() -> None:
    async def main() -> None:
        gate, entered = OneAtATime(), list[str]()
        gate.enter("group")
        tasks = [asyncio.create_task(_enter(gate, name, entered)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        for expected in (["a"], ["a", "c"], ["a", "c", "d"]):
            gate.leave("group")
            await asyncio.sleep(0)
            assert entered == expected
            assert "group" in gate
        gate.leave("group")
        assert "group" not in gate

    asyncio.run(main())


def test_one_that_is_cancelled_when_its_turn_has_come_lets_the_next_in() -> None:
    async def main() -> None:
        gate, entered = OneAtATime(), list[str]()
        gate.enter("group")
        tasks = [asyncio.create_task(_enter(gate, name, entered)) for name in "ab"]
        await asyncio.sleep(0)
        gate.leave("group")
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert entered == ["b"]
        gate.leave("group")
        assert "group" not in gate

    asyncio.run(main())


def test_nobody_waits_for_another_name() -> None:
    async def main() -> None:
        gate = OneAtATime()
        gate.enter("group")
        await gate.wait_and_enter("other")
        assert "other" in gate

    asyncio.run(main())
