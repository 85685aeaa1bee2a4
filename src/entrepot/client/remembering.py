"""What drivers must know after a crash: records of compacted topics, the newest of a key counts.

Each is JSON under a key. They are few and small, and looked for from the end, for what a
driver wants to know it wrote not long ago.
"""

import json
from typing import Any

from kio.schema.errors import ErrorCode

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.errors import BadAnswer, Refused
from entrepot.core.batch import build, records, walk
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import MIB
from entrepot.core.ports import Clock
from entrepot.core.record import Record

# Small segments: the newest one is never compacted.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * MIB)}
LOOK_BACK_RECORDS = 64  # At first; then further and further, as others write there, too.
LOOK_BACK_GROWTH = 16


async def remember(client: Client, clock: Clock, topic: str, key: str, value: object) -> None:
    """Permanent when it returns."""
    await _ensure(client, topic)
    record = Record(key.encode(), json.dumps(value).encode())
    await client.produce(topic, 0, build([record], now_ms=clock.now_ms()))


async def recall(client: Client, topic: str, key: str) -> Any:
    """What was last said under the key; None: nothing."""
    if not await client.cluster.retry(lambda: _is_there(client, topic)):
        return None
    part = TopicPartition(topic, 0)
    first = (await client.list_offsets({part: EARLIEST}))[part].offset
    end = until = (await client.list_offsets({part: LATEST}))[part].offset
    size = LOOK_BACK_RECORDS
    while until > first:
        begin = max(first, end - size)
        found = await _newest(client, part, key.encode(), begin, until)
        if found is not None:
            return found
        until, size = begin, size * LOOK_BACK_GROWTH
    return None


async def _ensure(client: Client, topic: str) -> None:
    made = NewTopic(topic, 1, settings=SETTINGS)
    await client.cluster.retry(lambda: Admin(client).ensure_topic(made))


async def _is_there(client: Client, topic: str) -> bool:
    try:
        await client.topic(topic)
    except Refused as error:
        if error.code is not ErrorCode.unknown_topic_or_partition:
            raise
        return False
    return True


async def _newest(client: Client, part: TopicPartition, key: bytes, begin: int, until: int) -> Any:
    found = None
    while begin < until:
        fetched = (await client.fetch({part: begin}, wait_ms=0))[part]
        view, after = memoryview(fetched.batches), begin
        try:
            for position, header in walk(view):
                after = header.offset_end
                whole = view[position : position + header.size]
                for record in records(whole) if header.count > 0 else ():
                    if record.key == key and begin <= record.offset < until:
                        found = json.loads(record.value or b"")
        except (InvalidBatch, ValueError) as error:
            raise BadAnswer(f"topic {part.topic} has a record that is not ours: {error}") from None
        if after <= begin:
            break  # The rest was compacted.
        begin = after
    return found
