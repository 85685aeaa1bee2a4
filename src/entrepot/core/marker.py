"""A transaction's marker, as a control batch: one record that says commit or abort.

A marker is written to every partition the transaction wrote to. Its batch carries the
producer's id and epoch; its one record has a key and a value of two numbers each:

    key     version 0 (2 bytes), type (2 bytes): 0 abort, 1 commit
    value   version 0 (2 bytes), the coordinator's epoch (4 bytes)

Control records of other types are Kafka's internals and mean nothing here.
"""

from struct import Struct
from typing import NamedTuple

from entrepot.core import batch
from entrepot.core.ports import Buffer
from entrepot.core.record import Record

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0
_ABORT, _COMMIT = 0, 1


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int = 0


def build_marker(marker: Marker, now_ms: int) -> bytes:
    """Build the control batch of a marker."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.committed else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return batch.build(
        [Record(key, value)],
        now_ms=now_ms,
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transactional=True,
        control=True,
    )


def read_marker(control: Buffer) -> Marker | None:
    """Return the marker in a control batch; None when it is another kind of control record."""
    header = batch.read_header(control)
    for record in batch.records(control):
        if record.key is None or len(record.key) < _KEY.size:
            return None
        _, kind = _KEY.unpack_from(record.key)
        if kind not in (_ABORT, _COMMIT):
            return None
        known = record.value is not None and len(record.value) >= _VALUE.size
        epoch = _VALUE.unpack_from(record.value)[1] if known and record.value else 0
        return Marker(header.producer_id, header.producer_epoch, kind == _COMMIT, epoch)
    return None
