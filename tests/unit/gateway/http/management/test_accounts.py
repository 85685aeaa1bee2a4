"""Accounts of queues over HTTP: figures that add up, or say what is wrong."""

import pytest

from tests.unit.gateway.http.management.house import House, in_house


@in_house()
async def test_an_account(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b", "c")
    await house.take("work", "ack_requeue_false", 1)
    await house.call("DELETE", "/api/queues/%2F/work/contents")
    row = await house.get("/api/accounts/%2F/work")
    assert row == {
        "name": "work",
        "vhost": "/",
        "found": 0,
        "accepted": 3,
        "rewound": 0,
        "ready": 0,
        "unacked": 0,
        "deferred": 0,
        "dying": 0,
        "consumed": 1,
        "dead_lettered": 0,
        "dropped": {"purged": 2},
        "wrong": [],
        "ok": True,
    }
    assert (await house.get("/api/queues/%2F/work"))["messages_dropped"] == {"purged": 2}
    assert await house.get("/api/accounts") == await house.get("/api/accounts/%2F") == [row]
    assert (await house.call("GET", "/api/accounts/%2F/none"))[0] == 404


@in_house()
async def test_a_message_is_missing(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b", "c")
    house.broker.vhosts.default.queue("work").lanes[0].ledger.pop(2, 3)
    row = await house.get("/api/accounts/%2F/work")
    assert (row["ready"], row["ok"]) == (1, False)
    assert row["wrong"] == [
        "missing: 2 messages",
        "nobody has them, and nobody settled them: 2 messages, at offsets 0-1",
    ]


@in_house()
async def test_what_waits_at_delayed_exchanges(house: House) -> None:
    asked = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    await house.call("PUT", "/api/exchanges/%2F/later", asked)
    row = await house.get("/api/accounts/%2F/amq.delayed")
    assert (row["name"], row["ok"]) == ("amq.delayed", True)
    assert await house.get("/api/accounts") == [row]


@pytest.mark.parametrize("path", ["/api/accounts/%2F", "/api/accounts/%2F/work"])
@in_house(asks=True)
async def test_who_may_not_enter_sees_nothing(house: House, path: str) -> None:
    await house.add_user("ana")
    await house.declare("work")
    assert (await house.call("GET", path, user="ana"))[0] == 403
    assert (await house.call("GET", path))[0] == 200
    assert (await house.call("GET", "/api/accounts", user="ana"))[1] == []
