"""Topics of SNS: make, list, describe, change, label and delete them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.push import (
    PushTopic,
    subscription_deleted_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.core.errors import PeerError, TopicExists
from entrepot.gateway.sqs.call import ACCOUNT, Call, Result
from entrepot.gateway.sqs.sns.paging import page
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

FIFO, CONTENT = "FifoTopic", "ContentBasedDeduplication"
_NAME = re.compile(rf"[A-Za-z0-9_-]{{1,{sqs_limits.TOPIC_NAME_MAX}}}")
_FLAGS = (FIFO, CONTENT)
_DISPLAY_NAME = "DisplayName"
_DISPLAY_NAME_MAX = 100
_SUFFIX = ".fifo"


# --- finding


def arn(call: Call, name: str) -> str:
    return f"arn:aws:sns:{call.region}:{ACCOUNT}:{name}"


def name_in(topic_arn: str) -> str:
    """Return the name of the topic that has this ARN. Raises SqsError."""
    parts = topic_arn.split(":")
    if len(parts) != 6 or parts[:3] != ["arn", "aws", "sns"] or not parts[5]:
        raise wrong("TopicArn")
    return parts[5]


def find(call: Call, topic_arn: str, operation: Operation) -> PushTopic:
    """Return a topic to which the user must have that right. Raises SqsError."""
    name = name_in(topic_arn)
    require(call, operation, name)
    found = call.broker.push.get(name)
    if found is None or name not in call.broker.catalog.topics:
        raise SqsError("NotFound", "Topic does not exist")
    return found


def of_call(call: Call, operation: Operation) -> PushTopic:
    return find(call, call.parameters.text("TopicArn"), operation)


def require(call: Call, operation: Operation, name: str) -> None:
    if not call.principal.may(operation, ResourceKind.TOPIC, name):
        text = f"User: {call.principal.user} is not authorized to do this on {arn(call, name)}"
        raise SqsError("AccessDenied", text)


def is_seen(call: Call, name: str) -> bool:
    """Return whether the topic is there, and the user may know of it."""
    may = call.principal.may(Operation.DESCRIBE, ResourceKind.TOPIC, name)
    return name in call.broker.catalog.topics and may


def is_fifo(topic: PushTopic) -> bool:
    return topic.settings.get(FIFO) == "true"


def wrong(name: str, reason: str = "") -> SqsError:
    return SqsError("InvalidParameter", f"Invalid parameter: {name} {reason}".strip())


# --- actions


async def create(call: Call) -> Result:
    name = call.parameters.text("Name")
    settings = _settings(call.parameters.text_table("Attributes"))
    fifo = settings.get(FIFO) == "true"
    stem = name.removesuffix(_SUFFIX) if fifo else name
    if not _NAME.fullmatch(stem) or (fifo and stem == name):
        raise wrong("Topic Name")
    require(call, Operation.CREATE, name)
    labels = _labels(call.parameters.values.get("Tags"))
    known = call.broker.push.get(name)
    if known is not None and name in call.broker.catalog.topics:
        current = {CONTENT: "false", FIFO: "false", _DISPLAY_NAME: "", **known.settings}
        if any(current[key] != value for key, value in settings.items()):
            raise wrong("Attributes", "Reason: Topic already exists with different attributes")
        if labels and labels != known.labels:
            raise wrong("Tags", "Reason: Topic already exists with different tags")
        return {"TopicArn": arn(call, name)}
    await _make(call, name)
    await call.broker.change_security(topic_record(PushTopic(name, settings, labels)))
    return {"TopicArn": arn(call, name)}


async def _make(call: Call, name: str) -> None:
    """Make a topic, unless there is one: that may have subscriptions, too."""
    found = call.broker.catalog.topics.get(name)
    if found is None:
        try:
            await call.broker.create_topic(name, 1)
            return
        except TopicExists:
            found = call.broker.catalog.topics.get(name)
        except PeerError as error:
            raise wrong("Topic Name", f"Reason: {error}") from None
    if found is not None and found.is_queue:
        raise wrong("Topic Name", "Reason: there is a queue of that name")


async def delete(call: Call) -> Result:
    name = name_in(call.parameters.text("TopicArn"))
    require(call, Operation.DELETE, name)
    if call.broker.push.get(name) is None:
        return None  # Which is no error.
    subscribers = call.broker.push.subscriptions.of(name)
    ids = [each.id for each in subscribers]
    await call.broker.change_security(
        topic_deleted_record(name), *map(subscription_deleted_record, ids)
    )
    for each in subscribers:
        if each.endpoint and call.context.endpoints is not None:
            await call.context.endpoints.remove(each)
    topic = call.broker.catalog.topics.get(name)
    if topic is not None:
        await call.broker.delete_topic(topic)
    return None


async def list_all(call: Call) -> Result:
    names = [name for name in call.broker.push.names() if is_seen(call, name)]
    rows, token = page(names, call.parameters)
    return {"Topics": [{"TopicArn": arn(call, name)} for name in rows], **token}


async def get_attributes(call: Call) -> Result:
    topic = of_call(call, Operation.DESCRIBE)
    found = call.broker.push.subscriptions.of(topic.name)
    pending = sum(each.is_pending for each in found)
    told = {
        "TopicArn": arn(call, topic.name),
        "Owner": ACCOUNT,
        _DISPLAY_NAME: topic.settings.get(_DISPLAY_NAME, ""),
        "SubscriptionsConfirmed": str(len(found) - pending),
        "SubscriptionsPending": str(pending),
        "SubscriptionsDeleted": "0",
    }
    if is_fifo(topic):
        told |= {FIFO: "true", CONTENT: topic.settings.get(CONTENT, "false")}
    return {"Attributes": told}


async def set_attributes(call: Call) -> Result:
    topic = of_call(call, Operation.ALTER)
    name = call.parameters.text("AttributeName")
    value = call.parameters.text_or_none("AttributeValue") or ""
    if name == FIFO or (name == CONTENT and not is_fifo(topic)):
        raise wrong("AttributeName")
    changed = replace(topic, settings={**topic.settings, **_settings({name: value}, is_new=False)})
    await call.broker.change_security(topic_record(changed))
    return None


def _settings(given: Mapping[str, str], *, is_new: bool = True) -> dict[str, str]:
    """Check attributes of a topic. Raises SqsError."""
    for name, value in given.items():
        if name in _FLAGS:
            if value not in ("true", "false"):
                raise wrong("Attributes", f"Reason: {name}: Invalid value [{value[:100]}]")
        elif name == _DISPLAY_NAME:
            if len(value) > _DISPLAY_NAME_MAX:
                raise wrong("Attributes", f"Reason: {name} has {_DISPLAY_NAME_MAX} characters")
        elif value:
            raise wrong("AttributeName", f"Reason: {name[:100]} is not supported here")
    if is_new and given.get(CONTENT) == "true" and given.get(FIFO) != "true":
        raise wrong("Attributes", f"Reason: {CONTENT} is for FIFO topics")
    return {name: value for name, value in given.items() if name in (*_FLAGS, _DISPLAY_NAME)}


# --- labels


def _labels(given: Any) -> dict[str, str]:
    if given is None or given == "":
        return {}
    labels: dict[str, str] = {}
    for each in given if isinstance(given, list) else [None]:
        if not isinstance(each, dict) or not isinstance(each.get("Key"), str):
            raise wrong("Tags")
        labels[each["Key"]] = str(each.get("Value", ""))
    _check_labels(labels)
    return labels


def _check_labels(labels: Mapping[str, str]) -> None:
    if len(labels) > sqs_limits.LABELS_MAX:
        raise SqsError("TagLimitExceeded", "Could not complete request: too many tags")
    for name, value in labels.items():
        is_short = len(value) <= sqs_limits.LABEL_VALUE_MAX
        if not 1 <= len(name) <= sqs_limits.LABEL_NAME_MAX or not is_short:
            raise wrong("Tags")


def _of_resource(call: Call, operation: Operation) -> PushTopic:
    return find(call, call.parameters.text("ResourceArn"), operation)


async def label(call: Call) -> Result:
    topic = _of_resource(call, Operation.ALTER)
    labels = {**topic.labels, **_labels(call.parameters.values.get("Tags"))}
    _check_labels(labels)
    await call.broker.change_security(topic_record(replace(topic, labels=labels)))
    return None


async def remove_labels(call: Call) -> Result:
    topic = _of_resource(call, Operation.ALTER)
    names = call.parameters.texts("TagKeys")
    labels = {name: value for name, value in topic.labels.items() if name not in names}
    await call.broker.change_security(topic_record(replace(topic, labels=labels)))
    return None


async def list_labels(call: Call) -> Result:
    topic = _of_resource(call, Operation.DESCRIBE)
    return {"Tags": [{"Key": name, "Value": value} for name, value in topic.labels.items()]}
