"""Delayed exchanges: a message waits at the exchange, and is routed when its time has come.

The header `x-delay` says how many milliseconds. When they are over, the header is turned
negative, as RabbitMQ's plugin does it: whoever receives the message sees that it came late,
and no delayed exchange on its further way holds it again.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrepot.core import limits

DELAY = "x-delay"


def delay_ms(headers: Mapping[str, object]) -> int:
    """How long the message waits: 0 for none, for what is no number and for too long."""
    milliseconds = _number(headers.get(DELAY))
    return milliseconds if 0 < milliseconds <= limits.DELAY_MS_MAX else 0


def released(headers: Mapping[str, object]) -> dict[str, object]:
    """The headers of a message that has waited."""
    return {**headers, DELAY: -delay_ms(headers)}


def _number(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        return 0
    try:
        return int(value)
    except (ValueError, OverflowError):
        return 0
