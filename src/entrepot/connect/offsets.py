"""Where each source goes on: the newest committed record of its name in a compacted topic.

    key     the connector's name
    value   {"position": …}, in the source's own words

All connectors share one partition, each in transactions of its own. So a reader of
committed records would wait here behind anybody's open transaction, and might not see
its own last word. This one reads everything and heeds the markers itself: after the
source's transactional id was taken, each of its transactions has a marker in the log.
"""

import json

from entrepot.client.admin import NewTopic
from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.errors import BadAnswer
from entrepot.connect.interface import Position
from entrepot.core.batch import records, walk
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import MIB
from entrepot.core.marker import read_marker
from entrepot.core.ports import Buffer
from entrepot.core.record import Record

TOPIC = "entrepot-connect-offsets"
PART = TopicPartition(TOPIC, 0)
# Small segments: the newest one is never compacted.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * MIB)}
NEW_TOPIC = NewTopic(TOPIC, 1, settings=SETTINGS)


def record_of(name: str, position: Position) -> Record:
    return Record(name.encode(), json.dumps({"position": position}).encode())


async def latest(client: Client, name: str) -> Position | None:
    """To be asked by who holds the source's transactional id."""
    begin = (await client.list_offsets({PART: EARLIEST}))[PART].offset
    end = (await client.list_offsets({PART: LATEST}))[PART].offset
    newest = _Newest(name.encode())
    while begin < end:
        fetched = (await client.fetch({PART: begin}, wait_ms=0))[PART]
        try:
            after = newest.read(fetched.batches, begin)
        except (InvalidBatch, ValueError, KeyError, TypeError) as error:
            raise BadAnswer(f"topic {TOPIC} has a record that is not ours: {error}") from None
        if after <= begin:
            break  # The rest was compacted.
        begin = after
    return newest.position


class _Newest:
    """The last position whose transaction was committed."""

    def __init__(self, key: bytes) -> None:
        self.position: Position | None = None
        self._key = key
        self._open: dict[int, Position] = {}  # By producer: what its marker decides on.

    def read(self, batches: Buffer, begin: int) -> int:
        """Take note of them; returns the offset after the last."""
        view, after = memoryview(batches), begin
        for place, header in walk(view):
            after = header.offset_end
            whole = view[place : place + header.size]
            if header.count <= 0:
                continue
            if header.is_control:
                self._end(whole)
                continue
            for record in records(whole):
                if record.key == self._key:
                    self._open[header.producer_id] = json.loads(record.value or b"")["position"]
        return after

    def _end(self, control: memoryview) -> None:
        marker = read_marker(control)
        if marker is not None and marker.producer_id in self._open:
            position = self._open.pop(marker.producer_id)
            if marker.committed:
                self.position = position
