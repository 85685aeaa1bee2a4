"""The coordinator of a node alone: what is left of it after a crash."""

import asyncio
from errno import EIO

import pytest

from entrepot.cluster.local_coordinator import LocalCoordinator
from entrepot.core.coordinator import Expected, Put
from entrepot.core.errors import CoordinatorUnavailable, Corruption, RevisionCompacted
from tests.unit.log.bed import Life, simulated


@simulated
async def test_what_was_answered_survives_a_power_failure(bed: Life, seed: int) -> None:
    answered = 0

    async def count() -> None:
        nonlocal answered
        coordinator = LocalCoordinator(bed.disk)
        revision = 0
        for number in range(1, 100):
            change = Put("counter", str(number).encode())
            made = await coordinator.commit([Expected("counter", revision)], [change])
            assert made is not None
            answered, revision = number, made

    await bed.begin(asyncio.sleep(0))
    bed.call(asyncio.ensure_future, count())
    await bed.sleep_up_to(1.0)
    bed.crash()
    found = await LocalCoordinator(bed.disk).get("counter")
    number = 0 if found is None else int(found.value)
    assert answered <= number <= answered + 1
    assert found is None or found.revision >= number


@simulated
async def test_leases_end_with_the_process_and_are_not_given_again(bed: Life) -> None:
    coordinator = LocalCoordinator(bed.disk)
    lease = await coordinator.grant(60)
    await coordinator.commit([], [Put("kept", b""), Put("held", b"", lease.id)])
    before = (await coordinator.range("")).revision
    bed.crash()
    coordinator = LocalCoordinator(bed.disk)
    found = await coordinator.range("")
    assert [each.key for each in found.entries] == ["kept"]
    assert found.revision > before
    assert (await coordinator.grant(60)).id > lease.id
    with pytest.raises(RevisionCompacted):
        await coordinator.watch("", before).next()


@simulated
async def test_after_a_failed_write_nothing_is_known(bed: Life) -> None:
    coordinator = LocalCoordinator(bed.disk)
    await coordinator.commit([], [Put("a", b"1")])
    watching = asyncio.ensure_future(coordinator.watch("", 3).next())
    bed.disk.fail_next("sync", EIO, "coordinator.checkpoint*")
    with pytest.raises(CoordinatorUnavailable, match=r"coordinator\.checkpoint"):
        await coordinator.commit([], [Put("a", b"2")])
    for call in (coordinator.get("a"), coordinator.grant(5), watching):
        with pytest.raises(CoordinatorUnavailable):
            await call
    bed.kill()
    found = await LocalCoordinator(bed.disk).get("a")
    assert found is not None


@simulated
async def test_a_damaged_file_is_refused(bed: Life) -> None:
    await LocalCoordinator(bed.disk).commit([], [Put("a", b"1")])
    bed.flip("coordinator.checkpoint", 9)
    with pytest.raises(Corruption, match="damaged"):
        LocalCoordinator(bed.disk)


@simulated
async def test_who_is_cancelled_leaves_no_half_write(bed: Life) -> None:
    coordinator = LocalCoordinator(bed.disk)
    asked = asyncio.ensure_future(coordinator.commit([], [Put("a", b"1")]))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait([asked])
    assert await coordinator.commit([], [Put("b", b"2")]) is not None
    assert [each.key for each in (await coordinator.range("")).entries] == ["a", "b"]
