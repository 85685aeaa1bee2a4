"""The exchange class. Bindings between exchanges are RabbitMQ's extension."""

from dataclasses import dataclass, field

from entrepot.wire.amqp.method import Arguments, Bit, Method, Short, ShortString


@dataclass(frozen=True, slots=True)
class Declare(Method):
    ID = (40, 10)
    NAME = "exchange.declare"

    ticket: Short = 0
    exchange: ShortString = ""
    type: ShortString = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeclareOk(Method):
    ID = (40, 11)
    NAME = "exchange.declare-ok"


@dataclass(frozen=True, slots=True)
class Delete(Method):
    ID = (40, 20)
    NAME = "exchange.delete"

    ticket: Short = 0
    exchange: ShortString = ""
    if_unused: Bit = False
    nowait: Bit = False


@dataclass(frozen=True, slots=True)
class DeleteOk(Method):
    ID = (40, 21)
    NAME = "exchange.delete-ok"


@dataclass(frozen=True, slots=True)
class Bind(Method):
    ID = (40, 30)
    NAME = "exchange.bind"

    ticket: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BindOk(Method):
    ID = (40, 31)
    NAME = "exchange.bind-ok"


@dataclass(frozen=True, slots=True)
class Unbind(Method):
    ID = (40, 40)
    NAME = "exchange.unbind"

    ticket: Short = 0
    destination: ShortString = ""
    source: ShortString = ""
    routing_key: ShortString = ""
    nowait: Bit = False
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UnbindOk(Method):
    ID = (40, 51)
    NAME = "exchange.unbind-ok"
