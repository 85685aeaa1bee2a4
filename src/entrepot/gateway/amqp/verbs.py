"""The table of the functions that serve methods. A method that is not in it is refused."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from entrepot.gateway.amqp import basic, confirm, exchange, flow, queue, tx
from entrepot.wire.amqp import methods as wire
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.method import Method

if TYPE_CHECKING:
    from entrepot.gateway.amqp.channel import Channel

# Serves a method. Returns what must be awaited before the next event is served, if anything.
# Raises a PeerError or a StorageError, at once or while it is awaited.
Verb = Callable[["Channel", Any], Awaitable[None] | None]

_VERBS: dict[type[Method], Verb] = {
    wire.access.Request: flow.request_access,
    wire.channel.Flow: flow.flow,
    wire.exchange.Declare: exchange.declare,
    wire.exchange.Delete: exchange.delete,
    wire.exchange.Bind: exchange.bind,
    wire.exchange.Unbind: exchange.unbind,
    wire.queue.Declare: queue.declare,
    wire.queue.Delete: queue.delete,
    wire.queue.Purge: queue.purge,
    wire.queue.Bind: queue.bind,
    wire.queue.Unbind: queue.unbind,
    wire.basic.Qos: basic.qos,
    wire.basic.Consume: basic.consume,
    wire.basic.Cancel: basic.cancel,
    wire.basic.CancelOk: basic.cancel_ok,
    wire.basic.Get: basic.get,
    wire.basic.Ack: basic.ack,
    wire.basic.Nack: basic.nack,
    wire.basic.Reject: basic.reject,
    wire.basic.Recover: basic.recover,
    wire.basic.RecoverAsync: basic.recover_async,
    wire.confirm.Select: confirm.select,
    wire.tx.Select: tx.select,
    wire.tx.Commit: tx.commit,
    wire.tx.Rollback: tx.rollback,
}

# Served when the client's earlier publishes are committed, because it expects to see them.
AFTER_PUBLISHES = (wire.basic.Get, wire.queue.Declare, wire.queue.Purge, wire.queue.Delete)


def find(method: Method) -> Verb:
    """Return the function that serves the method. Raises AmqpError if there is none."""
    verb = _VERBS.get(type(method))
    if verb is None:
        raise AmqpError(ReplyCode.COMMAND_INVALID, "unimplemented method")
    return verb
