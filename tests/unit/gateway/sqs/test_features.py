"""Receivers of SQS on queues with features of other protocols: nothing is lost, nothing doubled."""

import asyncio
import json
from typing import Any

from entrepot.broker.queue.queue import Queue
from entrepot.core import limits
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.stomp.declaring import QueueDeclaration
from tests.unit.broker.queue.bed import Eater
from tests.unit.gateway.sqs.house import House, in_house

URL = "http://localhost/000000000000/"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


async def declared(house: House, name: str, *, durable: bool = True, **arguments: Any) -> Queue:
    """A queue as AMQP would declare it, with `_` for `-`."""
    table = freeze_table({f"x-{key.replace('_', '-')}": each for key, each in arguments.items()})
    settings = RabbitDialect().queue_settings(table, name)
    made = await house.broker.vhosts.default.declare_queue(
        QueueDeclaration(name, settings, table, durable=durable), None
    )
    assert isinstance(made, Queue)
    return made


async def send(house: House, queue: Queue | str, *texts: str) -> None:
    name = queue if isinstance(queue, str) else queue.name
    for text in texts:
        answer = await house("SendMessage", QueueUrl=URL + name, MessageBody=text)
        assert "MessageId" in answer, answer


async def receive(house: House, queue: Queue | str, **parameters: Any) -> list[dict[str, Any]]:
    name = queue if isinstance(queue, str) else queue.name
    asked = {"MaxNumberOfMessages": 10, "AttributeNames": ["All"], **parameters}
    answer = await house("ReceiveMessage", QueueUrl=URL + name, **asked)
    return list(answer.get("Messages", []))


async def delete(house: House, queue: Queue, message: dict[str, Any]) -> Any:
    handle = message["ReceiptHandle"]
    return await house("DeleteMessage", QueueUrl=URL + queue.name, ReceiptHandle=handle)


def text(messages: list[dict[str, Any]]) -> str:
    return " ".join(each["Body"] for each in messages)


def counts(queue: Queue) -> tuple[int, int, int]:
    """Ready, in flight, delayed."""
    account = queue.account()
    assert (account.missing, [*account.wrong]) == (0, [])
    return queue.ready_count, queue.unacked_count, queue.deferred_count


@in_house
async def test_a_rewind_makes_receipts_stale(house: House) -> None:
    queue = await declared(house, "work")
    await send(house, queue, "a", "b", "c")
    a, b = await receive(house, queue, MaxNumberOfMessages=2)
    await delete(house, queue, a)
    queue.rewind(offset=0)
    assert counts(queue) == (3, 0, 0)
    again = await receive(house, queue)
    assert text(again) == "a b c"
    assert await delete(house, queue, b) is None  # Somebody else has it now.
    change = {"ReceiptHandle": b["ReceiptHandle"], "VisibilityTimeout": 0}
    said = await house("ChangeMessageVisibility", QueueUrl=URL + "work", **change)
    assert said == "AWS.SimpleQueueService.MessageNotInflight"
    assert counts(queue) == (0, 3, 0)
    await asyncio.sleep(31)
    assert counts(queue) == (3, 0, 0)
    for each in await receive(house, queue):
        await delete(house, queue, each)
    assert counts(queue) == (0, 0, 0)


