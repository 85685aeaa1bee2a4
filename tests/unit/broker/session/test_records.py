"""Sessions as records: what is written is read, and what is deleted is gone."""

from entrepot.broker.session.ports import RetainedWanted, Subscription, Will
from entrepot.broker.session.records import (
    SessionFacts,
    StoredSessions,
    deletions,
    released_record,
    serial_record,
    session_deleted,
    session_record,
    subscription_deleted,
    subscription_record,
    will_deleted,
    will_record,
)
from entrepot.core.neutral import Formats
from entrepot.core.record import Record
from tests.unit.broker.session.bed import on

NUMBER = 2**64 - 2
FACTS = SessionFacts("/", "client", "user", 5_000, 17)
WANTED = Subscription("a/+/ü", 2, True, True, RetainedWanted.IF_NEW, 268_435_455)
WILL = Will(on("w/x", b"last words", ttl_ms=5), True, 7_000)


def _folded(*records: Record) -> StoredSessions:
    stored = StoredSessions(Formats())
    for record in records:
        stored.apply(record)
    return stored


def test_what_is_written_is_read() -> None:
    records = [
        session_record(NUMBER, FACTS),
        subscription_record(NUMBER, WANTED),
        serial_record(NUMBER, 65_535, 2**32 - 1),
        released_record(NUMBER, 2**40),
        will_record(NUMBER, WILL),
    ]
    found = _folded(*records).by_number[NUMBER]
    assert found.facts == FACTS
    assert found.subscriptions == {WANTED.filter: WANTED}
    assert found.serials == {65_535: 2**32 - 1}
    assert found.released == {2**40: None}
    assert found.will == WILL
    assert not found.is_empty
    again = _folded(*records, *found.deletions()).by_number[NUMBER]
    assert again.is_empty


def test_deleting_one_by_one() -> None:
    found = _folded(
        session_record(1, SessionFacts("/", "c", "u")),
        subscription_record(1, WANTED),
        subscription_record(1, WANTED._replace(filter="b")),
        released_record(1, 3),
        will_record(1, WILL),
        subscription_deleted(1, "b"),
        released_record(1, 3, is_over=True),
        will_deleted(1),
    ).by_number[1]
    assert found.facts == SessionFacts("/", "c", "u", None, None)
    assert [*found.subscriptions] == [WANTED.filter]
    assert (found.released, found.will) == ({}, None)
    gone = _folded(session_record(1, SessionFacts("/", "c", "u")), session_deleted(1))
    assert gone.by_number[1].is_empty
    assert len(deletions(1, ["a"], [1, 2], [3], True)) == 5


def test_records_of_other_kinds_are_passed_over() -> None:
    found = _folded(Record(b"", b"x"), Record(b"\x63" + bytes(8), b"x"))
    assert all(each.is_empty for each in found.by_number.values())


def test_the_bytes() -> None:
    """Persisted: they never change."""
    record = session_record(1, SessionFacts("/", "c", "u", 5))
    assert record.key == bytes.fromhex("010000000000000001")
    assert record.value == b"\x84\xa5vhost\xa1/\xa9client_id\xa1c\xa4user\xa1u\xa9expiry_ms\x05"
    record = subscription_record(1, Subscription("a/#", 1, False, True, 2, 7))
    assert record.key == bytes.fromhex("020000000000000001") + b"a/#"
    assert record.value == bytes.fromhex("9501c2c30207")
    record = serial_record(1, 2, 3)
    assert record.key == bytes.fromhex("0300000000000000010002")
    assert record.value == bytes.fromhex("00000003")
    record = released_record(1, 2)
    assert record.key == bytes.fromhex("0400000000000000010000000000000002")
    assert record.value == b""
