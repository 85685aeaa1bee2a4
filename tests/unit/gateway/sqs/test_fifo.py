"""FIFO queues: order within a group, duplicates, and what else a queue does meanwhile."""

import asyncio
import json
from hashlib import sha256
from random import Random
from typing import Any

import pytest

from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from tests.unit.broker.queue.bed import Eater
from tests.unit.gateway.sqs.house import House, in_house
from tests.unit.gateway.sqs.test_features import URL, counts, delete, receive, text

NAME = "work.fifo"
_CONTENT = {"ContentBasedDeduplication": "true"}


async def fifo(house: House, name: str = NAME, **attributes: str) -> Queue:
    await house.queue(name, FifoQueue="true", **{**_CONTENT, **attributes})
    found = house.broker.vhosts.default.queues[name]
    assert isinstance(found, Queue)
    return found


async def send(house: House, *messages: str, queue: str = NAME, **parameters: Any) -> list[Any]:
    """Send messages; the letter that each begins with is its group."""
    return [
        await house(
            "SendMessage",
            QueueUrl=URL + queue,
            MessageBody=each,
            MessageGroupId=each[0],
            **parameters,
        )
        for each in messages
    ]


async def take(house: House, count: int = 10, **parameters: Any) -> list[dict[str, Any]]:
    return await receive(house, NAME, MaxNumberOfMessages=count, **parameters)


# --- order


