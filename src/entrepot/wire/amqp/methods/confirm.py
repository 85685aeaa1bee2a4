"""The confirm class: publisher confirms, an extension of RabbitMQ."""

from dataclasses import dataclass

from entrepot.wire.amqp.method import Bit, Method


@dataclass(frozen=True, slots=True)
class Select(Method):
    ID = (85, 10)
    NAME = "confirm.select"

    nowait: Bit = False


@dataclass(frozen=True, slots=True)
class SelectOk(Method):
    ID = (85, 11)
    NAME = "confirm.select-ok"
