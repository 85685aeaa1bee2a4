"""What a broker has answered is there after any power failure, with its names in any order."""

from collections.abc import Sequence

import pytest

from entrepot.core.ports import File
from entrepot.log.commit import Committer
from entrepot.log.partition import Partition
from entrepot.log.segment import Segment
from sim.disk import SimDisk, SyncBegun
from tests.crash.power_loss import play


def test_a_few_power_failures() -> None:
    found = play(rounds=4, first_seed=1_000, seconds=0.4)
    assert found.lost == []
    assert found.acknowledged > 200
    assert found.journaled > 5


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_power_failures() -> None:
    found = play(rounds=200)
    assert found.lost == []
    assert found.acknowledged > 50_000


def test_a_disk_that_only_pretends_to_sync_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def pretend(self: SimDisk, begun: SyncBegun) -> list[OSError | None]:
        return [None] * (len(begun.files) + len(begun.directories))

    monkeypatch.setattr(SimDisk, "end_sync", pretend)
    assert play(rounds=4, first_seed=1_000, seconds=0.4).lost


@pytest.mark.slow
def test_names_that_are_not_synced_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    sync_files = Committer._sync_files

    async def nameless(
        self: Committer,
        segments: Sequence[tuple[Partition, Segment]],
        named: Sequence[Partition] = (),
        seals: Sequence[File] = (),
    ) -> None:
        await sync_files(self, segments, (), seals)

    monkeypatch.setattr(Committer, "_sync_files", nameless)
    assert any(play(rounds=10, first_seed=first).lost for first in range(0, 80, 10))
