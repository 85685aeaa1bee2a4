"""Locks, what becomes of records, and that what was settled never comes again."""

import asyncio
import errno

import pytest

from entrepot.broker.share_group.share_partition import Acknowledgement, AcknowledgeType
from entrepot.core.errors import InvalidAcknowledgement, InvalidRecordState, StorageError
from tests.unit.broker.share_group.stage import Stage
from tests.unit.log.bed import simulated

ONE, OTHER = object(), object()


@simulated
async def test_each_record_is_one_consumers(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2, 3)
    assert bed.acquire(ONE, 2) == [(range(2), 1)]
    assert bed.acquire(OTHER) == [(range(2, 5), 1)]
    assert bed.acquire(ONE) == []
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2))
    assert (bed.share().ledger.offset_low, bed.share().lag) == (2, 3)


@simulated
async def test_a_release_comes_again_counted(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(4)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.RELEASE, range(1, 2))
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(1), range(2, 3))
    await bed.fill(1)
    assert bed.acquire(OTHER) == [(range(1, 2), 2), (range(4, 5), 1)]


@simulated
async def test_a_lock_ends_with_its_time(bed: Stage) -> None:
    await bed.open("t", share_record_lock_duration_ms="2000")
    await bed.fill(3)
    bed.acquire(ONE)
    await asyncio.sleep(1.9)
    assert bed.acquire(OTHER) == []
    bed.tell(ONE, AcknowledgeType.RENEW, range(1))
    await asyncio.sleep(0.2)
    assert bed.acquire(OTHER) == [(range(1, 3), 2)]
    with pytest.raises(InvalidRecordState):
        bed.tell(ONE, AcknowledgeType.ACCEPT, range(1, 2))
    await asyncio.sleep(2.1)
    assert bed.acquire(OTHER) == [(range(1), 2), (range(1, 3), 3)]


@simulated
async def test_at_the_limit_a_record_is_settled(bed: Stage) -> None:
    await bed.open("t", share_delivery_count_limit="2")
    await bed.fill(2)
    for count in (1, 2):
        assert bed.acquire(ONE) == [(range(2), count)]
        bed.call(bed.share().release, ONE)
    assert bed.acquire(ONE) == []
    assert (bed.share().ledger.offset_low, bed.share().lag) == (2, 0)


@pytest.mark.parametrize(
    ("row", "acks", "error"),
    [
        (range(2, 4), [AcknowledgeType.ACCEPT], InvalidRecordState),  # The second is not its own.
        (range(9), [AcknowledgeType.ACCEPT], InvalidRecordState),
        (range(2**62), [AcknowledgeType.ACCEPT], InvalidRecordState),
        (range(2), [1, 1, 1], InvalidAcknowledgement),
        (range(1), [9], InvalidAcknowledgement),
        (range(1), [], InvalidAcknowledgement),
        (range(2, 1), [1], InvalidAcknowledgement),
    ],
)
@simulated
async def test_what_is_wrong_changes_nothing(
    bed: Stage, row: range, acks: list[int], error: type[Exception]
) -> None:
    await bed.open("t")
    await bed.fill(3)
    await bed.fill(3)
    bed.acquire(ONE, 3)
    bed.acquire(OTHER, 3)
    told = [Acknowledgement(range(1), [AcknowledgeType.ACCEPT])] if row.start else []
    with pytest.raises(error):
        bed.call(
            bed.share().acknowledge, ONE, [*told, Acknowledgement(row, acks)], bed.groups.now()
        )
    assert bed.share().ledger.offset_low == 0
    assert len(bed.share().ledger.leased) == 6


