"""The broker as a whole, and the application that can be stopped, started and emptied."""

from entrepot.broker.replication import Holders
from entrepot.core.faults import Faults
from entrepot.core.names import PartitionId
from tests.unit.gateway.http.console.test_cluster import FakeCluster
from tests.unit.gateway.http.management.house import FakeSession, House, in_house


@in_house()
async def test_overview(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a")
    house.broker.sessions.add(FakeSession(5))
    found = await house.get("/api/overview")
    assert found["queue_totals"] == {
        "messages": 1,
        "messages_ready": 1,
        "messages_unacknowledged": 0,
    }
    totals = {"connections": 1, "channels": 1, "consumers": 1, "exchanges": 7, "queues": 1}
    assert found["object_totals"] == totals
    assert (found["product_name"], found["product_version"]) == ("entrepot", "1.2.3")
    assert found["listeners"][0]["port"] == 1
    assert found["internal_errors"] == 0
    house.broker.faults = Faults()
    house.broker.faults.caught("a timer", LookupError("ours"))
    assert (await house.get("/api/overview"))["internal_errors"] == 1
    for name in ("direct", "x-delayed-message"):
        assert {"name": name, "description": "", "enabled": True} in found["exchange_types"]


@in_house()
async def test_small_things(house: House) -> None:
    assert await house.get("/api/cluster-name") == {"name": "entrepot@here"}
    (node,) = await house.get("/api/nodes")
    assert (node["name"], node["running"]) == ("entrepot@here", True)
    assert await house.get("/api/nodes/entrepot@here") == node
    assert (await house.call("GET", "/api/nodes/other"))[0] == 404
    for path in ("aliveness-test/%2F", "healthchecks/node", "health/checks/alarms"):
        assert await house.get(f"/api/{path}") == {"status": "ok"}
    assert (await house.call("GET", "/api/aliveness-test/nosuch"))[0] == 404
    assert await house.get("/api/policies") == []


@in_house()
async def test_stopped_and_started(house: House) -> None:
    before, during, after = FakeSession(1), FakeSession(2), FakeSession(3)
    house.broker.sessions.add(before)
    assert await house.get("/api/application") == {"running": True}
    assert await house.call("PUT", "/api/application", {"running": False}) == (204, None)
    house.broker.sessions.add(during)
    assert (before.closed, during.closed is None) == (during.closed, False)
    assert await house.get("/api/application") == {"running": False}
    assert (await house.call("GET", "/api/healthchecks/node"))[0] == 503
    assert await house.call("PUT", "/api/application", {"running": True}) == (204, None)
    house.broker.sessions.add(after)
    assert after.closed is None
    assert (await house.call("PUT", "/api/application", {}))[0] == 400


@in_house()
async def test_reset_when_stopped(house: House) -> None:
    await house.declare("work")
    await house.broker.create_topic("events")
    await house.call("PUT", "/api/vhosts/v1")
    await house.call("PUT", "/api/exchanges/%2F/ex", {"type": "topic"})
    await house.call("POST", "/api/bindings/%2F/e/amq.topic/q/events", {})
    status, said = await house.call("DELETE", "/api/application/contents")
    assert (status, "stop it" in said["reason"]) == (400, True)
    await house.call("PUT", "/api/application", {"running": False})
    assert await house.call("DELETE", "/api/application/contents") == (204, None)
    assert [row["name"] for row in await house.get("/api/vhosts")] == ["/"]
    assert [row["name"] for row in await house.get("/api/queues")] == ["events"]
    assert len(await house.get("/api/exchanges")) == 7
    assert [row["source"] for row in await house.get("/api/bindings")] == [""]


@in_house()
async def test_nodes_of_a_cluster(house: House) -> None:
    await house.broker.create_topic("t", 2)
    topic = house.broker.topic("t")
    held = (Holders(1, 0, (1, 2), (1, 2)), Holders(2, 4, (2, 3), (2,)))
    numbered = {PartitionId(topic.id, number): each for number, each in enumerate(held)}
    house.broker.cluster = FakeCluster(numbered)  # type: ignore[assignment]
    nodes = await house.get("/api/nodes")
    assert [(each["name"], each["running"]) for each in nodes] == [
        ("entrepot@here", True),
        ("entrepot-2@two", True),
        ("entrepot-3", False),
    ]
    assert (await house.get("/api/nodes/entrepot-3"))["running"] is False
    house.broker.cluster = None
