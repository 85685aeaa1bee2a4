"""The newest committed position, whatever else is in the log."""

from entrepot.connect.offsets import _Newest, record_of
from entrepot.core.batch import build
from entrepot.core.marker import Marker, build_marker
from entrepot.core.record import Record


def said(producer: int, name: str, position: object) -> bytes:
    return build(
        [record_of(name, position)],
        now_ms=0,
        producer_id=producer,
        producer_epoch=0,
        sequence_first=0,
        transactional=True,
    )


def ended(producer: int, *, commit: bool) -> bytes:
    return build_marker(Marker(producer, 0, commit), 0)


def newest(*batches: bytes, name: str = "a") -> object:
    found = _Newest(name.encode())
    found.read(b"".join(batches), 0)
    return found.position


def test_nothing_was_said() -> None:
    assert newest() is None
    assert newest(said(1, "b", 1), ended(1, commit=True)) is None


def test_the_last_committed_one_counts() -> None:
    log = [
        said(1, "a", {"n": 1}), ended(1, commit=True),
        said(1, "a", {"n": 2}), ended(1, commit=True),
        said(1, "a", {"n": 3}), ended(1, commit=False),
    ]  # fmt: skip
    assert newest(*log) == {"n": 2}
    assert newest(*log, said(1, "a", {"n": 4})) == {"n": 2}


def test_somebody_elses_open_transaction_hides_nothing() -> None:
    log = [said(2, "b", 7), said(1, "a", 1), ended(1, commit=True)]
    assert newest(*log) == 1
    assert newest(*log, ended(2, commit=True), name="b") == 7


def test_a_tombstone_of_somebody_else_is_passed_over() -> None:
    assert newest(build([Record(b"b", None)], now_ms=0)) is None
