"""Receives messages, waits for them, settles them, and changes how long they are hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from entrepot.broker.access import Operation
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.receipts import Received
from entrepot.broker.served_partition import heard
from entrepot.core import errors, limits
from entrepot.core.steps import Steps
from entrepot.gateway.sqs import queue_attributes, translation
from entrepot.gateway.sqs.call import ACCOUNT, Call, Result
from entrepot.gateway.sqs.sending import failed_entry
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.attributes import LEGAL_ID, is_legal_id
from entrepot.wire.sqs.errors import SqsError, invalid, missing
from entrepot.wire.sqs.parameters import Parameters

_SYSTEM_NAMES = frozenset(
    (
        "All",
        "ApproximateFirstReceiveTimestamp",
        "ApproximateReceiveCount",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
        "MessageDeduplicationId",
        "MessageGroupId",
        "SenderId",
        "SentTimestamp",
        "SequenceNumber",
    )
)

_TURNS_MAX = 1_000  # Of a search. Most take one.


async def receive(call: Call) -> Result:
    given, queue = call.parameters, call.queue(Operation.READ)
    names = [*given.texts("AttributeNames"), *given.texts("MessageSystemAttributeNames")]
    for name in names:
        if name not in _SYSTEM_NAMES:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")
    is_wanted = translation.wanted_names(given.texts("MessageAttributeNames"))
    count = given.number("MaxNumberOfMessages", 1, sqs_limits.MESSAGES_MAX) or 1
    lease_s = given.number("VisibilityTimeout", 0, sqs_limits.VISIBILITY_S_MAX)
    wait_s = given.number("WaitTimeSeconds", 0, sqs_limits.WAIT_S_MAX)
    settings = queue.settings
    lease_ms = queue_attributes.lease_ms_of(settings) if lease_s is None else lease_s * 1_000
    wait_ms = settings.wait_ms if wait_s is None else wait_s * 1_000
    attempt = _attempt(queue, given)
    received = [] if attempt is None else queue.receipts.repeat(attempt, lease_ms)
    try:
        if not received:
            received = await _taken(call, queue, count, lease_ms)
        # Waiting is being a consumer, and the last consumer's end is the queue's with auto-delete.
        if not received and wait_ms and not queue.spec.auto_delete:
            received = await _awaited(queue, count, lease_ms, wait_ms / 1_000)
    except errors.TooManyLeases as error:
        raise SqsError("OverLimit", str(error)) from None
    if attempt is not None:
        queue.receipts.remember(attempt, received)
    try:
        is_system_wanted = translation.wanted_names(names)
        rows = await call.broker.turns.run(
            _described(call, queue, received, is_wanted, is_system_wanted)
        )
    except BaseException:  # Also when the client has disconnected.
        queue.receipts.release(received)
        raise
    call.context.messages.delivered += len(rows)
    return {"Messages": rows} if rows else {}


def _attempt(queue: Queue, given: Parameters) -> str | None:
    """Return the name under which a request to a FIFO queue may be repeated."""
    attempt = given.text_or_none("ReceiveRequestAttemptId")
    if attempt is None or not queue.settings.has_groups:
        return None
    if not is_legal_id(attempt):
        raise invalid("ReceiveRequestAttemptId", attempt, LEGAL_ID)
    return attempt


async def _taken(call: Call, queue: Queue, count: int, lease_ms: int) -> list[Received]:
    """Take messages. Of a FIFO queue with many groups it may take several turns to find some."""
    for _ in range(_TURNS_MAX):
        received = queue.receipts.take(count, lease_ms)
        if received or not queue.is_behind or queue.is_gone:
            return received
        await call.broker.turns.next()
    return []


async def _awaited(queue: Queue, count: int, lease_ms: int, wait_s: float) -> list[Received]:
    """Wait for messages. Returns none when the time is over."""
    receipts = queue.receipts
    waiting = receipts.wait(count, lease_ms)
    loop = asyncio.get_running_loop()
    timer = loop.call_later(wait_s, queue.guard, receipts.answer, waiting)
    try:
        return await waiting.found
    except BaseException:  # Also when the client has disconnected.
        receipts.give_up(waiting)
        raise
    finally:
        timer.cancel()


def _described(
    call: Call,
    queue: Queue,
    received: list[Received],
    is_wanted: Callable[[str], bool],
    is_system_wanted: Callable[[str], bool],
) -> Steps[list[dict[str, Any]]]:
    rows = []
    for each in received:
        if each.message[0].handling.group is not None:
            queue.become_fair()  # It was sent before the broker was started.
        row = yield from translation.described(
            queue.name,
            each,
            is_wanted,
            is_system_wanted,
            ACCOUNT,
            call.arn,
            is_fifo=queue.settings.has_groups,
        )
        rows.append(row)
    return rows


# --- settling


async def delete(call: Call) -> Result:
    queue = call.queue(Operation.READ)
    _settle(queue, call.parameters)
    await heard(queue.when_settlements_committed)
    return None


async def delete_batch(call: Call) -> Result:
    queue = call.queue(Operation.READ)
    result = _each_entry(call.parameters, partial(_settle, queue))
    await heard(queue.when_settlements_committed)
    return result


def _settle(queue: Queue, given: Parameters) -> None:
    """Settle a message. One that is received again since then stays, which is no error.

    In a FIFO queue it is an error when the time is over: others of its group may follow.
    """
    try:
        if queue.settings.has_groups and queue.receipts.is_over(given.text("ReceiptHandle")):
            receipt = given.text("ReceiptHandle")
            raise invalid("ReceiptHandle", receipt, "The receipt handle has expired.")
        queue.receipts.settle(given.text("ReceiptHandle"))
    except errors.UnknownReceipt:
        raise _invalid_receipt(given) from None


# --- hiding


async def change_visibility(call: Call) -> Result:
    _renew(call.queue(Operation.READ), call.parameters)
    return None


async def change_visibility_batch(call: Call) -> Result:
    return _each_entry(call.parameters, partial(_renew, call.queue(Operation.READ)))


def _renew(queue: Queue, given: Parameters) -> None:
    receipt = given.text("ReceiptHandle")
    lease_s = given.number("VisibilityTimeout", 0, sqs_limits.VISIBILITY_S_MAX)
    if lease_s is None:
        raise missing("VisibilityTimeout")
    try:
        queue.receipts.renew(receipt, lease_s * 1_000)
    except errors.UnknownReceipt:
        raise _invalid_receipt(given) from None
    except errors.NotLeased:
        text = "The specified message isn't in flight."
        raise SqsError("MessageNotInflight", text) from None
    except errors.LeaseTooLong:
        most_s = limits.LEASE_MS_MAX // 1_000
        text = f"Total VisibilityTimeout for the message is beyond the limit [{most_s} seconds]"
        raise invalid("VisibilityTimeout", lease_s, text) from None


def _invalid_receipt(given: Parameters) -> SqsError:
    text = f'The input receipt handle "{given.text("ReceiptHandle")[:100]}" is not a valid '
    return SqsError("ReceiptHandleIsInvalid", f"{text}receipt handle.")


def _each_entry(given: Parameters, act: Callable[[Parameters], None]) -> Result:
    """Do this for each entry of a batch."""
    successful: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for name, entry in given.entries():
        try:
            act(entry)
        except SqsError as error:
            failed.append(failed_entry(name, error))
        else:
            successful.append({"Id": name})
    return {"Successful": successful, "Failed": failed}
