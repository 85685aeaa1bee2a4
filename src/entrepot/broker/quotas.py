"""Stores quotas and measures their use: bytes that clients send and fetch per second, and time.

A quota is set on a user, on a client id, on both together, or as the default for those without
one of their own. Of the quotas that apply to a client the most specific counts, in Kafka's
order. It is shared by all connections that it applies to by the same names: a user's quota by
all connections of that user, whatever their client id.

Quotas are records of the catalog. How much was used is not stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

import msgspec

from entrepot.core import limits
from entrepot.core.record import Record

DEFAULT = ""  # In place of a name: all users or client ids that have no quota of their own.


class Limit(Enum):
    """What a quota limits. Values are persisted, and are Kafka's names: never change one."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"  # 100 means: all of the event loop's time.


class Entity(NamedTuple):
    """What a quota is set on: a user, a client id or both. None means: any."""

    user: str | None
    client_id: str | None


class Bucket:
    """A token bucket: filled at a rate up to a burst; it may go below zero.

    A client that spends more than there is waits until it is back at zero.
    """

    __slots__ = ("_filled_s", "_tokens", "rate")

    def __init__(self, rate: float, now_s: float) -> None:
        self.rate = rate  # Tokens per second. May be changed.
        self._tokens = self._burst
        self._filled_s = now_s

    @property
    def _burst(self) -> float:
        return self.rate * limits.QUOTA_BURST_SECONDS

    def spend(self, amount: float, now_s: float) -> float:
        """Take tokens. Return how many seconds to wait."""
        filled = self._tokens + (now_s - self._filled_s) * self.rate
        self._tokens = min(filled, self._burst) - amount
        self._filled_s = now_s
        return max(0.0, -self._tokens / self.rate)


class Quotas:
    def __init__(self) -> None:
        self._quotas: dict[Entity, dict[Limit, float]] = {}
        # By limit and by the connections that share it; the least recently used first.
        self._buckets: OrderedDict[tuple[Limit, Entity], Bucket] = OrderedDict()

    def apply(self, text: str, value: bytes | None) -> None:
        """Apply one record of the catalog."""
        entity = msgspec.json.decode(text, type=Entity)
        if value is None:
            self._quotas.pop(entity, None)
        else:
            self._quotas[entity] = msgspec.json.decode(value, type=dict[Limit, float])

    def __len__(self) -> int:
        return len(self._quotas)

    @property
    def all(self) -> Mapping[Entity, Mapping[Limit, float]]:
        return self._quotas

    def spend(self, user: str, client_id: str, limit: Limit, amount: float, now_s: float) -> float:
        """Note what a client used. Return how many seconds it has to wait."""
        found = self._find(user, client_id, limit)
        if found is None:
            return 0.0
        rate, shared_by = found
        bucket = self._buckets.get((limit, shared_by))
        if bucket is None:
            bucket = self._buckets[limit, shared_by] = Bucket(rate, now_s)
            if len(self._buckets) > limits.QUOTA_BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            bucket.rate = rate
            self._buckets.move_to_end((limit, shared_by))
        return bucket.spend(amount, now_s)

    def _find(self, user: str, client_id: str, limit: Limit) -> tuple[float, Entity] | None:
        """Return the rate that applies, and the entity whose connections share it."""
        both, user_only = Entity(user, client_id), Entity(user, None)
        for entity, shared_by in (
            (both, both),
            (Entity(user, DEFAULT), both),
            (user_only, user_only),
            (Entity(DEFAULT, client_id), both),
            (Entity(DEFAULT, DEFAULT), both),
            (Entity(DEFAULT, None), user_only),
            (Entity(None, client_id), Entity(None, client_id)),
            (Entity(None, DEFAULT), Entity(None, client_id)),
        ):
            rate = self._quotas.get(entity, {}).get(limit)
            if rate is not None:
                return rate, shared_by
        return None


def quota_record(entity: Entity, values: Mapping[Limit, float]) -> Record:
    """Return the catalog's record of a quota; without values, the one that deletes it."""
    key = b"quota:" + msgspec.json.encode(entity)
    return Record(key, msgspec.json.encode(values) if values else None)
