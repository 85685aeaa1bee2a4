"""RabbitMQ's names and arguments, behind the broker's interface for them."""

from __future__ import annotations

from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.router.event import ExchangeSettings, ExchangeType, Match
from entrepot.core.value import FrozenTable
from entrepot.gateway.rabbitmq.binding_arguments import header_conditions
from entrepot.gateway.rabbitmq.exchange_arguments import settings_of
from entrepot.gateway.rabbitmq.names import DELAY_QUEUE, RESERVED_PREFIX, SUBJECT_EXCHANGE
from entrepot.gateway.rabbitmq.queue_arguments import parse


class RabbitDialect:
    """Implements `Dialect`."""

    delay_queue = DELAY_QUEUE
    subject_exchange = SUBJECT_EXCHANGE

    def is_reserved(self, name: str) -> bool:
        return name.startswith(RESERVED_PREFIX)

    def queue_settings(self, arguments: FrozenTable, where: str) -> QueueSettings:
        return parse(arguments, where)

    def exchange_settings(self, kind: ExchangeType, arguments: FrozenTable) -> ExchangeSettings:
        return settings_of(kind, arguments)

    def header_conditions(self, arguments: FrozenTable) -> tuple[FrozenTable, Match]:
        return header_conditions(arguments)
