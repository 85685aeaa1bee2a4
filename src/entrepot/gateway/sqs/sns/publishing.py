"""Publishes messages: to the topic itself, and a copy to each queue that subscribes and wants it.

All of it is appended together, and the answer comes when it is on disk everywhere. If one queue
fails, the publisher is told so, and publishes again: others then get the message twice, or, in
FIFO queues, once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from entrepot.broker.access import Operation
from entrepot.broker.push import PushSubscription, PushTopic
from entrepot.broker.queue.message import Failure, Run
from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core.errors import StorageError
from entrepot.core.message import Message
from entrepot.gateway.completion import completion
from entrepot.gateway.sqs import translation
from entrepot.gateway.sqs.call import Call, Result
from entrepot.gateway.sqs.sending import failed_entry
from entrepot.gateway.sqs.sns import notification, subscriptions, topics
from entrepot.gateway.sqs.sns.endpoints import PROTOCOLS, REDRIVE, read_redrive
from entrepot.gateway.sqs.sns.filter_policy import FilterPolicy
from entrepot.gateway.sqs.sns.notification import Notice
from entrepot.gateway.sqs.sns.topics import wrong
from entrepot.wire.sqs import attributes as message_attributes
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.attributes import LEGAL_ID, STRING, Attribute, is_legal_id, is_legal_text
from entrepot.wire.sqs.errors import SqsError
from entrepot.wire.sqs.parameters import Parameters
from entrepot.wire.sqs.sns import code_of

_SUBJECT = "Subject"
_SUBJECT_MAX = 100
_POLICIES_MAX = 10_000  # That are kept as they were read.


async def publish(call: Call) -> Result:
    given = call.parameters
    target = given.text_or_none("TopicArn") or given.text_or_none("TargetArn")
    if not target:
        raise wrong("TopicArn or TargetArn", "Reason: no value for required parameter")
    topic = topics.find(call, target, Operation.WRITE)
    notice, size = _read(call, topic, given)
    _check_size(size)
    _raise(await _published(call, topic, notice))
    return _answer(notice)


async def publish_batch(call: Call) -> Result:
    topic = topics.of_call(call, Operation.WRITE)
    good: dict[str, Notice] = {}
    failed: list[dict[str, Any]] = []
    total = 0
    for name, entry in call.parameters.entries("PublishBatchRequestEntries"):
        try:
            good[name], size = _read(call, topic, entry)
            total += size
        except SqsError as error:
            failed.append({**failed_entry(name, error), "Code": code_of(error)})
    if total > sqs_limits.MESSAGE_BYTES:
        text = f"The length of all the messages put together is more than the limit: {total} bytes"
        raise SqsError("BatchRequestTooLong", text)
    publishing: dict[str, Awaitable[Failure | None]] = {}
    for name, notice in good.items():
        publishing[name] = _published(call, topic, notice)
        await call.broker.turns.next()  # A topic may have many queues.
    successful: list[dict[str, Any]] = []
    for name, done in publishing.items():
        try:
            _raise(await done)
        except SqsError as error:
            failed.append({**failed_entry(name, error), "Code": code_of(error)})
        else:
            successful.append({"Id": name, **_answer(good[name])})
    return {"Successful": successful, "Failed": failed}


def _answer(notice: Notice) -> dict[str, Any]:
    answer = {"MessageId": notice.message_id}
    if notice.sequence is not None:
        answer["SequenceNumber"] = notice.sequence
    return answer


def _check_size(size: int) -> None:
    if size > sqs_limits.MESSAGE_BYTES:
        raise wrong("Message too long")


# --- reading


def _read(call: Call, topic: PushTopic, given: Parameters) -> tuple[Notice, int]:
    """Return the message of a request or an entry, and its size. Raises SqsError."""
    text = given.text_or_none("Message") or ""
    if not text:
        raise wrong("Empty message")
    if not is_legal_text(text):
        raise wrong("Message", "Reason: it has characters that cannot be sent")
    subject = given.text_or_none(_SUBJECT)
    if subject is not None and not (
        subject.isascii() and subject.isprintable() and 1 <= len(subject) <= _SUBJECT_MAX
    ):
        raise wrong(_SUBJECT)
    attributes = message_attributes.read(given.table("MessageAttributes"))
    size = len(text.encode()) + message_attributes.size_of(attributes)
    texts: dict[str, str] = {}
    if given.text_or_none("MessageStructure") == "json":
        texts = _by_protocol(text)
        text = texts["sqs"]
    group, identity = _order(topic, given, text)
    now_ms = call.context.clock.now_ms()
    sequence = call.context.next_sequence(now_ms) if topics.is_fifo(topic) else None
    notice = Notice(
        str(call.broker.new_id()),
        topics.arn(call, topic.name),
        now_ms,
        text,
        texts,
        subject,
        attributes,
        group,
        identity,
        sequence,
    )
    return notice, size


def _by_protocol(text: str) -> dict[str, str]:
    """Return what is to be sent to each protocol, of a message that says so."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise wrong("Message Structure", "- JSON message body failed to parse") from None
    if not isinstance(found.get("default"), str):
        raise wrong("Message Structure", "- No default entry in JSON message body")
    texts = {name: found.get(name, found["default"]) for name in ("sqs", *PROTOCOLS)}
    for name, chosen in texts.items():
        if not isinstance(chosen, str):
            raise wrong("Message Structure", f"- the entry {name} is not a text")
    return texts


