"""Where would this message go? The way is the router's own."""

from typing import Any

from tests.unit.gateway.http.management.house import House, in_house


async def bind(house: House, source: str, kind: str, destination: str, key: str) -> None:
    path = f"/api/bindings/%2F/e/{source}/{kind}/{destination}"
    status, told = await house.call("POST", path, {"routing_key": key})
    assert status == 201, told


async def trace(house: House, exchange: str, key: str, **more: object) -> Any:
    body = {"routing_key": key} | more
    status, told = await house.call("POST", f"/api/console/trace/%2F/{exchange}", body)
    assert status == 200, told
    return told


@in_house()
async def test_the_way_through_exchanges(house: House) -> None:
    for queue in ("a", "b", "c"):
        await house.declare(queue)
    for exchange, kind in (("first", "topic"), ("second", "fanout")):
        await house.call("PUT", f"/api/exchanges/%2F/{exchange}", {"type": kind})
    await bind(house, "first", "q", "a", "x.*")
    await bind(house, "first", "q", "a", "y")
    await bind(house, "first", "e", "second", "#")
    await bind(house, "second", "q", "b", "")
    await bind(house, "second", "e", "first", "")  # A ring, which is gone round once.
    found = await trace(house, "first", "x.1")
    assert [hop["exchange"] for hop in found["hops"]] == ["first", "second"]
    matched = [(each["routing_key"], each["destination"]) for each in found["hops"][0]["bindings"]]
    assert matched == [("x.*", "a"), ("#", "second")]
    assert [each["name"] for each in found["queues"]] == ["a", "b"]
    route = house.broker.vhosts.default.router.route("first", "x.1")
    assert sorted(route.queues) == ["a", "b"]
    assert (await house.take("a", "peek"), await house.take("b", "peek")) == ([], [])


@in_house()
async def test_an_alternate_and_a_name(house: House) -> None:
    await house.declare("rest")
    await house.call("PUT", "/api/exchanges/%2F/others", {"type": "fanout"})
    await bind(house, "others", "q", "rest", "")
    wanted = {"type": "direct", "arguments": {"alternate-exchange": "others"}}
    await house.call("PUT", "/api/exchanges/%2F/some", wanted)
    found = await trace(house, "some", "k")
    assert [hop["alternate"] for hop in found["hops"]] == ["others", None]
    assert [each["name"] for each in found["queues"]] == ["rest"]
    (hop,) = (await trace(house, "amq.default", "rest"))["hops"]
    assert hop["queues"] == ["rest"]
    assert (await trace(house, "amq.default", "nobody"))["queue_count"] == 0
    assert (await house.call("POST", "/api/console/trace/%2F/missing", {}))[0] == 404


@in_house()
async def test_headers_and_subjects(house: House) -> None:
    await house.declare("q")
    path = "/api/bindings/%2F/e/amq.headers/q/q"
    await house.call("POST", path, {"arguments": {"x-match": "all", "colour": "red"}})
    assert (await trace(house, "amq.headers", "", headers={"colour": "red"}))["queue_count"] == 1
    assert (await trace(house, "amq.headers", "", headers={"colour": "blue"}))["queue_count"] == 0
    await house.broker.create_topic("orders.eu", 1)
    found = await trace(house, "amq.topic", "orders.eu")
    assert (found["landing"], found["queues"]) == (
        "orders.eu",
        [{"name": "orders.eu", "kind": "topic"}],
    )
