"""Subscriptions of queues to topics. They need no confirmation: who subscribes must have the
right to write to the queue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from entrepot.broker.access import Operation
from entrepot.broker.push import (
    PushSubscription,
    subscription_deleted_record,
    subscription_record,
)
from entrepot.gateway.sqs import queue_attributes
from entrepot.gateway.sqs.call import ACCOUNT, Call, Result
from entrepot.gateway.sqs.sns import topics
from entrepot.gateway.sqs.sns.filter_policy import FilterPolicy
from entrepot.gateway.sqs.sns.paging import page
from entrepot.gateway.sqs.sns.topics import wrong
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

RAW, POLICY, SCOPE = "RawMessageDelivery", "FilterPolicy", "FilterPolicyScope"
ON_ATTRIBUTES, ON_BODY = "MessageAttributes", "MessageBody"
_DEFAULTS = {RAW: "false", POLICY: "", SCOPE: ON_ATTRIBUTES}
_CHOICES = {RAW: ("true", "false"), SCOPE: (ON_ATTRIBUTES, ON_BODY)}


def setting(subscription: PushSubscription, name: str) -> str:
    return subscription.settings.get(name, _DEFAULTS[name])


def arn(call: Call, subscription: PushSubscription) -> str:
    return f"{topics.arn(call, subscription.topic)}:{subscription.id}"


def policy_of(settings: Mapping[str, str]) -> FilterPolicy | None:
    """Return the filter policy in these settings; None if there is none. Raises SqsError."""
    text = settings.get(POLICY, "")
    if not text or text == "{}":
        return None
    return FilterPolicy(text, is_nested=settings.get(SCOPE) == ON_BODY)


# --- actions


async def subscribe(call: Call) -> Result:
    topic = topics.of_call(call, Operation.READ)
    protocol = call.parameters.text("Protocol")
    if protocol != "sqs":
        raise wrong("Protocol", f"Reason: {protocol[:100]} is not supported here; sqs is")
    endpoint = call.parameters.text("Endpoint")
    name = queue_attributes.name_in(endpoint)
    if name is None:
        raise wrong("SQS endpoint ARN")
    call.require(Operation.WRITE, name)
    queue = call.vhost.queues.get(name)
    if queue is None or queue.owner is not None:
        raise wrong("SQS endpoint ARN", "Reason: there is no such queue")
    if queue.settings.has_groups and not topics.is_fifo(topic):
        raise wrong("Endpoint", "Reason: FIFO queues can not be subscribed to standard topics")
    settings = _settings(call.parameters.text_table("Attributes"))
    policy_of(settings)
    others = call.broker.push.subscriptions.of(topic.name)
    for each in others:
        if each.queue == name:
            if settings and {**_DEFAULTS, **each.settings} != {**_DEFAULTS, **settings}:
                text = "Reason: Subscription already exists with different attributes"
                raise wrong("Attributes", text)
            return {"SubscriptionArn": arn(call, each)}
    if len(others) >= sqs_limits.SUBSCRIPTIONS_MAX:
        text = f"A topic has at most {sqs_limits.SUBSCRIPTIONS_MAX} subscriptions"
        raise SqsError("SubscriptionLimitExceeded", text)
    made = PushSubscription(
        str(call.broker.new_id()), topic.name, name, call.principal.user, settings
    )
    await call.broker.change_security(subscription_record(made))
    return {"SubscriptionArn": arn(call, made)}


async def confirm(call: Call) -> Result:
    """Refuse: whoever subscribes a queue has proven that it is theirs."""
    topics.of_call(call, Operation.READ)
    call.parameters.text("Token")
    raise wrong("Token")


async def unsubscribe(call: Call) -> Result:
    found = _find(call, Operation.READ, is_needed=False)
    if found is not None:
        await call.broker.change_security(subscription_deleted_record(found.id))
    return None


async def list_all(call: Call) -> Result:
    return _listed(call, call.broker.push.subscriptions.all())


async def list_of_topic(call: Call) -> Result:
    topic = topics.of_call(call, Operation.DESCRIBE)
    return _listed(call, call.broker.push.subscriptions.of(topic.name))


async def get_attributes(call: Call) -> Result:
    found = _needed(call, Operation.DESCRIBE)
    told = {
        "SubscriptionArn": arn(call, found),
        "TopicArn": topics.arn(call, found.topic),
        "Owner": ACCOUNT,
        "Protocol": "sqs",
        "Endpoint": call.arn(found.queue),
        "ConfirmationWasAuthenticated": "true",
        "PendingConfirmation": "false",
        RAW: setting(found, RAW),
    }
    if setting(found, POLICY):
        told |= {POLICY: setting(found, POLICY), SCOPE: setting(found, SCOPE)}
    return {"Attributes": told}


async def set_attributes(call: Call) -> Result:
    found = _needed(call, Operation.READ)
    name = call.parameters.text("AttributeName")
    value = call.parameters.text_or_none("AttributeValue") or ""
    settings = {**found.settings, **_settings({name: value})}
    policy_of(settings)
    await call.broker.change_security(subscription_record(replace(found, settings=settings)))
    return None


def _settings(given: Mapping[str, str]) -> dict[str, str]:
    for name, value in given.items():
        if name not in _DEFAULTS:
            raise wrong("AttributeName", f"Reason: {name[:100]} is not supported here")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise wrong(name, f"Reason: Invalid value [{value[:100]}]")
    return dict(given)


def _find(call: Call, operation: Operation, *, is_needed: bool) -> PushSubscription | None:
    """Return the subscription of the call, with that right to its topic. Raises SqsError."""
    topic_arn, _, number = call.parameters.text("SubscriptionArn").rpartition(":")
    name = topics.name_in(topic_arn)
    topics.require(call, operation, name)
    found = call.broker.push.subscriptions.get(number)
    if found is not None and found.topic == name:
        return found
    if is_needed:
        raise SqsError("NotFound", "Subscription does not exist")
    return None


def _needed(call: Call, operation: Operation) -> PushSubscription:
    found = _find(call, operation, is_needed=True)
    assert found is not None
    return found


def _listed(call: Call, some: Iterable[PushSubscription]) -> Result:
    seen = {f"{each.topic}:{each.id}": each for each in some if topics.is_seen(call, each.topic)}
    names, token = page(seen, call.parameters)
    rows: list[dict[str, Any]] = [
        {
            "SubscriptionArn": arn(call, seen[name]),
            "Owner": ACCOUNT,
            "Protocol": "sqs",
            "Endpoint": call.arn(seen[name].queue),
            "TopicArn": topics.arn(call, seen[name].topic),
        }
        for name in names
    ]
    return {"Subscriptions": rows, **token}