def _order(topic: PushTopic, given: Parameters, text: str) -> tuple[str | None, str | None]:
    """Return group and deduplication id of a message. Raises SqsError."""
    group = given.text_or_none("MessageGroupId")
    identity = given.text_or_none("MessageDeduplicationId")
    for name, value in (("MessageGroupId", group), ("MessageDeduplicationId", identity)):
        if value is not None and not is_legal_id(value):
            raise wrong(name, f"Reason: {LEGAL_ID}")
    if not topics.is_fifo(topic):
        if identity is not None:
            raise wrong("MessageDeduplicationId", "Reason: it is for FIFO topics")
        return group, None
    if group is None:
        raise wrong("MessageGroupId", "Reason: The MessageGroupId parameter is required")
    if identity is None:
        if topic.settings.get(topics.CONTENT) != "true":
            text = "The topic should either have ContentBasedDeduplication enabled or "
            raise wrong("", f"{text}MessageDeduplicationId provided explicitly")
        identity = sha256(text.encode()).hexdigest()
    return group, identity


# --- sending


def _published(call: Call, topic: PushTopic, notice: Notice) -> asyncio.Future[Failure | None]:
    """Publish a message now. Await the result for the commit."""
    publication, done = completion()
    call.vhost.publish(DEFAULT_EXCHANGE, [_for_topic(call, topic, notice)], publication)
    for queue, message in _copies(call, topic, notice):
        run = Run(notice.time_ms, [message])
        if queue.settings.has_groups:
            queue.identities.publish(run, publication)
        else:
            queue.publish(run, publication)
    publication.arrived()
    call.context.messages.published += 1
    return done


def _for_topic(call: Call, topic: PushTopic, notice: Notice) -> Message:
    """Return the message that readers of the topic see: the subject is a header."""
    attributes = dict(notice.attributes)
    if notice.subject is not None:
        attributes.setdefault(_SUBJECT, Attribute(STRING, notice.subject))
    envelope = translation.envelope(
        topic.name, notice.message_id, _user(call), attributes, group=notice.group
    )
    return envelope, notice.text.encode()


def _copies(call: Call, topic: PushTopic, notice: Notice) -> Iterator[tuple[Queue, Message]]:
    """Yield the queues that get a copy, and the copy of each."""
    beginnings: dict[str, bytes] = {}  # By text: of all copies that are told.
    body: Any = None
    for each in call.broker.push.subscriptions.of(topic.name):
        if each.is_pending:
            continue
        queue = _queue(call, each)
        if queue is None:
            continue
        policy = _policy(call, each)
        if policy is not None:
            if subscriptions.setting(each, subscriptions.SCOPE) == subscriptions.ON_BODY:
                body = _json(notice.text) if body is None else body
                if not policy.wants_body(body):
                    continue
            elif not policy.wants_attributes(notice.attributes):
                continue
        text = notice.texts.get(subscriptions.protocol(each), notice.text)
        if subscriptions.setting(each, subscriptions.RAW) == "true":
            yield queue, _copy(call, queue, each, notice, text.encode(), notice.attributes)
            continue
        if text not in beginnings:
            beginnings[text] = notification.told(notice, text)
        arn = subscriptions.arn(call, each)
        url = f"{call.base_url}/?Action=Unsubscribe&SubscriptionArn={arn}"
        told = notification.ended(beginnings[text], url)
        yield queue, _copy(call, queue, each, notice, told, {})


def _queue(call: Call, subscription: PushSubscription) -> Queue | None:
    """Return the queue of a subscription, or its queue for dead letters if there is none."""
    queue = call.vhost.queues.get(subscription.queue)
    if queue is not None:
        return queue  # If it was deleted and made again, that one has the subscription.
    target = read_redrive(subscription.settings.get(REDRIVE, ""))
    return None if target is None else call.vhost.queues.get(target)


def _copy(
    call: Call,
    queue: Queue,
    subscription: PushSubscription,
    notice: Notice,
    body: bytes,
    attributes: Mapping[str, Attribute],
) -> Message:
    if subscription.endpoint:
        attributes = notification.headers(
            notification.NOTIFICATION,
            notice.message_id,
            notice.topic_arn,
            subscriptions.arn(call, subscription),
            is_raw=subscriptions.setting(subscription, subscriptions.RAW) == "true",
        )
    envelope = translation.envelope(
        queue.name,
        str(call.broker.new_id()),
        _user(call),
        attributes,
        group=notice.group,
        identity=notice.identity if queue.settings.has_groups else None,
    )
    return envelope, body


def _user(call: Call) -> str | None:
    return call.principal.user if call.context.login.asks_users else None


def _policy(call: Call, subscription: PushSubscription) -> FilterPolicy | None:
    """Return the filter policy of a subscription. Each is read once."""
    kept = call.context.policies
    found = kept.get(subscription.id)
    if found is None or found[0] is not subscription:
        if len(kept) >= _POLICIES_MAX:
            kept.clear()
        found = subscription, subscriptions.policy_of(subscription.settings)
        kept[subscription.id] = found
    policy = found[1]
    assert policy is None or isinstance(policy, FilterPolicy)
    return policy


def _json(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return ()  # Nothing that a policy wants.


def _raise(failure: Failure | None) -> None:
    if isinstance(failure, StorageError):
        raise SqsError("ServiceUnavailable", str(failure))
    if failure is not None:
        raise SqsError("RequestThrottled", str(failure))
