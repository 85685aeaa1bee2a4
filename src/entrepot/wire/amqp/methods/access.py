"""The access class: tickets of AMQP 0-8, which have no meaning but are granted to old clients."""

from dataclasses import dataclass

from entrepot.wire.amqp.method import Bit, Method, Short, ShortString


@dataclass(frozen=True, slots=True)
class Request(Method):
    ID = (30, 10)
    NAME = "access.request"

    realm: ShortString = "/data"
    exclusive: Bit = False
    passive: Bit = True
    active: Bit = True
    write: Bit = True
    read: Bit = True


@dataclass(frozen=True, slots=True)
class RequestOk(Method):
    ID = (30, 11)
    NAME = "access.request-ok"

    ticket: Short = 1