@simulated
async def test_records_are_acknowledged_in_their_order(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(4)
    bed.acquire(ONE)
    with pytest.raises(InvalidAcknowledgement, match="order"):
        bed.tell(ONE, AcknowledgeType.ACCEPT, range(2, 4), range(3))
    row = Acknowledgement(
        range(4),
        [
            AcknowledgeType.ACCEPT,
            AcknowledgeType.RELEASE,
            AcknowledgeType.RELEASE,
            AcknowledgeType.GAP,
        ],
    )
    bed.call(bed.share().acknowledge, ONE, [row], bed.groups.now())
    assert bed.acquire(ONE) == [(range(1, 3), 2)]


@simulated
async def test_renewing_can_be_forbidden(bed: Stage) -> None:
    await bed.open("t", share_renew_acknowledge_enable="false")
    await bed.fill(1)
    bed.acquire(ONE)
    with pytest.raises(InvalidAcknowledgement):
        bed.tell(ONE, AcknowledgeType.RENEW, range(1))


# --- dead letters


@simulated
async def test_what_is_rejected_is_copied_and_then_settled(bed: Stage) -> None:
    await bed.open("t", errors_deadletterqueue_topic_name="dlq.t")
    await bed.fill(3)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.REJECT, range(1, 2))
    assert bed.values("dlq.t") == [b"1"]
    assert not bed.share().ledger.leased.keys() & {1}
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(1), range(2, 3))
    assert bed.share().ledger.offset_low == 3


@simulated
async def test_what_is_delivered_too_often_is_copied(bed: Stage) -> None:
    await bed.open("t", errors_deadletterqueue_topic_name="dlq.t", share_delivery_count_limit="1")
    await bed.fill(2)
    bed.acquire(ONE)
    bed.call(bed.share().release, ONE)
    await bed.do(bed.share().kept())
    assert bed.values("dlq.t") == [b"0", b"1"]
    assert bed.share().lag == 0


@simulated
async def test_a_letter_that_cannot_be_written_is_written_later(bed: Stage) -> None:
    """Until then nobody gets the record, and nobody waits for an answer."""
    await bed.open("t", errors_deadletterqueue_topic_name="dlq.t")
    await bed.create("dlq.t", 1, cleanup_policy="compact")
    await bed.fill(1)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.REJECT, range(1))
    assert bed.acquire(OTHER) == []
    assert bed.share().lag == 1
    with pytest.raises(InvalidRecordState):
        bed.tell(ONE, AcknowledgeType.ACCEPT, range(1))
    await bed.do(bed.broker.alter_settings(bed.broker.topic("dlq.t"), {}))
    await asyncio.sleep(5)
    assert bed.values("dlq.t") == [b"0"]
    assert bed.share().lag == 0


@simulated
async def test_without_its_copy_a_dead_record_comes_again(bed: Stage) -> None:
    await bed.open("t", errors_deadletterqueue_topic_name="dlq.t")
    await bed.fill(1)
    bed.acquire(ONE)
    bed.disk.fail_next("write", errno.ENOSPC, "partitions/dlq.t*")
    await bed.settle(ONE, AcknowledgeType.REJECT, range(1))
    await bed.restart()
    assert bed.acquire(ONE) == [(range(1), 1)]


# --- what is gone


@simulated
async def test_what_the_log_lost_is_passed_over(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2, 2, 2)
    bed.acquire(ONE, 2)
    await bed.do(bed.broker.delete_records(bed.served_partition("t"), 3))
    assert bed.acquire(OTHER) == [(range(3, 6), 1)]
    bed.tell(ONE, AcknowledgeType.RELEASE, range(2))  # Nobody need care any more.
    await bed.settle(OTHER, AcknowledgeType.ACCEPT, range(3, 6))
    assert bed.acquire(OTHER) == []
    assert (bed.share().ledger.offset_low, bed.share().lag) == (6, 0)


# --- permanence


@simulated
async def test_what_was_settled_survives_and_locks_do_not(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(10)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2), range(4, 6))
    await bed.restart()
    assert bed.acquire(OTHER) == [(range(2, 4), 1), (range(6, 10), 1)]


