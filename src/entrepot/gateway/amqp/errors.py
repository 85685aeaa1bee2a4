"""What went wrong in the broker, as AMQP's reply codes.

The texts are the broker's own, which are RabbitMQ's where clients could match on them. The
code decides how much is closed: see `wire.amqp.errors`.
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
    errors.QueueDown: ReplyCode.NOT_FOUND,  # As of a queue that RabbitMQ's supervisor gave up.
    StorageError: ReplyCode.INTERNAL_ERROR,
}


def code_of(error: Exception) -> ReplyCode:
    """Most of what a broker refuses is a precondition that does not hold."""
    for kind in type(error).__mro__:
        if kind in _CODES:
            return _CODES[kind]
    return ReplyCode.PRECONDITION_FAILED


def explain(error: PeerError | StorageError, channel: int, method_id: Id) -> AmqpError:
    """The same mistake, with where it was made."""
    if isinstance(error, AmqpError):
        return AmqpError(error.code, error.explanation, channel=channel, method_id=method_id)
    return AmqpError(code_of(error), str(error), channel=channel, method_id=method_id)
