"""Translation of the broker's errors to AMQP's reply codes.

The texts are the broker's; where clients could match on them they are RabbitMQ's. The code
decides whether the channel or the connection is closed: see `wire.amqp.errors`.
"""

from entrepot.core import errors
from entrepot.core.errors import PeerError, StorageError
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.method import Id

_CODES: dict[type[Exception], ReplyCode] = {
    errors.UnknownExchange: ReplyCode.NOT_FOUND,
    errors.UnknownQueue: ReplyCode.NOT_FOUND,
    errors.UnknownTopic: ReplyCode.NOT_FOUND,
    errors.UnknownVhost: ReplyCode.NOT_ALLOWED,
    errors.ExchangeRefused: ReplyCode.ACCESS_REFUSED,
    errors.QueueNameRefused: ReplyCode.ACCESS_REFUSED,
    errors.QueueInUse: ReplyCode.ACCESS_REFUSED,
    errors.QueueLocked: ReplyCode.RESOURCE_LOCKED,
    errors.QueueDown: ReplyCode.NOT_FOUND,  # As RabbitMQ, of a queue that crashed for good.
    StorageError: ReplyCode.INTERNAL_ERROR,
}


def code_of(error: Exception) -> ReplyCode:
    """Return the reply code for an error; most are failed preconditions."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ReplyCode.PRECONDITION_FAILED


def explain(error: PeerError | StorageError, channel: int, method_id: Id) -> AmqpError:
    """Return the error as an AmqpError with the channel and the method in which it occurred."""
    if isinstance(error, AmqpError):
        return AmqpError(error.code, error.explanation, channel=channel, method_id=method_id)
    return AmqpError(code_of(error), str(error), channel=channel, method_id=method_id)
