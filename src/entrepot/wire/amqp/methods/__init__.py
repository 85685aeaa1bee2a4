"""Every method of AMQP 0-9-1 with RabbitMQ's extensions, one module to a class.

The modules are named as the specification names its classes, so `queue.DeclareOk` here
is `queue.declare-ok` there. Fields have its names, with two exceptions: `no-wait` is
`nowait` and `global`, a keyword of Python, is `is_global`.
"""

from typing import Any

from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.method import Id, Method, read_fields, read_id, write
from entrepot.wire.amqp.methods import (
    access,
    basic,
    channel,
    confirm,
    connection,
    exchange,
    queue,
    tx,
)

__all__ = ["METHODS", "decode", "encode"]

_CLASSES: tuple[Any, ...] = (
    connection,
    channel,
    access,
    exchange,
    queue,
    basic,
    confirm,
    tx,
)
METHODS: dict[Id, type[Method]] = {
    kind.ID: kind
    for module in _CLASSES
    for kind in vars(module).values()
    if isinstance(kind, type) and issubclass(kind, Method) and kind is not Method
}

encode = write


def decode(payload: memoryview | bytes) -> Method:
    """Return the method in a method frame's payload.

    Raises AmqpError: an unknown method is not implemented, a malformed one is a frame error,
    and a malformed table in it is a syntax error.
    """
    number = read_id(payload)
    kind = METHODS.get(number)
    if kind is None:
        raise AmqpError(
            ReplyCode.NOT_IMPLEMENTED,
            f"there is no method {number[1]} of class {number[0]}",
            method_id=number,
        )
    return read_fields(kind, payload)
