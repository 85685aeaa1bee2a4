"""The output of an AMQP connection: methods, and what is encoded already."""

from __future__ import annotations

from entrepot.gateway.outbox import Outbox
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.method import Method


class AmqpOutbox(Outbox):
    __slots__ = ()

    def method(self, channel: int, method: Method) -> None:
        self.send((method_frame(channel, method),))
