"""Sends messages. The answer comes when they are on disk.

Messages of several requests that came in one turn of the loop are appended together by the queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from hashlib import md5, sha256
from typing import Any, NamedTuple

from entrepot.broker.access import Operation
from entrepot.broker.queue.identities import TooManyIdentities
from entrepot.broker.queue.message import Failure, Publication, Refused, Run
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import StorageError
from entrepot.core.message import Message
from entrepot.gateway.sqs import translation
from entrepot.gateway.sqs.call import Call, Result, unknown_queue
from entrepot.gateway.sqs.queue_attributes import message_bytes_max_of
from entrepot.gateway.timing import timed
from entrepot.wire.sqs import attributes as message_attributes
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.attributes import LEGAL_ID, is_legal_id
from entrepot.wire.sqs.errors import SqsError, invalid, missing
from entrepot.wire.sqs.parameters import Parameters

_OTHER_TYPE = "The request includes a parameter that is not valid for this queue type."


class Outgoing(NamedTuple):
    """A message to be sent, and what its sender is told about it."""

    message: Message
    delay_ms: int | None  # None means: as the queue says.
    size: int  # Of the body and the attributes.
    answer: dict[str, str]


async def send(call: Call) -> Result:
    queue = call.queue(Operation.WRITE)
    outgoing = _read(call, queue, call.parameters)
    refused = await _published(call, queue, outgoing)
    if refused is not None:
        raise refused
    return outgoing.answer


async def send_batch(call: Call) -> Result:
    queue = call.queue(Operation.WRITE)
    good: dict[str, Outgoing] = {}
    failed: list[dict[str, Any]] = []
    entries = call.parameters.entries()
    for name, entry in entries:
        try:
            good[name] = _read(call, queue, entry)
        except SqsError as error:
            failed.append(failed_entry(name, error))
    total = sum(each.size for each in good.values())
    if total > sqs_limits.BATCH_BYTES_MAX:
        text = f"Batch requests cannot be longer than {sqs_limits.BATCH_BYTES_MAX} bytes. "
        raise SqsError("BatchRequestTooLong", f"{text}You have sent {total} bytes.")
    # All are published before any is waited for: they are one append, and one commit.
    publishing = {name: _published(call, queue, each) for name, each in good.items()}
    successful: list[dict[str, Any]] = []
    for name, done in publishing.items():
        refused = await done
        if refused is not None:
            failed.append(failed_entry(name, refused))
        else:
            successful.append({"Id": name, **good[name].answer})
    return {"Successful": successful, "Failed": failed}


def failed_entry(name: str, error: SqsError) -> dict[str, Any]:
    """Return what is said of an entry of a batch that failed."""
    return {
        "Id": name,
        "SenderFault": error.is_senders,
        "Code": error.code,
        "Message": str(error),
    }


def _read(call: Call, queue: Queue, given: Parameters) -> Outgoing:
    """Return the message of a request, or of an entry of a batch. Raises SqsError."""
    text = given.text("MessageBody")
    if not message_attributes.is_legal_text(text):
        raise SqsError("InvalidMessageContents", "Invalid binary character in the message body.")
    attributes = message_attributes.read(given.table("MessageAttributes"))
    system = message_attributes.read_system(given.table("MessageSystemAttributes"))
    delay_s = given.number("DelaySeconds", 0, sqs_limits.DELAY_S_MAX)
    group, identity = given.text_or_none("MessageGroupId"), None
    if group is not None and not is_legal_id(group):
        raise invalid("MessageGroupId", group, LEGAL_ID)
    body = text.encode()
    if queue.settings.has_groups:
        if group is None:
            raise missing("MessageGroupId")
        if delay_s:
            raise invalid("DelaySeconds", delay_s, _OTHER_TYPE)
        identity = identity_of(queue, given, body)
    elif given.text_or_none("MessageDeduplicationId") is not None:
        raise invalid("MessageDeduplicationId", given.text("MessageDeduplicationId"), _OTHER_TYPE)
    if group is not None:
        queue.become_fair()
    size = len(body) + message_attributes.size_of(attributes)
    bytes_max = message_bytes_max_of(queue.settings)
    if size > bytes_max:
        reason = "One or more parameters are invalid. Reason: Message must be shorter than "
        raise SqsError("InvalidParameterValue", f"{reason}{bytes_max} bytes.")
    trace = system.get(message_attributes.TRACE)
    message_id = str(call.broker.new_id())
    envelope = translation.envelope(
        queue.name,
        message_id,
        call.principal.user if call.context.login.asks_users else None,
        attributes,
        trace=None if trace is None else str(trace.value),
        group=group,
        identity=identity,
    )
    answer = {
        "MessageId": message_id,
        "MD5OfMessageBody": md5(body, usedforsecurity=False).hexdigest(),
    }
    if attributes:
        answer["MD5OfMessageAttributes"] = message_attributes.md5_of(attributes)
    if system:
        answer["MD5OfMessageSystemAttributes"] = message_attributes.md5_of(system)
    return Outgoing((envelope, body), None if delay_s is None else delay_s * 1_000, size, answer)


def identity_of(queue: Queue, given: Parameters, body: bytes) -> str:
    """Return the deduplication id of a message to a FIFO queue. Raises SqsError."""
    identity = given.text_or_none("MessageDeduplicationId")
    if identity is None:
        if not queue.settings.identity_is_body:
            text = "The queue should either have ContentBasedDeduplication enabled or "
            text += "MessageDeduplicationId provided explicitly"
            raise SqsError("InvalidParameterValue", text)
        return sha256(body).hexdigest()
    if not is_legal_id(identity):
        raise invalid("MessageDeduplicationId", identity, LEGAL_ID)
    return identity


def _published(call: Call, queue: Queue, outgoing: Outgoing) -> Awaitable[SqsError | None]:
    """Publish a message now. Await the result for the commit: the error, if there is one."""
    done: asyncio.Future[SqsError | None] = asyncio.get_running_loop().create_future()
    memory = call.broker.vhosts.memory_use
    if memory is not None and memory.is_high and not queue.spec.durable:
        text = "Messages that are not on disk take too much memory; try again later."
        done.set_result(SqsError("RequestThrottled", text))
        return done

    def finish(failure: Failure | None) -> None:
        if failure is None and queue.settings.has_groups:
            _tell_place(queue, outgoing)
        if not done.done():  # Otherwise the client is gone.
            done.set_result(None if failure is None else _refusal(queue, failure))

    now_ms, delay_ms = call.context.clock.now_ms(), outgoing.delay_ms
    run = Run(now_ms, [outgoing.message])
    publication = timing = Publication(finish)
    counted = call.context.messages
    if counted.answering.is_due:
        timing = timed(publication, counted.answering, call.context.clock)
    if queue.settings.has_groups:
        queue.identities.publish(run, timing)
    else:
        queue.publish(run, timing, due_ms=now_ms + delay_ms if delay_ms else delay_ms)
    if timing is not publication:
        timing.arrived()
    publication.arrived()
    counted.published += 1
    return done


def _tell_place(queue: Queue, outgoing: Outgoing) -> None:
    """Add the sequence number to an answer. That of a duplicate is about the first message."""
    offset = queue.identities.offset_of(outgoing.message[0])
    if offset is None:  # It took so long that it is not remembered any more.
        return
    outgoing.answer["SequenceNumber"] = translation.sequence_number(offset)
    try:
        for _, run in queue.lanes[0].read(range(offset, offset + 1)):
            first = run.messages[0][0].properties.message_id
            outgoing.answer["MessageId"] = first or outgoing.answer["MessageId"]
    except StorageError:  # The log reports the error itself.
        return


def _refusal(queue: Queue, failure: Failure) -> SqsError:
    if queue.is_gone and not queue.is_stopped:
        return unknown_queue()
    if isinstance(failure, TooManyIdentities):
        return SqsError("RequestThrottled", str(failure))
    if isinstance(failure, Refused):
        return SqsError("OverLimit", str(failure))
    return SqsError("ServiceUnavailable", str(failure))
