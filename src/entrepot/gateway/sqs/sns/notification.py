"""What a subscriber gets of a message: the message itself (raw), or a JSON object that tells of
it; and what an endpoint gets before, to confirm its subscription."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from entrepot.wire.sqs.attributes import STRING, Attribute

NOTIFICATION, CONFIRMATION = "Notification", "SubscriptionConfirmation"
# Headers of a message that are headers of the request with which it is sent to an endpoint.
HEADERS = tuple(
    f"x-amz-sns-{name}"
    for name in ("message-type", "message-id", "topic-arn", "subscription-arn", "rawdelivery")
)


class Notice(NamedTuple):
    """A message that is published."""

    message_id: str
    topic_arn: str
    time_ms: int
    text: str  # For queues,
    texts: Mapping[str, str]  # and for endpoints of other protocols, where it differs.
    subject: str | None
    attributes: Mapping[str, Attribute]
    group: str | None = None
    identity: str | None = None
    sequence: str | None = None


def told(notice: Notice, text: str) -> bytes:
    """Return the JSON object without its end: the subscription is still to be told."""
    row: dict[str, Any] = {
        "Type": NOTIFICATION,
        "MessageId": notice.message_id,
        "TopicArn": notice.topic_arn,
        "Message": text,
        "Timestamp": _time(notice.time_ms),
    }
    if notice.sequence is not None:
        row["SequenceNumber"] = notice.sequence
    if notice.subject is not None:
        row["Subject"] = notice.subject
    if notice.attributes:
        row["MessageAttributes"] = {
            name: {"Type": each.type, "Value": _text(each)}
            for name, each in notice.attributes.items()
        }
    return msgspec.json.encode(row)[:-1]


def ended(beginning: bytes, unsubscribe_url: str) -> bytes:
    url = msgspec.json.encode(unsubscribe_url)
    return b"".join((beginning, b',"UnsubscribeURL":', url, b"}"))


def confirmation(
    message_id: str, topic_arn: str, token: str, subscribe_url: str, time_ms: int
) -> bytes:
    """Return what asks an endpoint to confirm that it wants the messages of a topic."""
    text = f"You have chosen to subscribe to the topic {topic_arn}.\n"
    text += "To confirm the subscription, visit the SubscribeURL included in this message."
    row = {
        "Type": CONFIRMATION,
        "MessageId": message_id,
        "Token": token,
        "TopicArn": topic_arn,
        "Message": text,
        "SubscribeURL": subscribe_url,
        "Timestamp": _time(time_ms),
    }
    return msgspec.json.encode(row)


def headers(
    kind: str, message_id: str, topic_arn: str, subscription_arn: str | None, *, is_raw: bool
) -> dict[str, Attribute]:
    """Return the headers of the request with which an endpoint gets a message."""
    values = (kind, message_id, topic_arn, subscription_arn, "true" if is_raw else None)
    return {
        name: Attribute(STRING, value)
        for name, value in zip(HEADERS, values, strict=True)
        if value is not None
    }


def _time(time_ms: int) -> str:
    time = datetime.fromtimestamp(time_ms / 1_000, UTC)
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time_ms % 1_000:03d}Z"


def _text(attribute: Attribute) -> str:
    value = attribute.value
    return value if isinstance(value, str) else b64encode(value).decode()
