"""The store of share groups: `__share_group_state`, a compacted topic.

    group and topic     how many of the topic's partitions the group reads
    partition           what of it is settled: see `settlements`

The two are identified by a hash of the group's name and the topic's id, because keys should
be short. Changes of one turn of the loop are appended as one batch: see `ledger_store`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from struct import Struct
from typing import NamedTuple
from uuid import UUID

import msgspec

from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.ports import TopicStorage
from entrepot.broker.served_partition import heard
from entrepot.broker.settlements import Settlements
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.record import Record

TOPIC = "__share_group_state"
_NAME = 16  # A kind of record, beside those of `settlements`, which are lower.
_NAME_KEY = Struct(">B16s")


class ShareName(NamedTuple):
    group: str
    topic: UUID
    partition: int


class _Name(msgspec.Struct):
    group: str
    topic: UUID
    partitions: int


class ShareGroupStore:
    def __init__(self, topics: TopicStorage, clock: Clock) -> None:
        self._ledgers = LedgerStore(topics, clock, TOPIC, "share groups")

    # --- life

    def open(self) -> dict[ShareName, Settlements]:
        """Return the stored settlements; none when they are damaged, and then `check_readable`
        raises."""
        names: dict[UUID, _Name] = {}
        self._ledgers.open(partial(_fold_name, names))
        if self._ledgers.refused is not None:
            return {}
        kept: dict[ShareName, Settlements] = {}
        for identity, name in names.items():
            for number in range(name.partitions):
                settlements = self._ledgers.settlements(PartitionId(identity, number))
                kept[ShareName(name.group, name.topic, number)] = settlements
        return kept

    @property
    def refusal(self) -> str | None:
        """Return why the store cannot be read; None when it can."""
        return self._ledgers.refused

    def check_readable(self) -> None:
        """Raise StorageError when the store cannot be read."""
        self._ledgers.check_readable()

    async def prepare(self) -> None:
        """Create the topic, if it does not exist. Raises StorageError."""
        await self._ledgers.prepare()

    def close(self) -> None:
        self._ledgers.close()

    # --- storing

    def name(self, group: str, topic: UUID, partition_count: int) -> None:
        """Store how many of the topic's partitions the group reads."""
        self._put_name(group, topic, msgspec.json.encode(_Name(group, topic, partition_count)))

    def mark(self, settlements: Settlements) -> None:
        """Store what was noted in these settlements, at the end of this turn."""
        self._ledgers.mark(settlements)

    def forget(self, group: str, topic: UUID, lanes: Iterable[Settlements]) -> None:
        """Delete all records about a topic of a group."""
        for each in lanes:
            self._ledgers.forget(each)
        self._put_name(group, topic, None)

    async def kept(self) -> None:
        """Wait until everything so far is permanent. Raises StorageError."""
        await heard(self._ledgers.when_committed)

    def _put_name(self, group: str, topic: UUID, value: bytes | None) -> None:
        identity = _identity(group, topic)
        self._ledgers.put(identity, Record(_NAME_KEY.pack(_NAME, identity.bytes), value))


def new_settlements(name: ShareName) -> Settlements:
    return Settlements(PartitionId(_identity(name.group, name.topic), name.partition))


def _identity(group: str, topic: UUID) -> UUID:
    """Return the hash of a group's name and a topic's id."""
    digest = hashlib.blake2b(topic.bytes + group.encode("utf-8", "surrogatepass"), digest_size=16)
    return UUID(bytes=digest.digest())


def _fold_name(names: dict[UUID, _Name], record: Record) -> None:
    assert record.key is not None
    identity = UUID(bytes=_NAME_KEY.unpack(record.key)[1])
    if record.value is None:
        names.pop(identity, None)
    else:
        names[identity] = msgspec.json.decode(record.value, type=_Name)
