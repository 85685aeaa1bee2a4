"""RabbitMQ's error texts for a second declaration that differs from the first."""

from __future__ import annotations

from entrepot.core.value import Frozen
from entrepot.gateway.rabbitmq.erlang import describe


def inequivalent(name: str, where: str, wanted: str, current: str) -> str:
    return f"inequivalent arg '{name}' for {where}: received {wanted} but current is {current}"


def truth(is_so: bool) -> str:
    return "'true'" if is_so else "'false'"


def plain(value: Frozen) -> str:
    return value if isinstance(value, str) else describe(value)[1]


def typed(value: Frozen) -> str:
    return f"the value '{plain(value)}' of type '{describe(value)[0]}'"
