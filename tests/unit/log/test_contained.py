"""Our own mistakes while a commit is told or made: they reach no further than they must."""

import asyncio
from typing import Any

import pytest

from entrepot.core.errors import StorageError
from entrepot.core.faults import Faults
from tests.unit.log.bed import Bed, make, simulated


def contained(bed: Bed, *names: str) -> Faults:
    faults = Faults()
    bed.log._faults = bed.log.committer._faults = faults
    for name in names:
        bed[name].faults = faults
    return faults


@simulated
async def test_one_that_fails_keeps_nobody_else_from_being_told(bed: Bed) -> None:
    await bed.start("one", "two")
    faults = contained(bed, "one", "two")
    told: list[str] = []

    def fail(*_: object) -> None:
        raise RuntimeError("ours")

    bed["one"].listen("failing", fail)
    bed["one"].listen("well", lambda: told.append("listener"))
    for name in ("one", "two"):
        bed.append(name, make(b"a"))
        bed[name].when_committed(1, fail)
        bed[name].when_committed(1, lambda error, name=name: told.append(f"{name} {error}"))  # type: ignore[misc]
    await bed.committed()
    assert sorted(told) == ["listener", "one None", "two None"]
    assert faults.count == 3
    bed["two"].when_committed(2, fail)
    bed["two"].when_committed(2, lambda error: told.append(str(error)))
    bed["two"].stop("gone")
    assert told[-1] == "gone"
    await bed.write("one", b"b")
    assert bed.values("one") == [b"a", b"b"]


@pytest.mark.pure
@simulated
async def test_a_commit_that_fails_stops_its_partitions_and_the_next_goes_on(
    bed: Bed, monkeypatch: Any
) -> None:
    await bed.start("one", "two")
    faults = contained(bed, "one", "two")
    told: list[str] = []
    monkeypatch.setattr(bed["one"], "synced", lambda mark: {}["ours"])
    bed.append("one", make(b"a"))
    bed["one"].when_committed(1, lambda error: told.append(str(error)))
    await bed.committed()
    assert faults.count == 1
    assert "internal error in a commit" in told[0]
    with pytest.raises(StorageError, match="internal error in a commit"):
        bed.append("one", make(b"b"))
    await bed.write("two", b"a")
    assert bed.values("two") == [b"a"]
    await bed.stop()
    await bed.start("one", "two")
    assert bed.values("one") == [b"a"]


@pytest.mark.pure
@simulated
async def test_housekeeping_goes_on(bed: Bed, monkeypatch: Any) -> None:
    await bed.start("one", "two")
    faults = contained(bed, "one", "two")
    await bed.write("one", b"a")
    await bed.write("two", b"a")
    monkeypatch.setattr(bed["one"], "expire", lambda *_: {}["ours"])
    expired: list[int] = []
    monkeypatch.setattr(bed["two"], "expire", lambda now_ms, _: expired.append(now_ms))
    await asyncio.sleep(100)
    assert len(expired) > 1
    assert bed["one"].stopped is not None
    assert bed["two"].stopped is None
    assert faults.count >= 1
    tried: list[object] = []
    cleaned: list[object] = []
    monkeypatch.setattr(bed.log.cleaner, "is_due", lambda partition: True)

    async def clean(partition: object) -> None:
        tried.append(partition)
        assert partition is not bed["one"], "ours"
        cleaned.append(partition)

    monkeypatch.setattr(bed.log.cleaner, "clean", clean)
    await asyncio.sleep(10)
    assert tried.count(bed["one"]) == 1
    assert len(cleaned) > 1
    monkeypatch.setattr(bed.log, "_write_recovery_checkpoint", lambda: {}["ours"])
    count = faults.count
    await asyncio.sleep(100)
    assert faults.count > count
