"""Queues: make, find, list, describe, change, label, purge and delete them."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator, Mapping
from heapq import nsmallest
from typing import Any

from msgspec.structs import replace

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.served_partition import heard
from entrepot.core.errors import (
    InvalidPartitions,
    InvalidQueue,
    QueueLocked,
    QueueMismatch,
    QueueNameRefused,
    QueuesUnavailable,
)
from entrepot.core.steps import Steps, listed
from entrepot.gateway.sqs import queue_attributes
from entrepot.gateway.sqs.call import Call, Result, unknown_queue
from entrepot.gateway.sqs.queue_attributes import QueueDeclaration, Redrive
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError, invalid, missing

_FIFO = ".fifo"
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{sqs_limits.QUEUE_NAME_MAX}}}")


async def create(call: Call) -> Result:
    name = call.parameters.text("QueueName")
    attributes = call.parameters.text_table("Attributes")
    labels = call.parameters.text_table("tags") or call.parameters.text_table("Tags")
    _check_labels(labels)
    is_fifo = attributes.get(queue_attributes.FIFO) == "true"
    _check_name(call, name, is_fifo=is_fifo)
    call.require(Operation.CREATE, name)
    queue_attributes.read(attributes, is_fifo=is_fifo)
    _check_target(call, attributes, is_fifo=is_fifo)
    declaration = QueueDeclaration(
        name, attributes, tuple(sorted(labels.items())), call.context.clock.now_ms()
    )
    try:
        await call.vhost.declare_queue(declaration, None)
    except (QueueMismatch, QueueLocked) as error:
        raise SqsError("QueueNameExists", str(error)) from None
    except (InvalidQueue, QueueNameRefused) as error:
        raise invalid("QueueName", name, str(error)) from None
    except (QueuesUnavailable, InvalidPartitions) as error:
        raise SqsError("OverLimit", str(error)) from None
    return {"QueueUrl": call.url(name)}


def _check_name(call: Call, name: str, *, is_fifo: bool) -> None:
    """Raise SqsError unless a queue may have that name, or a standard queue has it."""
    if is_fifo:
        stem = name.removesuffix(_FIFO)
        if stem == name or len(name) > sqs_limits.QUEUE_NAME_MAX or not _NAME.fullmatch(stem):
            text = "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
            text += "underscores, must end with .fifo suffix and be 1 to "
            raise invalid("QueueName", name, f"{text}{sqs_limits.QUEUE_NAME_MAX} in length.")
        return
    found = call.vhost.queues.get(name)
    if not _NAME.fullmatch(name) and (found is None or found.settings.has_groups):
        text = "Can only include alphanumeric characters, hyphens, or underscores. "
        raise invalid("QueueName", name, f"{text}1 to {sqs_limits.QUEUE_NAME_MAX} in length.")


def _check_target(call: Call, attributes: Mapping[str, str], *, is_fifo: bool) -> None:
    """Raise SqsError if the queue for dead letters does not exist, may not be written to, or is
    of another type."""
    redrive: Redrive | None = None
    if queue_attributes.REDRIVE in attributes:
        redrive = queue_attributes.read_redrive(attributes[queue_attributes.REDRIVE])
    if redrive is None:
        return
    call.require(Operation.WRITE, redrive.target)
    value, target = attributes[queue_attributes.REDRIVE], call.vhost.queues.get(redrive.target)
    if target is None:
        raise invalid(queue_attributes.REDRIVE, value, "Dead letter target does not exist.")
    if target.settings.has_groups != is_fifo:
        text = "Dead-letter queue must be same type of queue as the source."
        raise invalid(queue_attributes.REDRIVE, value, text)


async def find_url(call: Call) -> Result:
    name = call.parameters.text("QueueName")
    call.require(Operation.DESCRIBE, name)
    return {"QueueUrl": call.url(call.find(name).name)}


async def delete(call: Call) -> Result:
    queue = call.queue(Operation.DELETE)
    call.context.purged_ms.pop(queue, None)
    await call.vhost.delete_queue(queue.name, None)
    return None


# --- listing


async def list_all(call: Call) -> Result:
    prefix = call.parameters.text_or_none("QueueNamePrefix") or ""
    names = [name for name in call.vhost.queues if name.startswith(prefix)]
    return await _page(call, names, "QueueUrls")


async def list_sources(call: Call) -> Result:
    """List the queues whose dead letters the queue gets."""
    target = call.queue(Operation.DESCRIBE).name
    names = await call.broker.turns.run(listed(_sources(call, target)))
    return await _page(call, names, "queueUrls")


def _sources(call: Call, target: str) -> Iterator[str]:
    for queue in [*call.vhost.queues.values()]:
        redrive = queue_attributes.redrive_of(queue.settings)
        if redrive is not None and redrive.target == target:
            yield queue.name


async def _page(call: Call, names: list[str], field: str) -> Result:
    """Return the URLs of queues that the user may know of, in the order of their names."""
    asked = call.parameters.number("MaxResults", 1, sqs_limits.PAGE_MAX)
    after = _after(call.parameters.text_or_none("NextToken"))
    seen = await call.broker.turns.run(listed(_seen(call, names, after)))
    page = nsmallest((asked or sqs_limits.PAGE_MAX) + 1, seen)
    result: dict[str, Any] = {}
    if asked is not None and len(page) > asked:
        result["NextToken"] = urlsafe_b64encode(_bytes(page[asked - 1])).decode()
    urls = [call.url(name) for name in page[: asked or sqs_limits.PAGE_MAX]]
    if urls or field == "queueUrls":
        result[field] = urls
    return result


def _seen(call: Call, names: list[str], after: str) -> Iterator[str]:
    principal, vhost = call.principal, call.vhost
    for name in names if principal.may_enter(vhost.name) else ():
        queue = vhost.queues.get(name)
        if queue is None or queue.owner is not None or name <= after:
            continue
        if principal.may(Operation.DESCRIBE, ResourceKind.QUEUE, name, vhost.name):
            yield name


def _after(token: str | None) -> str:
    """Return the last name of the page before."""
    if not token:
        return ""
    try:
        return urlsafe_b64decode(token.encode()).decode("utf-8", "surrogateescape")
    except ValueError:
        raise invalid("NextToken", token, "It is none.") from None


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


# --- attributes and labels


async def get_attributes(call: Call) -> Result:
    queue = call.queue(Operation.DESCRIBE)
    names = call.parameters.texts("AttributeNames")
    found = queue_attributes.tell(queue, names, call.arn)
    return {"Attributes": found} if found else {}


async def set_attributes(call: Call) -> Result:
    attributes = call.parameters.text_table("Attributes")
    queue = call.queue(Operation.ALTER)
    if not attributes:
        raise missing("Attributes")
    is_fifo = queue.settings.has_groups
    changed = queue_attributes.read(attributes, is_fifo=is_fifo)
    queue_attributes.check_together(replace(queue.settings, **changed))
    _check_target(call, attributes, is_fifo=is_fifo)
    await _change(call, queue, changed)
    return None


async def _change(call: Call, queue: Queue, changed: Mapping[str, Any]) -> None:
    now_ms = call.context.clock.now_ms()

    def change(settings: QueueSettings) -> QueueSettings:
        return replace(settings, **changed, changed_ms=now_ms)

    await call.vhost.change_queue(queue.name, change)


async def label(call: Call) -> Result:
    queue = call.queue(Operation.ALTER)
    added = call.parameters.text_table("Tags")
    if not added:
        raise missing("Tags")
    labels = {**dict(queue.settings.labels), **added}
    _check_labels(labels)
    await _change(call, queue, {"labels": tuple(sorted(labels.items()))})
    return None


async def remove_labels(call: Call) -> Result:
    queue = call.queue(Operation.ALTER)
    names = call.parameters.texts("TagKeys")
    if not names:
        raise missing("TagKeys")
    labels = tuple(each for each in queue.settings.labels if each[0] not in names)
    await _change(call, queue, {"labels": labels})
    return None


async def list_labels(call: Call) -> Result:
    labels = dict(call.queue(Operation.DESCRIBE).settings.labels)
    return {"Tags": labels} if labels else {}


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > sqs_limits.LABELS_MAX:
        raise SqsError("InvalidParameterValue", f"More than {sqs_limits.LABELS_MAX} tags.")
    for name, value in labels.items():
        if not 1 <= len(name) <= sqs_limits.LABEL_NAME_MAX:
            raise invalid("Tags", name, f"A key has 1 to {sqs_limits.LABEL_NAME_MAX} characters.")
        if len(value) > sqs_limits.LABEL_VALUE_MAX:
            text = f"A value has at most {sqs_limits.LABEL_VALUE_MAX} characters."
            raise invalid("Tags", value, text)


# --- purging


async def purge(call: Call) -> Result:
    """Drop all messages of a queue, also those in flight over SQS, and those that are delayed."""
    queue = call.queue(Operation.READ)
    now_ms, purged_ms = call.context.clock.now_ms(), call.context.purged_ms
    for each in [*purged_ms]:
        if purged_ms[each] <= now_ms - sqs_limits.PURGE_EVERY_MS or each.is_gone:
            del purged_ms[each]
    if queue in purged_ms:
        text = "Only one PurgeQueue operation on a queue is allowed every 60 seconds."
        raise SqsError("PurgeQueueInProgress", text)
    purged_ms[queue] = now_ms
    queue.receipts.settle_all()
    queue.purge()
    await call.broker.turns.run(_cancel_deferred(queue))
    if queue.is_gone:
        raise unknown_queue()
    await heard(queue.when_settlements_committed)
    return None


def _cancel_deferred(queue: Queue) -> Steps[None]:
    for lane, each in enumerate(queue.lanes):
        for offset in [*each.ledger.deferred]:  # In any order: a million need not be sorted.
            if queue.is_gone:
                return
            queue.cancel_deferred(lane, offset)
            yield
