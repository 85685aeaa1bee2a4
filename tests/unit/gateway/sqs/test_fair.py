"""Fair queues: who sends much does not make the others wait."""

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from sim.loop import SimLoop, run
from tests.unit.gateway.sqs.house import House, in_house
from tests.unit.gateway.sqs.test_features import URL, counts, delete, receive, text


async def work(house: House, **attributes: str) -> Queue:
    await house.queue("work", **attributes)
    found = house.broker.vhosts.default.queues["work"]
    assert isinstance(found, Queue)
    return found


async def send(house: House, *messages: str) -> None:
    """Send messages; the letter that each begins with is its group, and `-` means none."""
    for each in messages:
        group = {} if each[0] == "-" else {"MessageGroupId": each[0]}
        await house("SendMessage", QueueUrl=URL + "work", MessageBody=each, **group)


async def take(house: House, count: int = 10, **parameters: Any) -> list[dict[str, Any]]:
    return await receive(house, "work", MaxNumberOfMessages=count, **parameters)


@in_house
async def test_a_quiet_group_comes_before_a_noisy_one(house: House) -> None:
    await work(house)
    await send(house, *(f"a{number}" for number in range(50)))
    for _ in range(2):
        await take(house)
    await send(house, "b0", "b1", "-0")
    assert text(await take(house, 3)) == "b0 b1 -0"
    assert text(await take(house, 2)) == "a20 a21"  # Nobody else is there: it does not wait.


@in_house
async def test_groups_take_turns(house: House) -> None:
    await work(house)
    await send(house, "a0", "a1", "a2", "a3", "b0", "b1", "c0", "c1")
    assert text(await take(house, 3)) == "a0 b0 c0"
    assert text(await take(house, 3)) == "a1 b1 c1"
    assert text(await take(house, 3)) == "a2 a3"


@in_house
async def test_what_has_just_come_counts_at_once(house: House) -> None:
    queue = await work(house)
    queue.become_fair()
    await send(house, "a0", "a1", "a2", "b0")
    assert [each["Body"] for each in await take(house, 1)] == ["a0"]
    await send(house, "b1")
    assert [each["Body"] for each in await take(house, 3)] == ["a1", "b0", "b1"]


@in_house
async def test_settled_messages_count_no_longer(house: House) -> None:
    queue = await work(house)
    await send(house, "a0", "a1", "b0", "a2", "b1", "b2")
    first = await take(house, 2)
    assert text(first) == "a0 b0"
    await delete(house, queue, first[0])
    assert text(await take(house, 1)) == "a1"
    assert text(await take(house, 1)) == "a2"  # One of each is in flight, and it is older.
    assert counts(queue)[1] == 3


@in_house
async def test_a_queue_without_groups_is_not_looked_through(house: House) -> None:
    queue = await work(house)
    await send(house, "-0", "-1")
    assert text(await take(house)) == "-0 -1"
    assert all(front.groups is None for front in queue._fronts)


@in_house
async def test_what_lies_behind_too_many_in_flight_comes_all_the_same(house: House) -> None:
    queue = await work(house)
    await send(house, "a0", "a1", "a2", "a3", "b0")
    before, limits.QUEUE_GROUPED_MAX = limits.QUEUE_GROUPED_MAX, 2
    try:
        assert text(await take(house, 2)) == "a0 a1"
        assert text(await take(house, 10)) == "a2 a3 b0"
    finally:
        limits.QUEUE_GROUPED_MAX = before
    assert counts(queue) == (0, 5, 0)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from("abc-")),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.sampled_from(("delete", "release")), st.integers(0, 5)),
    ),
    max_size=60,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_nothing_is_lost_and_the_least_served_group_is_next(steps: list[tuple[str, Any]]) -> None:
    async def story(loop: SimLoop) -> None:
        house = House(loop)
        await house.broker.open()
        queue = await work(house)
        queue.become_fair()
        ready: Counter[str] = Counter()
        held: list[dict[str, Any]] = []
        for number, (what, which) in enumerate(steps):
            if what == "send":
                await send(house, f"{which}{number}")
                ready[which] += 1
            elif what == "take":
                came = await take(house, which)
                assert len(came) == min(which, ready.total())
                in_flight = Counter(each["Body"][0] for each in held)
                expected: Counter[str] = Counter()
                for _ in came:
                    least = min(in_flight[group] for group in +ready)
                    groups = [group for group in +ready if in_flight[group] == least]
                    # Which of these is older, this model does not know.
                    remaining = Counter(each["Body"][0] for each in came) - expected
                    group = next(each for each in groups if remaining[each])
                    ready[group] -= 1
                    in_flight[group] += 1
                    expected[group] += 1
                held += came
            elif held:
                each = held.pop(which % len(held))
                if what == "delete":
                    await delete(house, queue, each)
                else:
                    ready[each["Body"][0]] += 1
                    await house(
                        "ChangeMessageVisibility",
                        QueueUrl=URL + "work",
                        ReceiptHandle=each["ReceiptHandle"],
                        VisibilityTimeout=0,
                    )
        assert counts(queue)[:2] == (ready.total(), len(held))
        await house.broker.close()

    run(0, story)


@in_house
async def test_a_rewind_and_a_purge_begin_all_groups_anew(house: House) -> None:
    queue = await work(house)
    await send(house, "a0", "a1", "a2", "b0")
    for each in await take(house, 3):
        await delete(house, queue, each)
    queue.rewind(offset=0)
    assert text(await take(house, 3)) == "a0 a1 b0"
    queue.purge()
    await send(house, "a3", "c0")
    assert text(await take(house, 2)) == "a3 c0"
    assert counts(queue) == (0, 5, 0)


@in_house
async def test_delayed_messages_take_their_turn_when_they_are_due(house: House) -> None:
    queue = await work(house, DelaySeconds="5")
    await send(house, "a0", "a1", "a2")
    assert text(await take(house)) == ""
    await asyncio.sleep(6)
    assert text(await take(house, 1)) == "a0"
    await send(house, "b0")
    await asyncio.sleep(6)
    assert text(await take(house, 2)) == "a1 b0"
    assert counts(queue) == (1, 3, 0)
