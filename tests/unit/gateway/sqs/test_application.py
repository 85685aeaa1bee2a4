"""SQS in simulated time: how long things last; who is gone; and when the disk fails."""

import asyncio
import errno
import json
from typing import Any

import pytest

from entrepot.wire.http.request import Request
from tests.unit.gateway.sqs.house import House, in_house


def bodies(answer: Any) -> list[str]:
    return [each["Body"] for each in answer.get("Messages", [])]


@in_house
async def test_what_is_too_old_is_gone_and_no_dead_letter(house: House) -> None:
    """Proves H-09."""
    target = await house.queue("graves")
    policy = {"deadLetterTargetArn": "arn:aws:sqs:x:0:graves", "maxReceiveCount": 1}
    url = await house.queue(MessageRetentionPeriod="60", RedrivePolicy=json.dumps(policy))
    await house("SendMessage", QueueUrl=url, MessageBody="received")
    await house("SendMessage", QueueUrl=url, MessageBody="old")
    await asyncio.sleep(50)
    answer = await house("ReceiveMessage", QueueUrl=url, VisibilityTimeout=1)
    assert bodies(answer) == ["received"]
    await asyncio.sleep(5)
    queue = house.broker.vhosts.default.queue("work")
    assert queue.ready_count == 1
    await asyncio.sleep(10)
    assert (queue.ready_count, queue.dropped) == (0, {"expired": 1})
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == []
    # Only what was received once too often is there.
    answer = await house("ReceiveMessage", QueueUrl=target, MaxNumberOfMessages=10)
    assert bodies(answer) == ["received"]
    longest = {"MessageRetentionPeriod": "1209600"}
    assert await house("SetQueueAttributes", QueueUrl=url, Attributes=longest) is None
    longest["MessageRetentionPeriod"] = "1209601"
    said = await house("SetQueueAttributes", QueueUrl=url, Attributes=longest)
    assert said == "InvalidAttributeValue"


@in_house
async def test_visibility_lasts_thirty_seconds_or_up_to_twelve_hours(house: House) -> None:
    url = await house.queue()
    await house("SendMessage", QueueUrl=url, MessageBody="x")
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == ["x"]
    await asyncio.sleep(29.9)
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == []
    await asyncio.sleep(0.2)
    answer = await house("ReceiveMessage", QueueUrl=url, VisibilityTimeout=43_200)
    (message,) = answer["Messages"]
    await asyncio.sleep(600)
    handle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    for lasts_s, said in (
        (43_200 - 600, None),
        (43_200 - 599, "InvalidParameterValue"),  # Twelve hours since it was received.
        (60, None),
    ):
        change = {**handle, "VisibilityTimeout": lasts_s}
        assert await house("ChangeMessageVisibility", **change) == said
    await asyncio.sleep(59)
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == []
    await asyncio.sleep(2)
    # Nobody else has it: the last receipt still deletes it.
    assert await house("DeleteMessage", **handle) is None
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == []


@in_house
async def test_a_delay_lasts_up_to_fifteen_minutes(house: House) -> None:
    url = await house.queue(DelaySeconds="900")
    await house("SendMessage", QueueUrl=url, MessageBody="x")
    await asyncio.sleep(890)
    assert bodies(await house("ReceiveMessage", QueueUrl=url)) == []
    waiting = house("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
    assert bodies(await waiting) == ["x"]


@in_house
async def test_a_wait_ends_with_nothing(house: House) -> None:
    url = await house.queue()
    before_ms = house.clock.now_ms()
    assert await house("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20) == {}
    assert house.clock.now_ms() - before_ms == 20_000
    queue = house.broker.vhosts.default.queue("work")
    await asyncio.sleep(0)
    assert queue.consumer_count == 0


@in_house
async def test_who_waits_for_a_queue_that_is_deleted_is_told(house: House) -> None:
    url = await house.queue()
    waiting = asyncio.ensure_future(house("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    assert await house("DeleteQueue", QueueUrl=url) is None
    assert await waiting == "AWS.SimpleQueueService.NonExistentQueue"


@in_house
async def test_a_client_that_is_gone_leaves_its_messages(house: House) -> None:
    url = await house.queue()
    waiting = asyncio.ensure_future(house("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    waiting.cancel()
    await asyncio.sleep(0.1)
    await house("SendMessage", QueueUrl=url, MessageBody="x")
    answer = await house("ReceiveMessage", QueueUrl=url, AttributeNames=["All"])
    (message,) = answer["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


@pytest.mark.pure
@in_house
async def test_messages_of_one_turn_are_one_append(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = await house.queue()
    sends = [house("SendMessage", QueueUrl=url, MessageBody=str(each)) for each in range(100)]
    lane: Any = house.broker.vhosts.default.queue("work").lanes[0]
    append, runs_of = lane.append, []
    monkeypatch.setattr(lane, "append", lambda runs: runs_of.append(len(runs)) or append(runs))
    answers = await asyncio.gather(*sends)
    assert len({answer["MessageId"] for answer in answers}) == 100
    assert runs_of == [100]
    assert house.messages.published == 100


@in_house
async def test_a_disk_that_fails_is_told(house: House) -> None:
    url = await house.queue()
    house.disk.fail_next("sync", errno.EIO)
    said = await house("SendMessage", QueueUrl=url, MessageBody="x")
    assert said == "ServiceUnavailable"


@in_house
async def test_a_request_in_no_protocol(house: House) -> None:
    for headers, body in (
        ({"host": "a", "x-amz-target": "Other.SendMessage"}, b"{}"),
        ({"host": "a", "x-amz-target": ""}, b"{}"),
        ({"host": "a"}, b""),
    ):
        response = await house.handle(Request("GET", "/", headers, body), "127.0.0.1")
        assert response.status in (400, 403)


@in_house
async def test_who_comes_from_elsewhere_is_refused(house: House) -> None:
    headers = {"host": "localhost", "x-amz-target": "AmazonSQS.ListQueues"}
    response = await house.handle(Request("POST", "/", headers, b"{}"), "192.0.2.1")
    assert response.status == 403
