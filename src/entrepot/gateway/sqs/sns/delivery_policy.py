"""Delivery policies: when a message is sent again that an HTTP endpoint did not take.

Retries come in four phases: at once, after the shortest delay, after delays that grow, and after
the longest delay. What a policy does not say is as in AWS: three retries, 20 seconds apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

_CONTENT_TYPE = "text/plain; charset=UTF-8"
_DELAY_S = 20
_RETRIES = 3

# How delays grow: the delay at a retry of so many (at least two), from the shortest to the longest.
_GROWTH: Mapping[str, Callable[[float, float, int, int], float]] = {
    "linear": lambda low, high, place, last: low + (high - low) * place / last,
    "arithmetic": lambda low, high, place, last: (
        low + (high - low) * place * (place + 1) / (last * (last + 1))
    ),
    "geometric": lambda low, high, place, last: low * (high / low) ** (place / last),
    "exponential": lambda low, high, place, last: min(high, low * 2.0**place),
}


class _Retries(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    min_delay_target: int = _DELAY_S
    max_delay_target: int = _DELAY_S
    num_retries: int = _RETRIES
    num_no_delay_retries: int = 0
    num_min_delay_retries: int = 0
    num_max_delay_retries: int = 0
    backoff_function: str = "linear"


class _Throttle(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    max_receives_per_second: int = 0


class _RequestSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    header_content_type: str = _CONTENT_TYPE


class _Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    healthy_retry_policy: _Retries = _Retries()
    throttle_policy: _Throttle | None = None
    request_policy: _RequestSettings = _RequestSettings()


@dataclass(frozen=True, slots=True)
class DeliveryPolicy:
    delays_s: tuple[float, ...]  # Before each retry.
    rate: int  # Messages in a second; 0 means: no limit.
    content_type: str

    def delay_s(self, attempts: int) -> float | None:
        """Return how long to wait after so many attempts; None if there is no other."""
        return self.delays_s[attempts - 1] if attempts <= len(self.delays_s) else None


def read(text: str) -> DeliveryPolicy:
    """Read a policy; an empty text is one that says nothing. Raises SqsError."""
    try:
        found = msgspec.json.decode(text or "{}", type=_Policy)
    except (msgspec.DecodeError, RecursionError) as error:
        raise _wrong(str(error)) from None
    retries, throttle = found.healthy_retry_policy, found.throttle_policy
    _check(retries)
    rate = 0 if throttle is None else throttle.max_receives_per_second
    if throttle is not None and rate < 1:
        raise _wrong("maxReceivesPerSecond must be at least 1")
    content_type = found.request_policy.header_content_type
    if not content_type.isascii() or not content_type.isprintable() or len(content_type) > 100:
        raise _wrong("headerContentType is no content type")
    policy = DeliveryPolicy(_delays_s(retries), rate, content_type)
    if sum(policy.delays_s) > sqs_limits.DELIVERY_S_MAX:
        raise _wrong(f"all retries must be within {sqs_limits.DELIVERY_S_MAX} seconds")
    return policy


def _check(retries: _Retries) -> None:
    phases = (
        retries.num_no_delay_retries,
        retries.num_min_delay_retries,
        retries.num_max_delay_retries,
    )
    low, high = retries.min_delay_target, retries.max_delay_target
    if not 1 <= low <= high <= sqs_limits.DELIVERY_S_MAX:
        raise _wrong(f"1 <= minDelayTarget <= maxDelayTarget <= {sqs_limits.DELIVERY_S_MAX}")
    if not 0 <= retries.num_retries <= sqs_limits.RETRIES_MAX:
        raise _wrong(f"numRetries is from 0 to {sqs_limits.RETRIES_MAX}")
    if min(phases) < 0 or sum(phases) > retries.num_retries:
        raise _wrong("numRetries counts the retries of all phases")
    if retries.backoff_function not in _GROWTH:
        raise _wrong(f"backoffFunction is one of {', '.join(_GROWTH)}")


def _delays_s(retries: _Retries) -> tuple[float, ...]:
    low, high = float(retries.min_delay_target), float(retries.max_delay_target)
    at_once, shortest = retries.num_no_delay_retries, retries.num_min_delay_retries
    growing = retries.num_retries - at_once - shortest - retries.num_max_delay_retries
    grown, last = _GROWTH[retries.backoff_function], max(growing - 1, 1)
    return (
        *(0.0,) * at_once,
        *(low,) * shortest,
        *(grown(low, high, place, last) for place in range(growing)),
        *(high,) * retries.num_max_delay_retries,
    )


def _wrong(reason: str) -> SqsError:
    return SqsError("InvalidParameter", f"Invalid parameter: DeliveryPolicy: {reason[:300]}")


def told(text: str) -> dict[str, Any]:
    """Return the policy in effect, as the attribute EffectiveDeliveryPolicy tells it."""
    found = msgspec.json.decode(text or "{}", type=_Policy)
    return {name: value for name, value in msgspec.to_builtins(found).items() if value is not None}
