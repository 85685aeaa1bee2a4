from entrepot.core import batch
from entrepot.core.marker import Marker, build_marker, read_marker
from entrepot.core.record import Record


def test_the_bytes_are_kafkas() -> None:
    for committed, kind in ((False, "0000"), (True, "0001")):
        data = build_marker(Marker(7, 3, committed, coordinator_epoch=5), 1_000)
        header = batch.check(data)
        assert header.is_control
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch) == (7, 3)
        assert (header.sequence_first, header.count) == (-1, 1)
        (record,) = batch.records(data)
        assert record.key == bytes.fromhex("0000" + kind)
        assert record.value == bytes.fromhex("0000 00000005")


def test_what_is_built_is_read_back() -> None:
    for committed in (False, True):
        marker = Marker(7, 3, committed, coordinator_epoch=5)
        assert read_marker(build_marker(marker, 1_000)) == marker


def test_other_control_records_say_nothing() -> None:
    for key in (bytes.fromhex("0000 0002"), b"\0", None):
        data = batch.build([Record(key, b"")], now_ms=0, producer_id=7, control=True)
        assert read_marker(data) is None


def test_a_marker_without_a_value_is_from_the_first_coordinator() -> None:
    data = batch.build([Record(bytes.fromhex("0000 0001"), None)], now_ms=0, control=True)
    assert read_marker(data) == Marker(-1, -1, committed=True, coordinator_epoch=0)
