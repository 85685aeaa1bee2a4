"""Consistent hashing: a message goes to one of the destinations, chosen by the hash of its key.

A binding's key is its weight, the number of its buckets; a message's key, or one of its headers
or properties, is hashed to one of the buckets. When a destination is added or removed, as few
keys as possible change their destination.

Placement is RabbitMQ's, bucket for bucket, so that after a migration each key keeps its queue:
the jump hash of Lamping and Veach, drawn from Erlang's generator exs1024 (Vigna's xorshift
1024*), seeded with Erlang's portable hash of the text (Jenkins' lookup2, 27 bits). Numbers
seed it as they are. Arrays, tables and fractions are hashed as text, which RabbitMQ does not.

A destination that is bound twice counts once, with the weight of the older binding.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from entrepot.broker.router.event import Binding, Destination, Exchange
from entrepot.broker.router.matching import NO_MATCHES, Matches, Routed, divided
from entrepot.core.value import Frozen, freeze

_MASK_32: Final = 0xFFFFFFFF
_MASK_64: Final = 0xFFFFFFFFFFFFFFFF
_GOLDEN: Final = 0x9E3779B9
_OF_BINARIES: Final = 13 * _GOLDEN & _MASK_32
_HASH_BITS: Final = 27
# Erlang's hashes of the atoms that stand for these values.
_ATOMS: Final = {None: 45_914_356, ("bool", True): 506_293, ("bool", False): 7_111_573}


class RingMatcher:
    def __init__(self, exchange: Exchange) -> None:
        self._header = exchange.settings.hash_header
        self._property = exchange.settings.hash_property
        self.reads_headers = self._header is not None or self._property is not None
        self._bindings: dict[Binding, None] = {}  # In the order in which they were made.
        # One for each destination. None means: to be computed, because bindings have changed.
        self._chosen: list[Matches] | None = None
        self._bucket_ends: list[int] = []  # The exclusive end of each destination's buckets.

    def add(self, binding: Binding) -> None:
        self._bindings[binding] = None
        self._chosen = None

    def remove(self, binding: Binding) -> None:
        del self._bindings[binding]
        self._chosen = None

    def match(self, message: Routed) -> Matches:
        if self._chosen is None:
            self._chosen = self._lay_out()
        if not self._chosen:
            return NO_MATCHES
        bucket = jump(seed_of(self._hashed(message)), self._bucket_ends[-1])
        return self._chosen[bisect_right(self._bucket_ends, bucket)]

    def _lay_out(self) -> list[Matches]:
        """Assign the buckets to the destinations, and return the destinations."""
        weights: dict[Destination, int] = {}
        for binding in self._bindings:
            weights.setdefault(binding.destination, int(binding.key))
        self._bucket_ends = list(accumulate(weights.values()))
        return [divided([destination]) for destination in weights]

    def _hashed(self, message: Routed) -> Frozen:
        """Return the value that is hashed: a header, a property, or the routing key."""
        if self._header is not None:
            return freeze(message.properties.headers.get(self._header))
        if self._property is None:
            return message.keys[0]
        value = getattr(message.properties, self._property)
        return None if value is None else str(value)


def seed_of(value: Frozen) -> int:
    """Return the seed of the jump hash for a value."""
    if isinstance(value, int):
        return value
    known = _ATOMS.get(value)
    if known is not None:
        return known
    text = value if isinstance(value, str) else json.dumps(value)
    return portable_hash(text.encode("utf-8", "surrogateescape"))


def jump(seed: int, bucket_count: int) -> int:
    """Return the number of the seed's bucket. If a bucket is added, a seed moves there or stays."""
    if bucket_count == 1:
        return 0
    bucket = reached = 0
    draws = _random_bits(seed)
    while reached < bucket_count:
        bucket = reached
        reached = int((bucket + 1) / (next(draws) / 2**64))
    return bucket


def _random_bits(seed: int) -> Iterator[int]:
    """Yield the 64-bit numbers of Erlang's exs1024, seeded with three times the same number."""
    state = _seeded(seed)
    place = 0
    while True:
        old = state[place]
        place = (place + 1) & 15
        new = state[place]
        new ^= new << 31 & _MASK_64
        new ^= new >> 11 ^ old ^ old >> 30
        state[place] = new
        yield new * 1181783497276652981 & _MASK_64 or 1  # Not zero: the caller divides by it.


def _seeded(seed: int) -> list[int]:
    mask = (1 << 21) - 1
    first, second, third = (
        ((seed & mask) + 1) * factor & mask for factor in (2097131, 2097133, 2097143)
    )
    bits = first << 43 | second << 22 | third << 1 | 1
    state = []
    for _ in range(16):
        bits ^= bits >> 12
        bits ^= bits << 25 & _MASK_64
        bits ^= bits >> 27
        state.append(bits * 2685821657736338717 & _MASK_64)
    state.reverse()
    return state


def portable_hash(data: bytes) -> int:
    """Return Erlang's phash2 of a binary."""
    if not data:
        return _OF_BINARIES & ((1 << _HASH_BITS) - 1)
    a = b = _GOLDEN
    c = _OF_BINARIES
    whole = len(data) - len(data) % 12
    for start in range(0, whole, 12):
        a += int.from_bytes(data[start : start + 4], "little")
        b += int.from_bytes(data[start + 4 : start + 8], "little")
        c += int.from_bytes(data[start + 8 : start + 12], "little")
        a, b, c = _mixed(a, b, c)
    a += int.from_bytes(data[whole : whole + 4], "little")
    b += int.from_bytes(data[whole + 4 : whole + 8], "little")
    c += (int.from_bytes(data[whole + 8 :], "little") << 8) + len(data)
    return _mixed(a, b, c)[2] & ((1 << _HASH_BITS) - 1)


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Mix three numbers as lookup2 does. Arguments may be over 32 bits, results are not."""
    for right, left, last in ((13, 8, 13), (12, 16, 5), (3, 10, 15)):
        a = (a - b - c & _MASK_32) ^ (c & _MASK_32) >> right
        b = (b - c - a & _MASK_32) ^ (a << left & _MASK_32)
        c = (c - a - b & _MASK_32) ^ b >> last
    return a, b, c