@in_house
async def test_a_group_with_a_message_in_flight_gives_no_more(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", "b1", "a2", "c1", "b2", "a3")
    (a1,) = await take(house, 1)
    assert a1["Body"] == "a1"
    assert text(await take(house)) == "b1 b2 c1"
    assert text(await take(house)) == ""
    await delete(house, queue, a1)
    assert text(await take(house)) == "a2 a3"
    assert counts(queue) == (0, 5, 0)


@in_house
async def test_what_comes_back_comes_first(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", "a2", "a3", "b1")
    first = await take(house, 2, VisibilityTimeout=10)
    assert text(first) == "a1 a2"
    await delete(house, queue, first[1])
    assert text(await take(house, VisibilityTimeout=60)) == "b1"
    await asyncio.sleep(11)
    assert text(await take(house)) == "a1 a3"
    again = {"QueueUrl": URL + NAME, "ReceiptHandle": first[0]["ReceiptHandle"]}
    assert await house("DeleteMessage", **again) == "InvalidParameterValue"
    assert counts(queue) == (0, 3, 0)


@in_house
async def test_receivers_that_wait_get_different_groups(house: House) -> None:
    queue = await fifo(house)
    waiting = [asyncio.ensure_future(take(house, 2, WaitTimeSeconds=20)) for _ in range(3)]
    await asyncio.sleep(1)
    entries = [
        {"Id": each, "MessageBody": each, "MessageGroupId": each[0]}
        for each in ("a1", "a2", "b1", "a3")
    ]
    answer = await house("SendMessageBatch", QueueUrl=URL + NAME, Entries=entries)
    numbers = [int(each["SequenceNumber"]) for each in answer["Successful"]]
    assert numbers == sorted(set(numbers))
    await asyncio.sleep(1)
    got = [each.result() for each in waiting if each.done()]
    assert sorted(map(text, got)) == ["a1 a2", "b1"]
    for each in next(each for each in got if len(each) == 2):
        await delete(house, queue, each)
    await asyncio.sleep(1)
    assert sorted(text(each.result()) for each in waiting) == ["a1 a2", "a3", "b1"]


@in_house
async def test_consumers_of_other_protocols_get_a_group_each(house: House) -> None:
    queue = await fifo(house)
    one, other = Eater("one", room=10), Eater("other", room=10)
    queue.add_consumer(one)
    queue.add_consumer(other)
    await send(house, "a1", "a2", "b1", "a3", "b2")
    await asyncio.sleep(1)
    held = {each.tag: {bytes(body)[:1] for *_, body in each.held} for each in (one, other)}
    assert sorted(len(groups) for groups in held.values()) == [1, 1]
    assert held["one"] != held["other"]
    assert text(await take(house)) == ""


@in_house
async def test_many_blocked_messages_do_not_hide_the_others(house: House) -> None:
    queue = await fifo(house)
    for start in range(0, 2_500, 10):
        entries = [
            {"Id": str(each), "MessageBody": str(each), "MessageGroupId": "a"}
            for each in range(start, start + 10)
        ]
        await house("SendMessageBatch", QueueUrl=URL + NAME, Entries=entries)
    await send(house, "b1")
    assert text(await take(house, 1)) == "0"
    assert text(await take(house)) == "b1"
    assert counts(queue) == (2_499, 2, 0)


@in_house
async def test_the_search_has_an_end(house: House) -> None:
    old, limits.QUEUE_GROUPED_MAX = limits.QUEUE_GROUPED_MAX, 50
    try:
        queue = await fifo(house)
        await send(house, *(f"a{number}" for number in range(60)), "b1")
        (first,) = await take(house, 1)
        assert text(await take(house)) == ""
        waiting = asyncio.ensure_future(take(house, WaitTimeSeconds=20))
        await asyncio.sleep(1)
        await delete(house, queue, first)
        assert text(await waiting) == " ".join(f"a{number}" for number in range(1, 11))
        for _ in range(2):
            for each in await take(house):
                await delete(house, queue, each)
    finally:
        limits.QUEUE_GROUPED_MAX = old
    assert text(await take(house)) == "b1"


@in_house
async def test_every_group_stays_in_order_whatever_happens(house: House) -> None:
    """Proves H-13: receivers that delete, let go and forget, and messages in 20 groups."""
    random = Random(7)
    queue = await fifo(house, VisibilityTimeout="20")
    sent: dict[str, list[str]] = {}
    deleted: dict[str, list[str]] = {}
    held: list[dict[str, Any]] = []
    number = 0
    for step in range(1_000):
        choice = random.random()
        if choice < 0.4 and step < 800:
            group = chr(ord("a") + random.randrange(20))
            number += 1
            await send(house, *[f"{group}{number}"] * random.choice((1, 1, 2)))
            sent.setdefault(group, []).append(f"{group}{number}")
        elif choice < 0.7:
            got = await take(house, random.randint(1, 10))
            in_flight = {each["Body"][0] for each in held}
            assert in_flight.isdisjoint(each["Body"][0] for each in got)
            held += got
        elif choice < 0.95 and held:
            each = held.pop(0)
            group = each["Body"][0]
            if await delete(house, queue, each) is None:
                deleted.setdefault(group, []).append(each["Body"])
        elif held and choice < 0.98:
            group = held[0]["Body"][0]  # All of the group, or its order were for the receiver.
            for each in [each for each in held if each["Body"][0] == group]:
                held.remove(each)
                change = {"ReceiptHandle": each["ReceiptHandle"], "VisibilityTimeout": 0}
                await house("ChangeMessageVisibility", QueueUrl=URL + NAME, **change)
        else:
            await asyncio.sleep(21)
            held.clear()
        counts(queue)
    await asyncio.sleep(21)
    while got := await take(house):
        for each in got:
            assert await delete(house, queue, each) is None
            deleted.setdefault(each["Body"][0], []).append(each["Body"])
    assert deleted == sent


# --- with what else a queue does


@in_house
async def test_a_delay_keeps_the_order_also_when_it_is_changed(house: House) -> None:
    queue = await fifo(house, DelaySeconds="10")
    await send(house, "a1")
    await house("SetQueueAttributes", QueueUrl=URL + NAME, Attributes={"DelaySeconds": "0"})
    await send(house, "a2", "b1")
    assert text(await take(house)) == ""
    assert counts(queue) == (0, 0, 3)
    await asyncio.sleep(11)
    assert text(await take(house)) == "a1 a2 b1"
    await send(house, "c1")
    assert text(await take(house)) == "c1"


@in_house
async def test_redrive_keeps_the_order(house: House) -> None:
    target = await fifo(house, "dead.fifo")
    redrive = {"deadLetterTargetArn": "arn:aws:sqs:x:0:dead.fifo", "maxReceiveCount": 1}
    queue = await fifo(house, RedrivePolicy=json.dumps(redrive))
    await send(house, "a1", "a2", "b1", "a3")
    assert text(await take(house, VisibilityTimeout=5)) == "a1 a2 a3 b1"
    await asyncio.sleep(6)
    assert counts(queue) == (0, 0, 0)
    dead = await receive(house, target)
    assert text(dead) == "a1 a2 a3 b1"
    assert [each["Attributes"]["MessageGroupId"] for each in dead] == ["a", "a", "a", "b"]
    # What came as a dead letter is not compared: this id was never sent to that queue.
    (sent,) = await send(house, "a1", queue="dead.fifo")
    assert counts(target)[0] == 1, sent


@in_house
async def test_retention_ends_messages_of_blocked_groups_too(house: House) -> None:
    queue = await fifo(house, MessageRetentionPeriod="60")
    await send(house, "a1", "a2")
    (a1,) = await take(house, 1, VisibilityTimeout=600)
    await asyncio.sleep(61)
    assert counts(queue) == (0, 1, 0)
    await delete(house, queue, a1)
    await send(house, "a3")
    assert text(await take(house)) == "a3"


@in_house
async def test_a_purge_empties_groups_and_remembers_ids(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", "a2", "b1")
    await take(house, 1)
    await house("PurgeQueue", QueueUrl=URL + NAME)
    assert counts(queue) == (0, 0, 0)
    await send(house, "a1", "a3")
    assert text(await take(house)) == "a3"


@in_house
async def test_a_rewind_begins_all_groups_anew(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", "a2", "b1")
    for each in await take(house, 2):
        await delete(house, queue, each)
    await take(house)
    queue.rewind(offset=0)
    assert text(await take(house)) == "a1 a2 b1"
    assert counts(queue) == (0, 3, 0)


# --- duplicates


@in_house
async def test_a_duplicate_is_answered_like_the_first_and_not_delivered(house: House) -> None:
    queue = await fifo(house)
    first, again = await send(house, "a1", "a1")
    assert first == again
    assert first["SequenceNumber"] == str(10**19)
    (other,) = await send(house, "a1", MessageDeduplicationId="x")
    assert other["MessageId"] != first["MessageId"]
    got = await take(house)
    assert text(got) == "a1 a1"
    digest = sha256(b"a1").hexdigest()
    system = [each["Attributes"] for each in got]
    assert [each["MessageDeduplicationId"] for each in system] == [digest, "x"]
    assert [each["SequenceNumber"] for each in system] == [str(10**19), str(10**19 + 1)]
    for each in got:
        await delete(house, queue, each)
    await asyncio.sleep(200)
    assert (await send(house, "a1"))[0] == first
    await asyncio.sleep(101)
    (later,) = await send(house, "a1")
    assert later["SequenceNumber"] == str(10**19 + 2)
    assert text(await take(house)) == "a1"


@in_house
async def test_duplicates_that_come_together(house: House) -> None:
    queue = await fifo(house)
    entry = {"MessageBody": "a1", "MessageGroupId": "a"}
    entries = [{"Id": "1", **entry}, {"Id": "2", **entry}]
    answer = await house("SendMessageBatch", QueueUrl=URL + NAME, Entries=entries)
    one, two = answer["Successful"]
    assert {**one, "Id": ""} == {**two, "Id": ""}
    assert counts(queue) == (1, 0, 0)


@in_house
async def test_the_scope_of_ids(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", MessageDeduplicationId="x")
    await send(house, "b1", MessageDeduplicationId="x")
    assert counts(queue)[0] == 1
    scope = {"DeduplicationScope": "messageGroup"}
    await house("SetQueueAttributes", QueueUrl=URL + NAME, Attributes=scope)
    await send(house, "b1", MessageDeduplicationId="x")
    await send(house, "a2", MessageDeduplicationId="x")
    assert text(await take(house)) == "a1 b1"


@in_house
async def test_more_ids_than_can_be_remembered(house: House) -> None:
    await fifo(house)
    old, limits.QUEUE_IDENTITIES_MAX = limits.QUEUE_IDENTITIES_MAX, 2
    try:
        _, _, third, again = await send(house, "a1", "a2", "a3", "a1")
    finally:
        limits.QUEUE_IDENTITIES_MAX = old
    assert (third, "MessageId" in again) == ("RequestThrottled", True)


# --- a request that is repeated


@in_house
async def test_a_receive_that_is_repeated_gets_the_same(house: House) -> None:
    queue = await fifo(house)
    await send(house, "a1", "a2", "b1")
    first = await take(house, 2, ReceiveRequestAttemptId="x", VisibilityTimeout=10)
    await asyncio.sleep(8)
    assert await take(house, 2, ReceiveRequestAttemptId="x", VisibilityTimeout=10) == first
    await asyncio.sleep(8)
    assert counts(queue) == (1, 2, 0)
    await delete(house, queue, first[0])
    assert text(await take(house, 2, ReceiveRequestAttemptId="x")) == "b1"
    assert text(await take(house, 2, ReceiveRequestAttemptId="y")) == ""
    await asyncio.sleep(60)
    assert text(await take(house, 2, ReceiveRequestAttemptId="x")) == "a2 b1"


# --- what is refused


@pytest.mark.parametrize(
    ("name", "attributes", "code"),
    [
        ("a.fifo", {}, "InvalidParameterValue"),
        ("a.fifo", {"FifoQueue": "false"}, "InvalidParameterValue"),
        ("a", {"FifoQueue": "true"}, "InvalidParameterValue"),
        (".fifo", {"FifoQueue": "true"}, "InvalidParameterValue"),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}, "InvalidParameterValue"),
        ("a.fifo", {"FifoQueue": "yes"}, "InvalidParameterValue"),
        ("a", {"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ("a.fifo", {"FifoQueue": "true", "DeduplicationScope": "x"}, "InvalidAttributeValue"),
        (
            "a.fifo",
            {"FifoQueue": "true", "FifoThroughputLimit": "perMessageGroupId"},
            "InvalidAttributeValue",
        ),
    ],
)
def test_a_queue_that_cannot_be(name: str, attributes: dict[str, str], code: str) -> None:
    @in_house
    async def story(house: House) -> None:
        assert await house("CreateQueue", QueueName=name, Attributes=attributes) == code

    story()


@in_house
async def test_what_a_fifo_queue_refuses(house: House) -> None:
    await fifo(house, ContentBasedDeduplication="false")
    await house.queue("standard")
    message = {"QueueUrl": URL + NAME, "MessageBody": "x"}
    assert await house("SendMessage", **message) == "MissingParameter"
    grouped = {**message, "MessageGroupId": "a"}
    assert await house("SendMessage", **grouped) == "InvalidParameterValue"
    full = {**grouped, "MessageDeduplicationId": "x"}
    for wrong in (
        {"DelaySeconds": 1},
        {"MessageGroupId": "a b"},
        {"MessageGroupId": "x" * 129},
        {"MessageDeduplicationId": "é"},
    ):
        assert await house("SendMessage", **{**full, **wrong}) == "InvalidParameterValue"
    asked = {"QueueUrl": URL + NAME, "ReceiveRequestAttemptId": "a b"}
    assert await house("ReceiveMessage", **asked) == "InvalidParameterValue"
    for source, target in (("a.fifo", "standard"), ("a", NAME)):
        arn = f"arn:aws:sqs:x:0:{target}"
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        attributes = {"RedrivePolicy": policy}
        if source == "a.fifo":
            attributes["FifoQueue"] = "true"
        said = await house("CreateQueue", QueueName=source, Attributes=attributes)
        assert said == "InvalidParameterValue"
    for attributes in ({"FifoQueue": "false"}, {"FifoThroughputLimit": "perMessageGroupId"}):
        said = await house("SetQueueAttributes", QueueUrl=URL + NAME, Attributes=attributes)
        assert said == "InvalidAttributeValue"
