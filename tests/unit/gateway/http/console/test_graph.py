"""What leads where, as edges."""

from typing import Any

from tests.unit.gateway.http.console.test_routing import bind
from tests.unit.gateway.http.management.house import House, in_house


def ends(found: Any) -> list[tuple[str, str, list[str]]]:
    assert not found["cut"]
    return [
        (each["from"]["name"], f"{each['to']['kind']} {each['to']['name']}", each["keys"])
        for each in found["edges"]
    ]


@in_house()
async def test_all_of_it_and_what_is_near_an_exchange(house: House) -> None:
    await house.declare("a")
    await house.broker.create_topic("t", 1)
    for exchange in ("first", "second", "other"):
        await house.call("PUT", f"/api/exchanges/%2F/{exchange}", {"type": "topic"})
    await bind(house, "first", "q", "a", "x.*")
    await bind(house, "first", "q", "a", "y")
    await bind(house, "first", "e", "second", "#")
    await bind(house, "second", "q", "t", "z")
    await bind(house, "second", "e", "first", "ring")
    await bind(house, "other", "q", "a", "o")
    ring = [
        ("first", "queue a", ["x.*", "y"]),
        ("first", "exchange second", ["#"]),
        ("second", "topic t", ["z"]),
        ("second", "exchange first", ["ring"]),
    ]
    found = ends(await house.get("/api/console/graph/%2F"))
    assert sorted(found) == sorted([*ring, ("other", "queue a", ["o"])])
    found = ends(await house.get("/api/console/graph/%2F?exchange=first"))
    assert sorted(found) == sorted(ring)
    assert ends(await house.get("/api/console/graph/%2F?exchange=amq.fanout")) == []


@in_house()
async def test_of_headers_the_headers_are_shown(house: House) -> None:
    await house.declare("a")
    wanted = {"routing_key": "unused", "arguments": {"x-match": "all", "region": "eu", "vip": None}}
    status, _ = await house.call("POST", "/api/bindings/%2F/e/amq.headers/q/a", wanted)
    assert status == 201
    found = ends(await house.get("/api/console/graph/%2F?exchange=amq.headers"))
    assert found == [("amq.headers", "queue a", ["region=eu, vip"])]


@in_house()
async def test_a_large_graph_is_cut(house: House) -> None:
    for number in range(130):
        await house.declare(f"q{number}")
        await bind(house, "amq.fanout", "q", f"q{number}", "")
    found = await house.get("/api/console/graph/%2F")
    assert found["cut"]
    assert len(found["edges"]) == 120


@in_house()
async def test_what_matches_nothing_and_what_dies_goes_on(house: House) -> None:
    await house.call("PUT", "/api/exchanges/%2F/rest", {"type": "fanout"})
    settings = {"alternate-exchange": "rest"}
    await house.call("PUT", "/api/exchanges/%2F/in", {"type": "topic", "arguments": settings})
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await house.declare("dead")
    await house.call("PUT", "/api/queues/%2F/a", {"durable": True, "arguments": letters})
    await house.call(
        "PUT", "/api/queues/%2F/b", {"durable": True, "arguments": {"x-dead-letter-exchange": "in"}}
    )
    await bind(house, "in", "q", "a", "x")
    await bind(house, "in", "q", "b", "y")
    found = await house.get("/api/console/graph/%2F?exchange=in")
    edges = {(each["from"]["name"], each["how"], each["to"]["name"]) for each in found["edges"]}
    assert edges == {
        *(("in", "bound", "a"), ("in", "bound", "b"), ("in", "unmatched", "rest")),
        *(("a", "dead", "dead"), ("b", "dead", "in")),
    }
