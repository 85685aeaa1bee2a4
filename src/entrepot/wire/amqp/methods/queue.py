"""The queue class: declaring, binding, purging and deleting queues."""

from dataclasses import dataclass, field

from entrepot.wire.amqp.method import Arguments, Bit, Long, Method, Short, ShortString


@dataclass(frozen=True, slots=True)
class Declare(Method):
    ID = (50, 10)
    NAME = "queue.declare"

    ticket: Short = 0
    queue: ShortString = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeclareOk(Method):
    ID = (50, 11)
    NAME = "queue.declare-ok"

    queue: ShortString = ""
    message_count: Long = 0
    consumer_count: Long = 0


@dataclass(frozen=True, slots=True)
class Bind(Method):
    ID = (50, 20)
    NAME = "queue.bind"

    ticket: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BindOk(Method):
    ID = (50, 21)
    NAME = "queue.bind-ok"


@dataclass(frozen=True, slots=True)
class Purge(Method):
    ID = (50, 30)
    NAME = "queue.purge"

    ticket: Short = 0
    queue: ShortString = ""
    nowait: Bit = False


@dataclass(frozen=True, slots=True)
class PurgeOk(Method):
    ID = (50, 31)
    NAME = "queue.purge-ok"

    message_count: Long = 0


@dataclass(frozen=True, slots=True)
class Delete(Method):
    ID = (50, 40)
    NAME = "queue.delete"

    ticket: Short = 0
    queue: ShortString = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@dataclass(frozen=True, slots=True)
class DeleteOk(Method):
    ID = (50, 41)
    NAME = "queue.delete-ok"

    message_count: Long = 0


@dataclass(frozen=True, slots=True)
class Unbind(Method):
    ID = (50, 50)
    NAME = "queue.unbind"

    ticket: Short = 0
    queue: ShortString = ""
    exchange: ShortString = ""
    routing_key: ShortString = ""
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnbindOk(Method):
    ID = (50, 51)
    NAME = "queue.unbind-ok"
