"""Moves the messages of a queue for dead letters back to where they came from, or elsewhere.

A task runs in the background, for the messages that are there when it begins. Each message is
settled here when it is on disk there, so none is lost; only a crash between the two leaves one in
both. What it is moved as is a new message: its age begins anew, and so does the count of its
receives. Tasks are remembered until the broker ends.
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import msgspec

from entrepot.broker.access import Operation
from entrepot.broker.ledger import Lease
from entrepot.broker.queue.message import Failure, Run
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.message import Message
from entrepot.gateway.completion import completion
from entrepot.gateway.sqs import queue_attributes
from entrepot.gateway.sqs.call import Call, Result
from entrepot.gateway.sqs.move_tasks import (
    CANCELLED,
    CANCELLING,
    COMPLETED,
    FAILED,
    RUNNING,
    MoveTask,
)
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError, invalid

log = logging.getLogger("entrepot.sqs")

_AT_ONCE = 10  # Messages.
_NOWHERE = "CouldNotDetermineMessageSource"


# --- actions


async def start(call: Call) -> Result:
    source = _source(call)
    if next(_sources_of(call, source.name), None) is None:
        text = "Source queue must be configured as a Dead Letter Queue."
        raise SqsError("InvalidParameterValue", text)
    tasks = call.context.moves
    if any(task.is_active for task in tasks.of(source)):
        text = "There is already a task running. Only one active task is allowed for a source queue"
        raise invalid("SourceArn", call.arn(source.name), f"{text} arn at a given time.")
    if len(tasks.running) >= sqs_limits.MOVE_TASKS_MAX:
        raise SqsError("OverLimit", f"{len(tasks.running)} tasks are running.")
    target = call.parameters.text_or_none("DestinationArn")
    if target is not None:
        target = _target(call, target, source).name
    rate = call.parameters.number("MaxNumberOfMessagesPerSecond", 1, sqs_limits.MOVE_RATE_MAX)
    now_ms = call.context.clock.now_ms()
    task_id = str(call.broker.new_id())
    task = MoveTask(task_id, source, target, rate, source.ready_count, now_ms)
    tasks.start(task, _run(call, task))
    return {"TaskHandle": _handle(call, task)}


async def list_tasks(call: Call) -> Result:
    source = _source(call)
    count = call.parameters.number("MaxResults", 1, sqs_limits.MOVE_TASKS_KEPT) or 1
    return {"Results": [_row(call, task) for task in call.context.moves.of(source)[:count]]}


async def cancel(call: Call) -> Result:
    given = call.parameters.text("TaskHandle")
    try:
        handle = msgspec.json.decode(urlsafe_b64decode(given.encode()), type=dict[str, str])
        source, task_id = _name_in(handle["sourceArn"]), handle["taskId"]
    except (ValueError, KeyError, msgspec.DecodeError):
        raise invalid("TaskHandle", given, "It is none.") from None
    call.require(Operation.READ, source)
    queue = call.vhost.queues.get(source)
    tasks = call.context.moves.of(queue) if queue is not None else []
    task = next((each for each in tasks if each.id == task_id), None)
    if task is None:
        raise SqsError("ResourceNotFound", "Task does not exist.")
    if task.status != RUNNING:
        text = f"Task is in {task.status} status. Only tasks in RUNNING status can be cancelled."
        raise SqsError("InvalidParameterValue", text)
    task.status = CANCELLING
    return {"ApproximateNumberOfMessagesMoved": task.moved}


def _source(call: Call) -> Queue:
    name = _name_in(call.parameters.text("SourceArn"))
    call.require(Operation.READ, name)
    found = call.vhost.queues.get(name)
    if found is None or found.owner is not None:
        text = "The resource that you specified for the SourceArn parameter doesn't exist."
        raise SqsError("ResourceNotFound", text)
    return found


def _target(call: Call, arn: str, source: Queue) -> Queue:
    name = _name_in(arn)
    call.require(Operation.WRITE, name)
    found = call.vhost.queues.get(name)
    if found is None or found.owner is not None:
        text = "The resource that you specified for the DestinationArn parameter doesn't exist."
        raise SqsError("ResourceNotFound", text)
    if found is source:
        raise invalid("DestinationArn", arn, "Source and destination queue are the same.")
    if found.settings.has_groups != source.settings.has_groups:
        raise invalid("DestinationArn", arn, "Source and destination are not of one type.")
    return found


def _name_in(arn: str) -> str:
    name = queue_attributes.name_in(arn)
    if name is None:
        text = "You must use this format to specify the queue: "
        text += "arn:<partition>:<service>:<region>:<account-id>:<resource-id>"
        raise SqsError("InvalidParameterValue", text)
    return name


def _sources_of(call: Call, target: str) -> Iterator[str]:
    for queue in call.vhost.queues.values():
        redrive = queue_attributes.redrive_of(queue.settings)
        if redrive is not None and redrive.target == target:
            yield queue.name


def _handle(call: Call, task: MoveTask) -> str:
    handle = {"taskId": task.id, "sourceArn": call.arn(task.source.name)}
    return urlsafe_b64encode(msgspec.json.encode(handle)).decode()


def _row(call: Call, task: MoveTask) -> dict[str, Any]:
    row: dict[str, Any] = {
        "Status": task.status,
        "SourceArn": call.arn(task.source.name),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.count,
        "StartedTimestamp": task.started_ms,
    }
    if task.status == RUNNING:
        row["TaskHandle"] = _handle(call, task)
    if task.target is not None:
        row["DestinationArn"] = call.arn(task.target)
    if task.rate is not None:
        row["MaxNumberOfMessagesPerSecond"] = task.rate
    if task.reason:
        row["FailureReason"] = task.reason
    return row


# --- moving


async def _run(call: Call, task: MoveTask) -> None:
    try:
        while task.status == RUNNING and task.moved < task.count:
            before = task.moved
            await _move_some(call, task, min(_AT_ONCE, task.rate or _AT_ONCE, task.count - before))
            if task.moved == before and not task.source.is_behind:
                break  # Others have received the rest.
            if task.rate is not None:
                await asyncio.sleep((task.moved - before) / task.rate)
            await call.broker.turns.next()
        task.status = COMPLETED if task.status == RUNNING else CANCELLED
    except (PeerError, StorageError) as error:
        task.status, task.reason = FAILED, str(error)
    except Exception:
        task.status, task.reason = FAILED, "internal error"
        log.exception("moving messages of queue %s", task.source.name)


async def _move_some(call: Call, task: MoveTask, count: int) -> None:
    """Move the next messages, at most `count`. Raises what is wrong with the first that stays."""
    owner, failures = object(), list[Failure]()
    try:
        for lane, taken in task.source.take(Lease(owner), count):
            # All are published before any is waited for: they are one append, and one commit.
            targets = [_target_of(call, task, message) for message in taken.run.messages]
            publishing = [
                _published(call, target, message)
                for target, message in zip(targets, taken.run.messages, strict=True)
            ]
            for offset, done in zip(taken.offsets, publishing, strict=True):
                failure = await done
                if failure is None:
                    task.source.settle(owner, lane, range(offset, offset + 1))
                    task.moved += 1
                else:
                    failures.append(failure)
    finally:
        task.source.release(owner)
    if failures:
        _raise_failure(failures[0])


def _target_of(call: Call, task: MoveTask, message: Message) -> Queue:
    """Return where a message is to be moved. Raises SqsError."""
    name = task.target
    if name is None:
        envelope, _ = message
        deaths = envelope.format.deaths(envelope.head)
        if not deaths:
            raise SqsError("InvalidParameterValue", _NOWHERE)
        name = deaths[0].queue
        call.require(Operation.WRITE, name)
    return call.find(name)


def _published(call: Call, target: Queue, message: Message) -> asyncio.Future[Failure | None]:
    """Publish a message now. Await the result for the commit."""
    publication, done = completion()
    target.publish(Run(call.context.clock.now_ms(), [message]), publication, due_ms=0)
    publication.arrived()
    return done


def _raise_failure(failure: Failure) -> None:
    if isinstance(failure, StorageError):
        raise failure
    raise SqsError("OverLimit", f"The destination refuses messages: {failure}")
