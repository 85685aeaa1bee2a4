"""What a queue gets of a message: the message itself (raw), or a JSON object that tells of it."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from entrepot.wire.sqs.attributes import Attribute


class Notice(NamedTuple):
    """A message that is published."""

    message_id: str
    topic_arn: str
    time_ms: int
    text: str  # For queues.
    subject: str | None
    attributes: Mapping[str, Attribute]
    group: str | None = None
    identity: str | None = None
    sequence: str | None = None


def told(notice: Notice) -> bytes:
    """Return the JSON object without its end: the subscription is still to be told."""
    time = datetime.fromtimestamp(notice.time_ms / 1_000, UTC)
    row: dict[str, Any] = {
        "Type": "Notification",
        "MessageId": notice.message_id,
        "TopicArn": notice.topic_arn,
        "Message": notice.text,
        "Timestamp": time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{notice.time_ms % 1_000:03d}Z",
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


def _text(attribute: Attribute) -> str:
    value = attribute.value
    return value if isinstance(value, str) else b64encode(value).decode()
