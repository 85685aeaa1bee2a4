"""The cluster's page: nodes, leaders, and what lacks replicas."""

from dataclasses import dataclass, field

from entrepot.broker.replication import NOBODY, Holders, Peer
from entrepot.core.names import PartitionId
from tests.unit.gateway.http.console.test_search_and_facts import let_describe
from tests.unit.gateway.http.management.house import House, in_house


@dataclass
class FakeCluster:
    """Says who holds what, and notes what is to move."""

    held: dict[PartitionId, Holders] = field(default_factory=dict)
    moved: dict[PartitionId, list[int]] = field(default_factory=dict)
    controller: int = 2

    def peers(self) -> list[Peer]:
        return [Peer(1, "one", 9092, "r1"), Peer(2, "two", 9092, "")]

    def holders(self, partition: PartitionId) -> Holders | None:
        return self.held.get(partition)

    async def reassign(self, partition: PartitionId, replicas: list[int]) -> None:
        self.moved[partition] = replicas


@in_house(asks=True)
async def test_a_node_is_drained(house: House) -> None:
    await house.add_user("max")
    await let_describe(house, "max")
    await house.broker.create_topic("t", 3)
    topic = house.broker.topic("t")
    held = (Holders(1, 0, (1,), (1,)), Holders(2, 0, (2,), (2,)), Holders(2, 0, (3,), (3,), (2,)))
    numbered = {PartitionId(topic.id, number): each for number, each in enumerate(held)}
    cluster = FakeCluster(numbered)
    house.broker.cluster = cluster  # type: ignore[assignment]
    path = "/api/console/cluster/drain"
    assert (await house.call("POST", path, {"node": 2}, user="max"))[0] == 403
    assert await house.call("POST", path, {"node": 2, "preview": True}) == (200, {"partitions": 2})
    assert cluster.moved == {}
    assert await house.call("POST", path, {"node": 2}) == (200, {"partitions": 2})
    # Both go to node 1, also the one that was on its way to 2.
    assert cluster.moved == {PartitionId(topic.id, 1): [1], PartitionId(topic.id, 2): [1]}
    numbered[PartitionId(topic.id, 0)] = Holders(1, 0, (1, 2), (1, 2))
    status, said = await house.call("POST", path, {"node": 2})
    assert (status, said["reason"]) == (400, "t:0 has 2 copies, and there are only 1 other nodes")
    house.broker.cluster = None


@in_house(asks=True)
async def test_what_lacks_something_is_counted(house: House) -> None:
    assert (await house.call("GET", "/api/console/cluster"))[0] == 404
    await house.add_user("max")
    await house.broker.create_topic("t", 3)
    topic = house.broker.topic("t")
    held = (
        Holders(1, 0, (1, 2), (1, 2)),
        Holders(2, 4, (2, 3), (2,)),
        Holders(NOBODY, 1, (3,), (3,)),
    )
    numbered = {PartitionId(topic.id, number): each for number, each in enumerate(held)}
    house.broker.cluster = FakeCluster(numbered)  # type: ignore[assignment]
    found = await house.get("/api/console/cluster")
    assert found["partitions"] == 3
    assert found["problems"] == {"under-replicated": 1, "offline": 1}
    shown = ("id", "address", "controller", "here", "leads", "replicas", "not_in_sync")
    assert [[each[name] for name in shown] for each in found["nodes"]] == [
        [1, "one:9092", False, True, 1, 1, 0],
        [2, "two:9092", True, False, 1, 2, 0],
        [3, None, False, False, 0, 2, 1],
    ]
    rows = (await house.get("/api/console/cluster/partitions?problems=true"))["items"]
    assert [(each["partition"], each["leader"], each["problem"]) for each in rows] == [
        (1, 2, "under-replicated"),
        (2, NOBODY, "offline"),
    ]
    assert len((await house.get("/api/console/cluster/partitions?sort=epoch"))["items"]) == 3
    assert (await house.call("GET", "/api/console/cluster", user="max"))[0] == 403
    house.broker.cluster = None
    await let_describe(house, "max")
    assert (await house.call("GET", "/api/console/cluster", user="max"))[0] == 404
