"""What is declared here can be declared elsewhere; also what a RabbitMQ exported."""

from typing import Any

import pytest

from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from tests.unit.gateway.http.management.house import House, in_house

EXPORTED = {  # By RabbitMQ, shortened.
    "rabbit_version": "3.10.8",
    "users": [{"name": "guest", "password_hash": "x", "tags": ["administrator"]}],
    "vhosts": [{"name": "/"}, {"name": "v1"}],
    "permissions": [
        {"user": "guest", "vhost": "v1", "configure": ".*", "write": ".*", "read": ".*"}
    ],
    "policies": [],
    "queues": [
        {
            "name": "work",
            "vhost": "v1",
            "durable": True,
            "auto_delete": False,
            "arguments": {"x-max-priority": 3},
        }
    ],
    "exchanges": [
        {
            "name": "ex",
            "vhost": "v1",
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
    ],
    "bindings": [
        {
            "source": "ex",
            "vhost": "v1",
            "destination": "work",
            "destination_type": "queue",
            "routing_key": "a.#",
            "arguments": {},
        }
    ],
}
PARTS = ("queues", "exchanges", "bindings", "permissions")


@in_house()
async def test_taken_and_given_back(house: House) -> None:
    assert await house.call("POST", "/api/definitions", EXPORTED) == (204, None)
    assert await house.call("POST", "/api/definitions", EXPORTED) == (204, None)
    given = await house.get("/api/definitions")
    given["permissions"] = [row for row in given["permissions"] if row["vhost"] == "v1"]
    assert {part: given[part] for part in PARTS} == {part: EXPORTED[part] for part in PARTS}
    assert given["vhosts"] == EXPORTED["vhosts"]
    of_one = await house.get("/api/definitions/%2F")
    assert (of_one["queues"], of_one["bindings"]) == ([], [])


@in_house()
async def test_what_does_not_stay_is_not_exported(house: House) -> None:
    await house.broker.create_topic("events")
    vhost = house.broker.vhosts.get("/")
    await vhost.declare_queue(QueueDeclaration("/", "transient", durable=False), None)
    await house.call("POST", "/api/bindings/%2F/e/amq.fanout/q/transient", {})
    await house.call("POST", "/api/bindings/%2F/e/amq.fanout/q/events", {})
    given = await house.get("/api/definitions")
    assert [row["name"] for row in given["queues"]] == ["events"]
    assert [row["destination"] for row in given["bindings"]] == ["events"]
    assert await house.call("POST", "/api/definitions", given) == (204, None)


@pytest.mark.parametrize(
    "document",
    [
        {"queues": 1},
        {"queues": [1]},
        {"queues": [{"vhost": "/"}]},
        {"exchanges": [{"name": "e", "type": "nosuch"}]},
        {"queues": [{"name": "q", "arguments": {"x-message-ttl": "x"}}]},
        {"permissions": [{"user": "a", "vhost": "/", "configure": "("}]},
    ],
)
@in_house()
async def test_what_cannot_be(house: House, document: Any) -> None:
    assert (await house.call("POST", "/api/definitions", document))[0] == 400
    assert (await house.call("POST", "/api/definitions/nosuch", EXPORTED))[0] == 404
