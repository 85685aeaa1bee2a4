"""Deduplicating exchanges: of several messages with one id, the first is routed.

The id is in the header `x-deduplication-header`; a message without it is always routed. How
many ids are remembered, and for how long, the exchange's settings say, and the header
`x-cache-ttl` for its message. The headers are those of RabbitMQ's plugin, which remembers
what the exchange has seen. Here it is remembered what each queue has got, which a crash
cannot tear apart: see `virtual_host.deduplication`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.value import Frozen, freeze

HEADER = "x-deduplication-header"
TTL = "x-cache-ttl"
_ID_BYTES = 16
_DIGITS = re.compile("[0-9]{1,19}")


class Terms(NamedTuple):
    size: int  # Ids that are remembered for each queue.
    ttl_ms: int | None  # How long; None: as long as there is room.


def identity(headers: Mapping[str, object]) -> bytes | None:
    """Equal for equal ids, and of one length; None: the message has none."""
    value = headers.get(HEADER)
    if value is None:
        return None
    text = repr(freeze(value)).encode("utf-8", "surrogateescape")
    return blake2b(text, digest_size=_ID_BYTES).digest()


def ttl_ms(headers: Mapping[str, object], of_exchange: Terms) -> int | None:
    """The message's own, if it is one."""
    own = _number(freeze(headers.get(TTL)))
    return of_exchange.ttl_ms if own is None else own


def _number(value: Frozen) -> int | None:
    """Greater than 0 and not absurd, also as a text."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    is_number = isinstance(value, int) and 0 < value <= limits.QUEUE_TTL_MS_MAX
    return value if is_number else None
