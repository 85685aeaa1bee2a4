"""The error conditions of AMQP 1.0, and what each of them ends."""

from __future__ import annotations

from enum import Enum

from entrepot.core.errors import PeerError


class Condition(Enum):
    """Conditions of the specification (parts 2.8.15 to 2.8.18 and 4.5.8)."""

    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    RESOURCE_LOCKED = "amqp:resource-locked"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_DELETED = "amqp:resource-deleted"
    ILLEGAL_STATE = "amqp:illegal-state"
    FRAME_TOO_SMALL = "amqp:frame-size-too-small"
    CONNECTION_FORCED = "amqp:connection:forced"
    FRAMING_ERROR = "amqp:connection:framing-error"
    WINDOW_VIOLATION = "amqp:session:window-violation"
    ERRANT_LINK = "amqp:session:errant-link"
    HANDLE_IN_USE = "amqp:session:handle-in-use"
    UNATTACHED_HANDLE = "amqp:session:unattached-handle"
    DETACH_FORCED = "amqp:link:detach-forced"
    TRANSFER_LIMIT = "amqp:link:transfer-limit-exceeded"
    MESSAGE_TOO_LARGE = "amqp:link:message-size-exceeded"
    UNKNOWN_TRANSACTION = "amqp:transaction:unknown-id"
    ROLLED_BACK = "amqp:transaction:rollback"


class Scope(Enum):
    """What an error ends."""

    LINK = "link"
    SESSION = "session"
    CONNECTION = "connection"


class Amqp10Error(PeerError):
    """A mistake of the peer, with its condition. The text is for its user."""

    def __init__(self, condition: Condition, text: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(text)
        self.condition = condition
        self.text = text
        self.scope = scope