@in_house
async def test_a_rewind_while_somebody_waits(house: House) -> None:
    queue = await declared(house, "work")
    await send(house, queue, "a")
    (a,) = await receive(house, queue)
    await delete(house, queue, a)
    waiting = asyncio.ensure_future(receive(house, queue, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    queue.rewind(offset=0)
    assert text(await waiting) == "a"


@in_house
async def test_a_message_that_expires_in_flight_is_a_dead_letter_when_it_comes_back(
    house: House,
) -> None:
    graves = await declared(house, "graves")
    queue = await declared(
        house,
        "work",
        message_ttl=10_000,
        dead_letter_exchange="",
        dead_letter_routing_key="graves",
    )
    await send(house, queue, "a", "b")
    await asyncio.sleep(9)
    a, b = await receive(house, queue, VisibilityTimeout=60)
    await asyncio.sleep(50)  # Long after its time; but it is leased.
    assert counts(queue) == (0, 2, 0)
    await delete(house, queue, a)
    await asyncio.sleep(20)
    assert counts(queue) == (0, 0, 0)
    assert text(await receive(house, graves)) == "b"
    assert await delete(house, queue, b) is None  # It is another message now.
    assert counts(graves) == (0, 1, 0)


@in_house
async def test_a_message_that_comes_back_to_a_full_queue(house: House) -> None:
    graves = await declared(house, "graves")
    queue = await declared(
        house, "work", max_length=2, dead_letter_exchange="", dead_letter_routing_key="graves"
    )
    await send(house, queue, "a", "b")
    a, _ = await receive(house, queue)
    await send(house, queue, "c", "d")
    await asyncio.sleep(31)  # Both come back, and are the oldest.
    assert counts(queue) == (2, 0, 0)
    assert text(await receive(house, graves)) == "a b"
    assert await delete(house, queue, a) is None
    assert text(await receive(house, queue)) == "c d"


@in_house
async def test_dead_letters_wait_for_their_queue(house: House) -> None:
    """The target of a redrive policy is deleted: what is received too often is not lost."""
    target = await house.queue("graves")
    policy = {"deadLetterTargetArn": "arn:aws:sqs:x:0:graves", "maxReceiveCount": 1}
    await house.queue(RedrivePolicy=json.dumps(policy))
    queue = house.broker.vhosts.default.queue("work")
    await send(house, queue, "a")
    await house("DeleteQueue", QueueUrl=target)
    assert text(await receive(house, queue, VisibilityTimeout=1)) == "a"
    await asyncio.sleep(30)
    assert (queue.account().dying, queue.dropped) == (1, {})
    await house.queue("graves")
    await asyncio.sleep(limits.DEAD_LETTER_UNROUTABLE_RETRY_MS / 1_000)
    assert text(await receive(house, "graves")) == "a"
    assert (queue.account().dying, counts(queue)) == (0, (0, 0, 0))


@in_house
async def test_a_single_active_consumer_and_receivers(house: House) -> None:
    """Who receives without waiting is served, as by `basic.get`; who waits, when he is active."""
    queue, eater = await declared(house, "work", single_active_consumer=True), Eater(room=1)
    queue.add_consumer(eater)
    waiting = asyncio.ensure_future(receive(house, queue, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    await send(house, queue, "a", "b")
    assert (eater.has, counts(queue)) == ("a", (1, 1, 0))
    assert text(await receive(house, queue)) == "b"
    await send(house, queue, "c")
    queue.remove_consumer(eater)
    assert text(await waiting) == "c"
    assert counts(queue) == (0, 3, 0)
    await asyncio.sleep(1)
    assert queue.consumer_count == 0


@in_house
async def test_priorities(house: House) -> None:
    queue = await declared(house, "work", max_priority=5)
    attributes = {"priority": {"DataType": "Number", "StringValue": "4"}}
    await send(house, queue, "low")
    sent = {"QueueUrl": URL + "work", "MessageBody": "high", "MessageAttributes": attributes}
    await house("SendMessage", **sent)
    high, low = await receive(house, queue)
    assert text([high, low]) == "low high"  # An attribute of SQS is not a priority.
    await delete(house, queue, low)
    await asyncio.sleep(31)
    assert text(await receive(house, queue)) == "low"


@in_house
async def test_a_purge_and_those_who_receive(house: House) -> None:
    queue = await declared(house, "work")
    await send(house, queue, "a", "b")
    (a,) = await receive(house, queue, MaxNumberOfMessages=1)
    later = {"QueueUrl": URL + "work", "MessageBody": "later", "DelaySeconds": 60}
    await house("SendMessage", **later)
    assert counts(queue) == (1, 1, 1)
    assert await house("PurgeQueue", QueueUrl=URL + "work") is None
    assert counts(queue) == (0, 0, 0)
    assert await delete(house, queue, a) is None
    waiting = asyncio.ensure_future(receive(house, queue, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    await asyncio.sleep(61)
    waiting = asyncio.ensure_future(receive(house, queue, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    assert await house("PurgeQueue", QueueUrl=URL + "work") is None
    await send(house, queue, "c")
    assert text(await waiting) == "c"


@in_house
async def test_a_queue_is_deleted_under_those_who_use_it(house: House) -> None:
    queue = await declared(house, "work")
    await send(house, queue, "a", "b")
    a, _ = await receive(house, queue)
    waiting = asyncio.ensure_future(receive(house, queue, WaitTimeSeconds=20))
    await asyncio.sleep(1)
    waiting.cancel()
    asked = {"QueueUrl": URL + "work", "WaitTimeSeconds": 20}
    requests = [
        house("ReceiveMessage", **asked),
        delete(house, queue, a),
        house("SendMessage", QueueUrl=URL + "work", MessageBody="x"),
        house("DeleteQueue", QueueUrl=URL + "work"),
        house("PurgeQueue", QueueUrl=URL + "work"),
        delete(house, queue, a),
    ]
    answers = await asyncio.wait_for(asyncio.gather(*requests), 15)
    assert answers[0] == NO_QUEUE
    assert answers[3] is None
    assert all(each in (None, NO_QUEUE) or "MessageId" in each for each in answers), answers
    assert await house("ReceiveMessage", **asked) == NO_QUEUE


@in_house
async def test_while_memory_is_low_nothing_is_sent_to_queues_in_memory(house: House) -> None:
    for name, durable in (("kept", True), ("memory", False)):
        await declared(house, name, durable=durable)
    memory = house.broker.vhosts.memory_use
    assert memory is not None
    memory.change(2 * limits.TRANSIENT_BYTES_MAX)
    await send(house, "kept", "a")
    one = {"QueueUrl": URL + "memory", "MessageBody": "x"}
    assert await house("SendMessage", **one) == "RequestThrottled"
    entries = [{"Id": "a", "MessageBody": "x"}]
    answer = await house("SendMessageBatch", QueueUrl=URL + "memory", Entries=entries)
    assert [each["Code"] for each in answer["Failed"]] == ["RequestThrottled"]
    memory.change(-2 * limits.TRANSIENT_BYTES_MAX)
    await send(house, "memory", "a")