@simulated
async def test_delivery_counts_survive(bed: Stage) -> None:
    await bed.open("t", share_delivery_count_limit="3")
    await bed.fill(6)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.RELEASE, range(1, 4))
    await bed.restart()
    assert bed.acquire(ONE) == [(range(1), 1), (range(1, 4), 2), (range(4, 6), 1)]
    await bed.settle(ONE, AcknowledgeType.RELEASE, range(2, 4))
    await bed.restart()
    assert bed.acquire(ONE) == [
        (range(1), 1),
        (range(1, 2), 2),
        (range(2, 4), 3),
        (range(4, 6), 1),
    ]
    await bed.settle(ONE, AcknowledgeType.RELEASE, range(2, 3))  # Three times: no more.
    await bed.restart()
    assert bed.acquire(ONE) == [
        (range(1), 1),
        (range(1, 2), 2),
        (range(3, 4), 3),
        (range(4, 6), 1),
    ]


@simulated
async def test_an_acknowledgement_waits_for_the_disk(bed: Stage, seed: int) -> None:
    """What was told to be kept is never delivered again, whenever the power fails."""
    await bed.open("t")
    await bed.fill(100)
    told: list[int] = []

    async def consume() -> None:
        while found := bed.acquire(ONE, 7, is_strict=True):
            for offsets, _ in found:
                bed.share().acknowledge(
                    ONE, [Acknowledgement(offsets, [AcknowledgeType.ACCEPT])], bed.groups.now()
                )
                await bed.share().kept()
                told.extend(offsets)

    working = asyncio.ensure_future(bed.do(consume()))
    await bed.sleep_up_to(0.05)
    bed.crash()
    working.cancel()
    await bed.start()
    again = [offset for offsets, _ in bed.acquire(OTHER) for offset in offsets]
    assert not set(told) & set(again)
    assert set(again) >= set(range(100)) - set(told) - set(range(len(told), len(told) + 7))


@simulated
async def test_what_cannot_be_kept_is_said_and_tried_again(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2)
    bed.acquire(ONE)
    bed.disk.fail_next("write", errno.ENOSPC, "partitions/__share_group_state*")
    with pytest.raises(StorageError):
        await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2))
    await asyncio.sleep(2)
    await bed.restart()
    assert bed.acquire(ONE) == []


@simulated
async def test_the_past_can_be_had_again(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(5)
    bed.acquire(ONE)
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(5))
    bed.call(bed.share().rewind, 3)
    await bed.do(bed.share().kept())
    await bed.restart()
    assert bed.acquire(ONE) == [(range(3, 5), 1)]


@simulated
async def test_who_waits_is_woken(bed: Stage) -> None:
    await bed.open("t")
    woken: list[str] = []
    share = bed.share()
    share.listen("me", lambda: woken.append("!"))
    await bed.fill(1)
    assert woken
    bed.acquire(ONE)
    woken.clear()
    bed.call(share.release, ONE)
    assert woken
    share.unlisten("me")
    woken.clear()
    await bed.fill(1)
    assert not woken


@simulated
async def test_locks_that_are_over_are_forgotten(bed: Stage) -> None:
    await bed.open("t")
    for _ in range(300):
        await bed.fill(1)
        (found,) = bed.acquire(ONE)
        bed.tell(ONE, AcknowledgeType.ACCEPT, found[0])
    assert len(bed.share()._locks) < 100


@simulated
async def test_a_rewind_while_dead_letters_are_copied(bed: Stage) -> None:
    await bed.open("t", errors_deadletterqueue_topic_name="dlq.t")
    await bed.create("dlq.t", 1)
    await bed.fill(4)
    bed.acquire(ONE)
    bed.tell(ONE, AcknowledgeType.REJECT, range(2))
    await asyncio.sleep(0)  # Copying has begun.
    bed.share().rewind(0)
    bed.acquire(OTHER)
    bed.tell(OTHER, AcknowledgeType.REJECT, range(3, 4))
    await asyncio.sleep(5)
    assert [*bed.share().ledger.leased] == [0, 1, 2]
