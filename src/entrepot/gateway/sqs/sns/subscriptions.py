"""Subscriptions to topics, of queues and of HTTP endpoints.

That of a queue needs no confirmation: who subscribes must have the right to write to the queue.
An endpoint gets a message with a token first, and whoever has the token confirms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from entrepot.broker.access import Operation
from entrepot.broker.push import (
    PushSubscription,
    PushTopic,
    subscription_deleted_record,
    subscription_record,
)
from entrepot.broker.queue.message import Run
from entrepot.core.message import Message
from entrepot.gateway.completion import completion
from entrepot.gateway.sqs import queue_attributes, translation
from entrepot.gateway.sqs.call import ACCOUNT, Call, Result
from entrepot.gateway.sqs.sns import delivery_policy, notification, topics
from entrepot.gateway.sqs.sns.endpoints import (
    DELIVERY_POLICY,
    PREFIX,
    PROTOCOLS,
    REDRIVE,
    Endpoints,
    read_redrive,
)
from entrepot.gateway.sqs.sns.filter_policy import FilterPolicy
from entrepot.gateway.sqs.sns.paging import page
from entrepot.gateway.sqs.sns.topics import wrong
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

RAW, POLICY, SCOPE = "RawMessageDelivery", "FilterPolicy", "FilterPolicyScope"
ON_ATTRIBUTES, ON_BODY = "MessageAttributes", "MessageBody"
_DEFAULTS = {RAW: "false", POLICY: "", SCOPE: ON_ATTRIBUTES, REDRIVE: "", DELIVERY_POLICY: ""}
_PENDING = "PendingConfirmation"  # In place of an ARN.
_CHOICES = {RAW: ("true", "false"), SCOPE: (ON_ATTRIBUTES, ON_BODY)}


def setting(subscription: PushSubscription, name: str) -> str:
    return subscription.settings.get(name, _DEFAULTS[name])


def arn(call: Call, subscription: PushSubscription) -> str:
    return f"{topics.arn(call, subscription.topic)}:{subscription.id}"


def protocol(subscription: PushSubscription) -> str:
    return subscription.endpoint.partition(":")[0] or "sqs"


def policy_of(settings: Mapping[str, str]) -> FilterPolicy | None:
    """Return the filter policy in these settings; None if there is none. Raises SqsError."""
    text = settings.get(POLICY, "")
    if not text or text == "{}":
        return None
    return FilterPolicy(text, is_nested=settings.get(SCOPE) == ON_BODY)


# --- actions


async def subscribe(call: Call) -> Result:
    topic = topics.of_call(call, Operation.READ)
    named = call.parameters.text("Protocol")
    endpoint = call.parameters.text("Endpoint")
    settings = _settings(call.parameters.text_table("Attributes"), is_http=named in PROTOCOLS)
    policy_of(settings)
    _check_dead_letters(call, topic, settings)
    if named == "sqs":
        _check_queue(call, topic, endpoint)
    elif named in PROTOCOLS:
        _check_endpoint(call, topic, named, endpoint)
        await _endpoints(call).remove_late(topic.name)
    else:
        raise wrong("Protocol", f"Reason: {named[:100]} is not supported here")
    others = call.broker.push.subscriptions.of(topic.name)
    for each in others:
        if endpoint in (each.endpoint, call.arn(each.queue)):
            if settings and {**_DEFAULTS, **each.settings} != {**_DEFAULTS, **settings}:
                text = "Reason: Subscription already exists with different attributes"
                raise wrong("Attributes", text)
            return await _again(call, each)
    if len(others) >= sqs_limits.SUBSCRIPTIONS_MAX:
        text = f"A topic has at most {sqs_limits.SUBSCRIPTIONS_MAX} subscriptions"
        raise SqsError("SubscriptionLimitExceeded", text)
    made_id, user = str(call.broker.new_id()), call.principal.user
    if named == "sqs":
        queue = queue_attributes.name_in(endpoint)
        assert queue is not None
        made = PushSubscription(made_id, topic.name, queue, user, settings)
        await call.broker.change_security(subscription_record(made))
        return {"SubscriptionArn": arn(call, made)}
    made = PushSubscription(
        made_id,
        topic.name,
        PREFIX + made_id,
        user,
        settings,
        endpoint,
        _endpoints(call).new_token(),
        is_pending=True,
        made_ms=call.context.clock.now_ms(),
    )
    await _endpoints(call).add(made)
    return await _again(call, made)


def _check_queue(call: Call, topic: PushTopic, endpoint: str) -> None:
    """Raise SqsError unless the queue of this ARN may subscribe."""
    name = queue_attributes.name_in(endpoint)
    if name is None:
        raise wrong("SQS endpoint ARN")
    call.require(Operation.WRITE, name)
    queue = call.vhost.queues.get(name)
    if queue is None or queue.owner is not None:
        raise wrong("SQS endpoint ARN", "Reason: there is no such queue")
    if queue.settings.has_groups and not topics.is_fifo(topic):
        raise wrong("Endpoint", "Reason: FIFO queues can not be subscribed to standard topics")


def _check_endpoint(call: Call, topic: PushTopic, named: str, endpoint: str) -> None:
    """Raise SqsError unless requests may be sent to this address."""
    if topics.is_fifo(topic):
        raise wrong("Protocol", "Reason: only queues can be subscribed to FIFO topics")
    if not endpoint.startswith(f"{named}://"):
        raise wrong("Endpoint", "Reason: Endpoint must match the specified protocol")
    endpoints = call.context.endpoints
    if endpoints is None or not endpoints.allows(endpoint):
        text = "Reason: sns.endpoints in the server's configuration does not allow this address"
        raise wrong("Endpoint", text)


def _check_dead_letters(call: Call, topic: PushTopic, settings: Mapping[str, str]) -> None:
    """Raise SqsError unless the queue for dead letters is one that the user may write to."""
    target = read_redrive(settings.get(REDRIVE, ""))
    if target is None:
        return
    call.require(Operation.WRITE, target)
    queue = call.vhost.queues.get(target)
    if queue is None or queue.owner is not None:
        raise wrong(REDRIVE, "Reason: there is no such queue")
    if queue.settings.has_groups != topics.is_fifo(topic):
        raise wrong(REDRIVE, "Reason: the queue is of another type than the topic")


def _endpoints(call: Call) -> Endpoints:
    endpoints = call.context.endpoints
    if endpoints is None:
        raise wrong("Endpoint", "Reason: no HTTP endpoints are allowed here")
    return endpoints


async def _again(call: Call, subscription: PushSubscription) -> Result:
    """Answer a request to subscribe; ask for the confirmation, if it has not come."""
    if not subscription.is_pending:
        return {"SubscriptionArn": arn(call, subscription)}
    queue = call.vhost.queues.get(subscription.queue)
    if queue is not None:
        publication, done = completion()
        queue.publish(
            Run(call.context.clock.now_ms(), [_question(call, subscription)]), publication
        )
        publication.arrived()
        failure = await done
        if failure is not None:
            raise SqsError("ServiceUnavailable", str(failure))
    wants_arn = call.parameters.text_or_none("ReturnSubscriptionArn") == "true"
    return {"SubscriptionArn": arn(call, subscription) if wants_arn else "pending confirmation"}


def _question(call: Call, subscription: PushSubscription) -> Message:
    """Return the message that asks an endpoint to confirm its subscription."""
    topic_arn, message_id = topics.arn(call, subscription.topic), str(call.broker.new_id())
    url = f"{call.base_url}/?Action=ConfirmSubscription&TopicArn={topic_arn}"
    url += f"&Token={subscription.token}"
    body = notification.confirmation(
        message_id, topic_arn, subscription.token, url, call.context.clock.now_ms()
    )
    kind = notification.CONFIRMATION
    headers = notification.headers(kind, message_id, topic_arn, None, is_raw=False)
    return translation.envelope(subscription.queue, message_id, None, headers), body


async def confirm(call: Call) -> Result:
    """Confirm a subscription. Whoever has the token may; they need no other right."""
    topic, token = topics.name_in(call.parameters.text("TopicArn")), call.parameters.text("Token")
    endpoints = call.context.endpoints
    found = None if endpoints is None else await endpoints.confirm(topic, token)
    if found is None:
        raise wrong("Token")
    return {"SubscriptionArn": arn(call, found)}


async def unsubscribe(call: Call) -> Result:
    found = _find(call, Operation.READ, is_needed=False)
    if found is not None:
        await call.broker.change_security(subscription_deleted_record(found.id))
        if found.endpoint and call.context.endpoints is not None:
            await call.context.endpoints.remove(found)
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
        "Protocol": protocol(found),
        "Endpoint": found.endpoint or call.arn(found.queue),
        "ConfirmationWasAuthenticated": "false" if found.endpoint else "true",
        "PendingConfirmation": "true" if found.is_pending else "false",
        RAW: setting(found, RAW),
    }
    for name in (REDRIVE, DELIVERY_POLICY):
        if setting(found, name):
            told[name] = setting(found, name)
    if found.endpoint:
        effective = delivery_policy.told(setting(found, DELIVERY_POLICY))
        told["EffectiveDeliveryPolicy"] = msgspec.json.encode(effective).decode()
    if setting(found, POLICY):
        told |= {POLICY: setting(found, POLICY), SCOPE: setting(found, SCOPE)}
    return {"Attributes": told}


async def set_attributes(call: Call) -> Result:
    found = _needed(call, Operation.READ)
    name = call.parameters.text("AttributeName")
    value = call.parameters.text_or_none("AttributeValue") or ""
    changed = _settings({name: value}, is_http=bool(found.endpoint))
    settings = {**found.settings, **changed}
    policy_of(settings)
    topic = call.broker.push.get(found.topic)
    if topic is not None:
        _check_dead_letters(call, topic, changed)
    subscription = replace(found, settings=settings)
    await call.broker.change_security(subscription_record(subscription))
    if found.endpoint and call.context.endpoints is not None:
        await call.context.endpoints.change(subscription)
    return None


def _settings(given: Mapping[str, str], *, is_http: bool) -> dict[str, str]:
    for name, value in given.items():
        if name not in _DEFAULTS or (name == DELIVERY_POLICY and not is_http):
            raise wrong("AttributeName", f"Reason: {name[:100]} is not supported here")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise wrong(name, f"Reason: Invalid value [{value[:100]}]")
        if name == DELIVERY_POLICY:
            delivery_policy.read(value)
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
            "SubscriptionArn": _PENDING if seen[name].is_pending else arn(call, seen[name]),
            "Owner": ACCOUNT,
            "Protocol": protocol(seen[name]),
            "Endpoint": seen[name].endpoint or call.arn(seen[name].queue),
            "TopicArn": topics.arn(call, seen[name].topic),
        }
        for name in names
    ]
    return {"Subscriptions": rows, **token}
