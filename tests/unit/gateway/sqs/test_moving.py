"""Tasks that move dead letters back."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from entrepot.broker.queue.settings import WhenFull
from tests.unit.gateway.sqs.house import House, in_house
from tests.unit.gateway.sqs.test_features import URL, receive, text

ARN = "arn:aws:sqs:us-east-1:000000000000:"
SOURCE = {"SourceArn": ARN + "dead"}


async def died(house: House, *bodies: str, queue: str = "work") -> None:
    """Messages of a queue that were received once, and are in `dead` now."""
    await house.queue("dead")
    policy = json.dumps({"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": 1})
    url = await house.queue(queue, RedrivePolicy=policy, VisibilityTimeout="1")
    for body in bodies:
        await house("SendMessage", QueueUrl=url, MessageBody=body)
    while await receive(house, queue):
        pass
    await asyncio.sleep(2)


async def task(house: House) -> dict[str, Any]:
    (row,) = (await house("ListMessageMoveTasks", **SOURCE))["Results"]
    return dict(row)


@in_house
async def test_dead_letters_go_back_to_where_they_came_from(house: House) -> None:
    await died(house, *"abcdefghijkl")
    await house("StartMessageMoveTask", **SOURCE)
    await asyncio.sleep(1)
    row = await task(house)
    assert (row["Status"], row["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 12)
    assert row["ApproximateNumberOfMessagesToMove"] == 12
    got = await receive(house, "work")
    assert text(got) == "a b c d e f g h i j"
    assert {each["Attributes"]["ApproximateReceiveCount"] for each in got} == {"1"}
    assert await receive(house, "dead") == []


@in_house
async def test_a_task_with_a_rate_is_cancelled(house: House) -> None:
    await died(house, *"abcdefghij")
    await house.queue("other")
    given = {**SOURCE, "DestinationArn": ARN + "other", "MaxNumberOfMessagesPerSecond": 1}
    started = await house("StartMessageMoveTask", **given)
    assert await house("StartMessageMoveTask", **given) == "InvalidParameterValue"
    await asyncio.sleep(3.5)
    row = await task(house)
    assert (row["Status"], row["TaskHandle"]) == ("RUNNING", started["TaskHandle"])
    moved = await house("CancelMessageMoveTask", **started)
    assert moved == {"ApproximateNumberOfMessagesMoved": 4}
    await asyncio.sleep(2)
    assert (await task(house))["Status"] == "CANCELLED"
    assert await house("CancelMessageMoveTask", **started) == "InvalidParameterValue"
    assert text(await receive(house, "other")) == "a b c d"
    assert text(await receive(house, "dead")) == "e f g h i j"


@in_house
async def test_what_a_full_queue_refuses_stays_and_the_rest_is_moved_once(house: House) -> None:
    await died(house, "a")
    await died(house, "b", "c", queue="other")
    limit = {"length_max": 0, "when_full": WhenFull.REFUSE}
    vhost = house.broker.vhosts.default
    await vhost.change_queue("work", lambda settings: replace(settings, **limit))
    await house("StartMessageMoveTask", **SOURCE)
    await asyncio.sleep(1)
    row = await task(house)
    assert (row["Status"], row["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 2)
    assert text(await receive(house, "other")) == "b c"
    assert text(await receive(house, "dead")) == "a"


@in_house
async def test_a_message_from_nowhere_ends_a_task(house: House) -> None:
    await died(house, "a")
    await house("SendMessage", QueueUrl=URL + "dead", MessageBody="b")
    await house("StartMessageMoveTask", **SOURCE)
    await asyncio.sleep(1)
    row = await task(house)
    assert (row["Status"], row["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert text(await receive(house, "dead")) in ("a b", "b")


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"SourceArn": ARN + "none"}, "ResourceNotFoundException"),
        ({"SourceArn": ARN + "work"}, "InvalidParameterValue"),
        ({"SourceArn": "dead"}, "InvalidParameterValue"),
        ({**SOURCE, "DestinationArn": ARN + "none"}, "ResourceNotFoundException"),
        ({**SOURCE, "DestinationArn": ARN + "dead"}, "InvalidParameterValue"),
        ({**SOURCE, "DestinationArn": ARN + "a.fifo"}, "InvalidParameterValue"),
        ({**SOURCE, "MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
        ({}, "MissingParameter"),
    ],
)
def test_a_task_that_cannot_begin(parameters: dict[str, Any], code: str) -> None:
    @in_house
    async def story(house: House) -> None:
        await died(house, "a")
        await house.queue("a.fifo", FifoQueue="true")
        assert await house("StartMessageMoveTask", **parameters) == code
        for handle in ("x", "e30="):
            said = await house("CancelMessageMoveTask", TaskHandle=handle)
            assert said == "InvalidParameterValue"

    story()


@in_house
async def test_groups_stay_in_order_when_they_are_moved_to_a_queue_with_a_delay(
    house: House,
) -> None:
    """What is moved comes at once, and before what is sent afterwards and delayed."""
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    await house.queue("dead.fifo", **fifo)
    policy = json.dumps({"deadLetterTargetArn": ARN + "dead.fifo", "maxReceiveCount": 1})
    url = await house.queue("work.fifo", RedrivePolicy=policy, VisibilityTimeout="1", **fifo)
    for body in ("a1", "b1", "a2", "a3"):
        await house("SendMessage", QueueUrl=url, MessageBody=body, MessageGroupId=body[0])
    assert text(await receive(house, "work.fifo")) == "a1 a2 a3 b1"
    await asyncio.sleep(2)
    await house("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "5"})
    await house("StartMessageMoveTask", SourceArn=ARN + "dead.fifo")
    await asyncio.sleep(1)
    await house("SendMessage", QueueUrl=url, MessageBody="a4", MessageGroupId="a")
    again = await receive(house, "work.fifo", VisibilityTimeout=60)
    assert text(again) == "a1 a2 a3 b1"
    await asyncio.sleep(7)
    assert await receive(house, "work.fifo") == []  # The group has messages in flight.
    for each in again:
        await house("DeleteMessage", QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
    assert text(await receive(house, "work.fifo")) == "a4"
    assert await receive(house, "dead.fifo") == []
