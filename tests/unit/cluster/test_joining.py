"""Who may join a cluster, and what the others are told."""

import asyncio
from typing import Any

import msgspec
import pytest

from entrepot.cluster.joining import CLUSTER, CannotJoin, Identity, forget, join, read_identity
from entrepot.core.coordinator import Put
from sim.coordinator import Climate, SimService
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from tests.unit.log.bed import Life, simulated

SECRET = "a secret of the cluster"


class Nodes:
    """Data directories, and the one coordinator."""

    def __init__(self, bed: Life, name: str = "nodes", **climate: float) -> None:
        self._chance = bed.loop.random(name)
        self.service = SimService(self._chance, Climate(**climate))
        self.said: list[str] = []

    def disk(self) -> SimDisk:
        return SimDisk(self._chance)

    async def join(self, disk: SimDisk, node: int, **given: Any) -> Identity:
        options = {"secret": "", "is_empty": True, **given}
        return await join(
            self.service.door(), disk, SimEntropy(self._chance), node=node, tell=self.said.append,
            **options,
        )  # fmt: skip


@simulated
async def test_the_first_founds_it_and_others_join(bed: Life, seed: int) -> None:
    nodes = Nodes(bed, lost_answer_chance=0.2)
    disks = [nodes.disk() for _ in range(3)]
    found = await asyncio.gather(*(nodes.join(disk, n) for n, disk in enumerate(disks)))
    assert len({each.cluster for each in found}) == 1
    assert len({each.directory for each in found}) == 3
    for number, disk in enumerate(disks):
        again = disk.crash()
        assert await nodes.join(again, number, is_empty=False) == found[number]


@simulated
async def test_who_does_not_fit_is_told_why(bed: Life) -> None:
    nodes, others = Nodes(bed), Nodes(bed, "others")
    disk = nodes.disk()
    ours = await nodes.join(disk, 1)
    theirs = await others.join(others.disk(), 1)

    async def refused(of: Nodes, disk: SimDisk, node: int, **given: Any) -> str:
        with pytest.raises(CannotJoin) as caught:
            await of.join(disk, node, **given)
        return str(caught.value)

    assert "those of node 1, and this is to be node 2" in await refused(nodes, disk, 2)
    said = await refused(others, disk, 1)
    assert ours.cluster.hex() in said
    assert theirs.cluster.hex() in said
    assert "knows no cluster" in await refused(Nodes(bed), disk, 1)
    assert "broker alone" in await refused(nodes, nodes.disk(), 2, is_empty=False)
    said = await refused(nodes, nodes.disk(), 1)
    assert "the number 1 is taken" in said
    assert "entrepot cluster forget 1" in said
    await nodes.service.door().commit(
        [], [Put(CLUSTER, msgspec.json.encode({"id": "00" * 16, "format": 2, "proof": ""}))]
    )
    assert "needs a later release" in await refused(nodes, nodes.disk(), 3)


@simulated
async def test_a_lost_directory_is_forgotten_and_its_number_given_again(bed: Life) -> None:
    nodes = Nodes(bed)
    lost, new = nodes.disk(), nodes.disk()
    await nodes.join(lost, 1)
    door = nodes.service.door()
    assert await forget(door, 1)
    assert not await forget(door, 2)
    await nodes.join(new, 1)
    with pytest.raises(CannotJoin, match="is taken"):
        await nodes.join(lost, 1, is_empty=False)


@pytest.mark.parametrize(
    ("theirs", "ours", "why"),
    [
        (SECRET, "", "the cluster has a secret, and this node has none"),
        ("", SECRET, "this node has a secret"),
        (SECRET, "another", "this node's secret is not the cluster's"),
    ],
)
def test_a_node_that_nobody_invited(theirs: str, ours: str, why: str) -> None:
    @simulated
    async def story(bed: Life) -> None:
        nodes, stranger = Nodes(bed), Nodes(bed).disk()
        await nodes.join(nodes.disk(), 1, secret=theirs)
        with pytest.raises(CannotJoin, match=why):
            await nodes.join(stranger, 2, secret=ours)
        assert read_identity(stranger) is None
        await nodes.join(stranger, 2, secret=theirs)
        entries = await nodes.service.door().range("")
        assert not any(SECRET.encode() in entry.value for entry in entries.entries)

    story()


@simulated
async def test_a_coordinator_that_is_away_is_waited_for(bed: Life) -> None:
    nodes = Nodes(bed, silent_seconds=1.0)
    nodes.service.is_away = True
    joining = asyncio.ensure_future(nodes.join(nodes.disk(), 1))
    await asyncio.sleep(70)
    assert not joining.done()
    assert 2 <= len(nodes.said) <= 5
    assert nodes.said[0].startswith("waiting for the coordinator: ")
    nodes.service.is_away = False
    assert (await joining).node == 1


@simulated
async def test_an_identity_that_is_damaged_refuses_the_start(bed: Life) -> None:
    nodes, disk = Nodes(bed), Nodes(bed).disk()
    await nodes.join(disk, 1)
    disk.open("identity.checkpoint").write(5, [b"x"])
    with pytest.raises(CannotJoin, match="is damaged"):
        await nodes.join(disk, 1)
