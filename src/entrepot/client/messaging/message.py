"""A message as it is put and got: a body, and properties that all protocols share.

A body is bytes. A text is sent as UTF-8 and says so; anything else but bytes is sent as JSON and
says so. `value` turns it back, for whoever gets it, whatever protocol it came by.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

from entrepot.client.errors import ClientError
from entrepot.core.ports import Buffer
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, decode, encode

TEXT, JSON = "text/plain", "application/json"
_TRANSIENT = 1


class Holder(Protocol):
    """The channel that a message came by."""

    def settle(self, tag: int) -> None: ...
    def give_back(self, tag: int, *, requeue: bool) -> None: ...


class Message:
    """A message that came. Its properties are decoded when they are asked for."""

    __slots__ = (
        "_found",
        "_head",
        "_holder",
        "body",
        "exchange",
        "is_redelivered",
        "subject",
        "tag",
    )

    def __init__(
        self,
        body: bytes,
        subject: str,
        exchange: str,
        head: bytes,
        *,
        is_redelivered: bool = False,
        tag: int = 0,
        holder: Holder | None = None,
    ) -> None:
        self.body = body
        self.subject = subject  # What it was published on; of a queue's message, the queue.
        self.exchange = exchange
        self.is_redelivered = is_redelivered
        self.tag = tag
        self._head = head
        self._holder = holder  # None means: nothing is left to be acknowledged.
        self._found: BasicProperties | None = None

    @property
    def properties(self) -> BasicProperties:
        """Return all properties, as AMQP has them."""
        if self._found is None:
            try:
                self._found = decode(self._head)
            except AmqpError:  # Whoever put it there wrote no properties that can be read.
                self._found = BasicProperties()
        return self._found

    @property
    def headers(self) -> Mapping[str, Any]:
        return self.properties.headers or {}

    @property
    def id(self) -> str | None:
        return self.properties.message_id

    @property
    def correlation_id(self) -> str | None:
        return self.properties.correlation_id

    @property
    def reply_to(self) -> str | None:
        return self.properties.reply_to

    @property
    def type(self) -> str | None:
        return self.properties.type

    @property
    def content_type(self) -> str | None:
        return self.properties.content_type

    @property
    def priority(self) -> int:
        return self.properties.priority or 0

    @property
    def expires_s(self) -> float | None:
        """Return the time to live that it was given."""
        text = self.properties.expiration
        return int(text) / 1000 if text is not None and text.isdecimal() else None

    @property
    def text(self) -> str:
        """Return the body as a text. Raises UnicodeDecodeError."""
        return self.body.decode()

    @property
    def value(self) -> Any:
        """Return what was sent: a text, what JSON says, or bytes. Raises ValueError."""
        kind = (self.content_type or "").partition(";")[0].strip()
        if kind == JSON:
            return json.loads(self.body)
        return self.body.decode() if kind == TEXT else self.body

    # --- of a message that is leased

    def ack(self) -> None:
        """Settle it: it does not come again. Without effect when it is settled already."""
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.settle(self.tag)

    def requeue(self) -> None:
        """Give it back: it is ready again, where it was."""
        self._give_back(requeue=True)

    def reject(self) -> None:
        """Refuse it: it becomes a dead letter where its queue has such, and else is dropped."""
        self._give_back(requeue=False)

    @property
    def is_leased(self) -> bool:
        """Return whether it is neither settled nor given back by us."""
        return self._holder is not None

    def _give_back(self, *, requeue: bool) -> None:
        holder, self._holder = self._holder, None
        if holder is not None:
            holder.give_back(self.tag, requeue=requeue)

    def __repr__(self) -> str:
        shown = self.body if len(self.body) <= 60 else self.body[:60] + b"..."
        return f"Message({shown!r}, subject={self.subject!r}, id={self.id!r})"


def encoded(value: Any) -> tuple[bytes, str | None]:
    """Return a value as bytes, and what kind of content they are. Raises ClientError."""
    if isinstance(value, bytes):
        return value, None
    if isinstance(value, str):
        return value.encode(), TEXT
    if isinstance(value, bytearray | memoryview):
        return bytes(value), None
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(), JSON
    except (TypeError, ValueError) as error:
        raise ClientError(f"a message is bytes, a text or what JSON can say: {error}") from None


def head_of(
    content_type: str | None = None,
    *,
    headers: Mapping[str, Any] | None = None,
    id: str | None = None,
    correlation_id: str | None = None,
    reply_to: str | None = None,
    type: str | None = None,
    priority: int | None = None,
    expires_s: float | None = None,
    persistent: bool = True,
) -> bytes:
    """Return a message's properties as bytes. Raises ClientError."""
    found = BasicProperties(
        content_type=content_type,
        headers=dict(headers) if headers else None,
        delivery_mode=PERSISTENT if persistent else _TRANSIENT,
        priority=priority,
        correlation_id=correlation_id,
        reply_to=reply_to,
        expiration=None if expires_s is None else str(max(0, round(expires_s * 1000))),
        message_id=id,
        type=type,
    )
    try:
        return encode(found)
    except Exception as error:
        raise ClientError(f"properties that cannot be sent: {error}") from None


def as_bytes(body: Buffer) -> bytes:
    return body if isinstance(body, bytes) else bytes(body)
