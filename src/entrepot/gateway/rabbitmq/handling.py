"""Headers by which a publisher tells the broker how to handle a message, as in RabbitMQ.

`CC` and `BCC` are further routing keys; consumers do not see `BCC`. `x-delay` is the delay in
milliseconds at a delayed exchange. After the delay the header is negated, as RabbitMQ's plugin
does: consumers see that the message was delayed, and no other delayed exchange delays it again.
`x-deduplication-header` is an id, and `x-cache-ttl` how long it is remembered, as in RabbitMQ's
plugin for that. `x-confirm: consumed` is our own: the message is confirmed only when consumers
have settled it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

from entrepot.core import limits
from entrepot.core.errors import InvalidRoutingHeader
from entrepot.core.message import Handling
from entrepot.core.value import freeze
from entrepot.gateway.rabbitmq.erlang import describe

COPIES = "CC"
BLIND_COPIES = "BCC"
DELAY = "x-delay"
CONFIRM = "x-confirm"
CONSUMED = "consumed"
DEDUPLICATION_ID = "x-deduplication-header"
DEDUPLICATION_TTL = "x-cache-ttl"
HEADERS = (COPIES, BLIND_COPIES, DELAY, CONFIRM, DEDUPLICATION_ID, DEDUPLICATION_TTL)

_ID_BYTES = 16
_DIGITS = re.compile("[0-9]{1,19}")
_INTEGER = re.compile(r"[+-]?[0-9]+")


def with_headers(handling: Handling, headers: Mapping[str, object]) -> Handling:
    """Return the handling, changed as these headers ask for."""
    if not any(name in headers for name in HEADERS):
        return handling
    return handling._replace(
        delay_ms=delay_ms(headers),
        confirms_when_consumed=headers.get(CONFIRM) == CONSUMED,
        copies=_keys(headers.get(COPIES)),
        blind_copies=_keys(headers.get(BLIND_COPIES)),
        deduplication_id=_identity(headers.get(DEDUPLICATION_ID)),
        deduplication_ttl_ms=_ttl_ms(headers.get(DEDUPLICATION_TTL)),
    )


def check_copies(headers: Mapping[str, object]) -> None:
    """Raise InvalidRoutingHeader if `CC` or `BCC` is not a list."""
    for name in (COPIES, BLIND_COPIES):
        if name in headers and not isinstance(headers[name], list | tuple):
            kind = describe(freeze(headers[name]))[0]
            raise InvalidRoutingHeader(
                f'invalid message: {{unacceptable_type_in_header,"{name}",{kind}}}'
            )


def delay_ms(headers: Mapping[str, object]) -> int:
    """Return the delay; 0 if there is none, if it is not a number, or if it is too long."""
    value = headers.get(DELAY)
    if isinstance(value, bool) or not isinstance(value, int | float | str | bytes):
        return 0
    try:
        milliseconds = int(value)
    except (ValueError, OverflowError):
        return 0
    return milliseconds if 0 < milliseconds <= limits.DELAY_MS_MAX else 0


def read_expiration(text: str) -> tuple[int | None, str]:
    """Return the milliseconds of the property `expiration`, or what is wrong with it."""
    found = _INTEGER.match(text)
    if found is None:
        return None, "no_integer"
    if found.end() < len(text):
        return None, f'{{leftover_string,"{text[found.end() :]}"}}'
    milliseconds = int(text)
    if milliseconds < 0:
        return None, f"{{value_negative,{milliseconds}}}"
    if milliseconds > limits.QUEUE_TTL_MS_MAX:
        return None, f"{{value_too_large,{milliseconds}}}"
    return milliseconds, ""


def _keys(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        return ()
    return tuple(each for each in value if isinstance(each, str))


def _identity(value: object) -> bytes | None:
    """Return a hash of the id."""
    if value is None:
        return None
    text = repr(freeze(value)).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=_ID_BYTES).digest()


def _ttl_ms(value: object) -> int | None:
    """Return the value if it is a number, or digits, in the allowed range; otherwise None."""
    value = freeze(value)
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    return value if isinstance(value, int) and 0 < value <= limits.QUEUE_TTL_MS_MAX else None
