"""Exchanges over HTTP, and publishing to them."""

from typing import Any

import pytest

from tests.unit.gateway.http.management.house import House, in_house

PUBLISH = "/api/exchanges/%2F/amq.default/publish"


def message(**changes: Any) -> dict[str, Any]:
    return {
        "properties": {},
        "routing_key": "work",
        "payload": "hi",
        "payload_encoding": "string",
    } | changes


@in_house()
async def test_declared_shown_listed_deleted(house: House) -> None:
    path = "/api/exchanges/%2F/ex"
    wanted = {"type": "topic", "arguments": {"alternate-exchange": "other"}}
    assert await house.call("PUT", path, wanted) == (201, None)
    assert await house.call("PUT", path, wanted) == (204, None)
    assert await house.get(path) == {
        "name": "ex",
        "vhost": "/",
        "type": "topic",
        "durable": True,
        "auto_delete": False,
        "internal": False,
        "arguments": {"alternate-exchange": "other"},
    }
    names = [row["name"] for row in await house.get("/api/exchanges/%2F")]
    assert names[:3] == ["", "amq.direct", "amq.fanout"]
    assert "ex" in names
    assert (await house.get("/api/exchanges/%2F/amq.default"))["name"] == ""
    status, said = await house.call("PUT", path, {"type": "fanout"})
    assert (status, said["reason"][:30]) == (400, "inequivalent arg 'type' for ex")
    assert await house.call("DELETE", f"{path}?if-unused=true") == (204, None)
    assert (await house.call("DELETE", path))[0] == 404
    assert (await house.call("GET", path))[0] == 404


@in_house()
async def test_types_have_rabbitmqs_names(house: House) -> None:
    path = "/api/exchanges/%2F/ring"
    assert await house.call("PUT", path, {"type": "x-consistent-hash"}) == (201, None)
    assert (await house.get(path))["type"] == "x-consistent-hash"
    (exported,) = (await house.get("/api/definitions"))["exchanges"]
    assert exported["type"] == "x-consistent-hash"
    assert await house.call("POST", "/api/definitions", {"exchanges": [exported]}) == (204, None)


@in_house()
async def test_what_cannot_be(house: House) -> None:
    unknown = await house.call("PUT", "/api/exchanges/%2F/e", {"type": "nosuch"})
    assert unknown == (400, {"error": "bad_request", "reason": "unknown exchange type 'nosuch'"})
    assert (await house.call("PUT", "/api/exchanges/%2F/amq.e", {"type": "direct"}))[0] == 403
    assert (await house.call("DELETE", "/api/exchanges/%2F/amq.direct"))[0] == 403
    assert (await house.call("DELETE", "/api/exchanges/%2F/amq.default"))[0] == 403


@in_house()
async def test_published(house: House) -> None:
    await house.declare("work")
    assert await house.call("POST", PUBLISH, message()) == (200, {"routed": True})
    encoded = message(payload="/wA=", payload_encoding="base64")
    assert await house.call("POST", PUBLISH, encoded) == (200, {"routed": True})
    lost = message(routing_key="nosuch")
    assert await house.call("POST", PUBLISH, lost) == (200, {"routed": False})
    assert await house.take("work", "peek") == ["hi", "/wA="]


@in_house()
async def test_all_properties_come_back(house: House) -> None:
    await house.declare("work")
    properties = {
        "content_type": "text/plain",
        "headers": {"n": 1, "big": 2**40, "f": 1.5, "t": True, "none": None, "l": [1, {"a": "b"}]},
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "timestamp": 1_700_000_000,
        "user_id": "guest",
    }
    sent = await house.call("POST", PUBLISH, message(properties=properties))
    assert sent == (200, {"routed": True})
    asked = {"count": 1, "ackmode": "peek", "encoding": "auto"}
    _, (row,) = await house.call("POST", "/api/queues/%2F/work/get", asked)
    assert row["properties"] == properties


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"payload": None}, "[{key_missing,payload}]"),
        ({"routing_key": None}, "[{key_missing,routing_key}]"),
        ({"payload_encoding": "x"}, "payload_encoding: string or base64"),
        ({"payload": "!", "payload_encoding": "base64"}, "payload: not base64"),
        ({"properties": {"priority": "x"}}, "priority: not_int"),
        ({"properties": {"priority": 256}}, "priority: not_int"),
        ({"properties": {"colour": "x"}}, "there is no property colour"),
        ({"properties": {"headers": [1]}}, "headers: not an object"),
        ({"properties": {"headers": {"n" * 256: 1}}}, "a name of more than 255"),
        ({"properties": {"app_id": "n" * 256}}, "app_id: not a text of up to 255"),
        ({"properties": {"user_id": "ana"}}, "user_id property set to 'ana' but authenticated"),
    ],
)
@in_house()
async def test_published_wrongly(house: House, changes: dict[str, Any], reason: str) -> None:
    status, said = await house.call("POST", PUBLISH, message(**changes))
    assert status == 400
    assert said["reason"].startswith(reason)
    unknown = await house.call("POST", "/api/exchanges/%2F/nosuch/publish", message())
    assert unknown[0] == 404


@in_house()
async def test_a_queue_that_takes_no_more(house: House) -> None:
    await house.declare("work", {"x-max-length": 1, "x-overflow": "reject-publish"})
    await house.publish("work", "a")
    status, said = await house.call("POST", PUBLISH, message())
    assert (status, said["reason"]) == (400, "a queue takes no more")


@in_house(asks=True)
async def test_a_topic_by_its_name_needs_write_on_it(house: House) -> None:
    """As over AMQP."""
    await house.add_user("ana")
    rights = {"configure": "^own", "write": "^amq\\.default$|^own", "read": "^own"}
    assert (await house.call("PUT", "/api/permissions/%2F/ana", rights))[0] == 201
    for name in ("orders", "own"):
        await house.broker.create_topic(name)
    for headers in ({}, {"BCC": ["orders"]}):
        for key, status in (("orders", 403), ("own", 403 if headers else 200)):
            body = {"routing_key": key, "payload": "a", "payload_encoding": "string"}
            body["properties"] = {"headers": headers}
            path = "/api/exchanges/%2F/amq.default/publish"
            assert (await house.call("POST", path, body, user="ana"))[0] == status
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
    status, said = await house.call("PUT", "/api/queues/%2F/own-q", {"arguments": dead}, user="ana")
    assert (status, "'orders'" in said["reason"]) == (403, True)
