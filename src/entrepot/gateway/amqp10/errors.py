"""Errors of the broker as conditions of AMQP 1.0."""

from __future__ import annotations

from entrepot.core import errors
from entrepot.core.errors import PeerError, StorageError
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope

_CONDITIONS: dict[type[Exception], Condition] = {
    errors.UnknownExchange: Condition.NOT_FOUND,
    errors.UnknownQueue: Condition.NOT_FOUND,
    errors.QueueLocked: Condition.RESOURCE_LOCKED,
    errors.QueueInUse: Condition.RESOURCE_LOCKED,
    errors.QueueMismatch: Condition.PRECONDITION_FAILED,
    errors.QueueNameRefused: Condition.UNAUTHORIZED,
    errors.ExchangeRefused: Condition.UNAUTHORIZED,
    errors.TopicDenied: Condition.UNAUTHORIZED,
}


def explain(error: PeerError | StorageError, scope: Scope = Scope.CONNECTION) -> Amqp10Error:
    """Return the error with a condition. One that has a condition keeps its scope."""
    if isinstance(error, Amqp10Error):
        return error
    condition = Condition.INTERNAL_ERROR
    if isinstance(error, PeerError):
        condition = _CONDITIONS.get(type(error), Condition.PRECONDITION_FAILED)
    return Amqp10Error(condition, str(error), scope)
