"""The properties of a message that most protocols have, each under a name of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

# Properties that are texts, and their names as headers of a record. Persisted: never change one.
TEXTS = {
    "content_type": "content-type",
    "content_encoding": "content-encoding",
    "correlation_id": "correlation-id",
    "reply_to": "reply-to",
    "message_id": "message-id",
    "type": "type",
    "user_id": "user-id",
    "app_id": "app-id",
}


class Death(NamedTuple):
    """Where, why and how often a message became a dead letter. Persisted: only ever append."""

    queue: str
    reason: str
    times: int = 1
    time_ms: int | None = None  # Of the first time. None means: not known.
    exchange: str | None = None  # Where it was published to before it died,
    subjects: tuple[str, ...] = ()  # and under which subjects.
    ttl_ms: int | None = None  # The time to live that it had of its own.


class Properties(msgspec.Struct, frozen=True, omit_defaults=True):
    """The properties that protocols share. None means: the publisher did not say.

    Persisted: never change a name.
    """

    content_type: str | None = None
    content_encoding: str | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    message_id: str | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    timestamp: int | None = None  # Seconds since 1970.
    priority: int | None = None
    ttl_ms: int | None = None
    is_persistent: bool | None = None
    headers: Mapping[str, Any] = msgspec.field(default_factory=dict)
    # What only one protocol knows, by the name it has there.
    others: Mapping[str, str] = msgspec.field(default_factory=dict)
