"""Bindings over HTTP: made, listed in every way, deleted by the name they are listed with."""

from urllib.parse import quote

from tests.unit.gateway.http.management.house import House, in_house

QUEUE = "/api/bindings/%2F/e/ex/q/work"


async def prepare(house: House) -> None:
    await house.declare("work")
    for name, kind in (("ex", "topic"), ("out", "fanout")):
        assert (await house.call("PUT", f"/api/exchanges/%2F/{name}", {"type": kind}))[0] == 201


@in_house()
async def test_made_and_listed(house: House) -> None:
    await prepare(house)
    assert (await house.call("POST", QUEUE, {"routing_key": "a.#"}))[0] == 201
    made = await house.call("POST", QUEUE, {"routing_key": "h", "arguments": {"k": "v"}})
    assert made[0] == 201
    assert (await house.call("POST", "/api/bindings/%2F/e/out/e/ex", {}))[0] == 201
    by_name = {
        "source": "",
        "vhost": "/",
        "destination": "work",
        "destination_type": "queue",
        "routing_key": "work",
        "arguments": {},
        "properties_key": "work",
    }
    keyed = by_name | {"source": "ex", "routing_key": "a.#", "properties_key": "a.%23"}
    rows = await house.get("/api/queues/%2F/work/bindings")
    assert rows[:2] == [by_name, keyed]
    assert (rows[2]["routing_key"], rows[2]["arguments"]) == ("h", {"k": "v"})
    assert rows[2]["properties_key"].startswith("h~")
    between = by_name | {
        "source": "out",
        "destination": "ex",
        "destination_type": "exchange",
        "routing_key": "",
        "properties_key": "~",
    }
    assert await house.get("/api/bindings") == [*rows, between]
    assert await house.get("/api/bindings/%2F") == [*rows, between]
    assert await house.get("/api/exchanges/%2F/ex/bindings/source") == rows[1:]
    assert await house.get("/api/exchanges/%2F/ex/bindings/destination") == [between]
    assert await house.get("/api/exchanges/%2F/amq.default/bindings/source") == [by_name]
    assert await house.get(QUEUE) == rows[1:]
    assert await house.get("/api/bindings/%2F/e/out/e/ex") == [between]
    assert await house.get("/api/bindings/%2F/e/out/e/ex/~") == between
    assert await house.get("/api/bindings/%2F/e/amq.default/q/work") == [by_name]


@in_house()
async def test_deleted_by_the_name_it_is_listed_with(house: House) -> None:
    await prepare(house)
    for body in ({"routing_key": "a.#~/"}, {"arguments": {"x": [1]}}, {}):
        assert (await house.call("POST", QUEUE, body))[0] == 201
    for row in await house.get(QUEUE):
        path = f"{QUEUE}/{quote(row['properties_key'], safe='')}"
        assert await house.get(path) == row
        assert await house.call("DELETE", path) == (204, None)
        assert (await house.call("DELETE", path))[0] == 404
    assert await house.get(QUEUE) == []


@in_house()
async def test_what_cannot_be(house: House) -> None:
    await prepare(house)
    status, said = await house.call("POST", "/api/bindings/%2F/e/ex/q/nosuch", {})
    assert (status, said) == (
        404,
        {"error": "not_found", "reason": "no queue 'nosuch' in vhost '/'"},
    )
    assert (await house.call("POST", "/api/bindings/%2F/e/nosuch/q/work", {}))[0] == 404
    assert (await house.call("POST", "/api/bindings/%2F/e/ex/x/work", {}))[0] == 404
    assert (await house.call("POST", "/api/bindings/%2F/e/amq.default/q/work", {}))[0] == 403
    assert (await house.call("GET", "/api/queues/%2F/nosuch/bindings"))[0] == 404


@in_house(asks=True)
async def test_permissions_are_those_of_amqp(house: House) -> None:
    await prepare(house)
    await house.add_user("ana")
    for rights, status in (
        ({"configure": ".*", "write": "^work$", "read": "^other$"}, 403),
        ({"configure": ".*", "write": "^ex$", "read": "^ex$"}, 403),
        ({"configure": "", "write": "^work$", "read": "^ex$"}, 201),
    ):
        await house.call("PUT", "/api/permissions/%2F/ana", rights)
        assert (await house.call("POST", QUEUE, {}, user="ana"))[0] == status
