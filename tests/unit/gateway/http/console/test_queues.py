"""Queues in the console: the list, one of them, and dead letters that go back."""

import asyncio

from entrepot.broker.permissions import Permission, permission_record
from tests.unit.gateway.http.management.house import House, in_house

LETTERS = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}


async def died(house: House, *payloads: str) -> None:
    await house.declare("dead")
    await house.declare("alive", LETTERS)
    await house.publish("alive", *payloads)
    await house.take("alive", "reject_requeue_false")
    await asyncio.sleep(1)
    assert house.broker.vhosts.default.queue("dead").ready_count == len(payloads)


@in_house()
async def test_a_page_of_the_list(house: House) -> None:
    for name in ("a", "b", "c"):
        await house.declare(name)
    await house.publish("b", "x", "y")
    await house.take("b", "ack_requeue_false", 1)
    found = await house.get("/api/console/queues?sort=ready&sort_reverse=true&page_size=2")
    assert [row["name"] for row in found["items"]] == ["b", "c"]
    assert found["filtered_count"] == 3
    row = found["items"][0]
    assert (row["ready"], row["unacked"], row["accepted"], row["settled"]) == (1, 0, 2, 1)
    assert (await house.get("/api/console/queues?name=C"))["items"][0]["name"] == "c"


@in_house(asks=True)
async def test_who_sees_and_does_what(house: House) -> None:
    await house.declare("mine")
    await house.declare("other")
    await house.add_user("ann")
    permission = permission_record("ann", "/", Permission("", "", "mine"))
    await house.broker.change_security(permission)
    status, shown = await house.call("GET", "/api/console/queues/%2F/mine", user="ann")
    assert (status, shown["may"]) == (
        200,
        {"read": True, "write": False, "delete": False, "publish": False},
    )
    await house.add_user("bob")
    assert (await house.call("GET", "/api/console/queues/%2F/mine", user="bob"))[0] == 403
    assert (await house.call("GET", "/api/console/queues", user="bob"))[1]["items"] == []
    back = "/api/console/queues/%2F/other/send-back"
    assert (await house.call("POST", back, {}, user="ann"))[0] == 403


@in_house()
async def test_dead_letters_go_back(house: House) -> None:
    await died(house, "one", "two", "three")
    await house.publish("dead", "never died")
    path = "/api/console/queues/%2F/dead/send-back"
    status, told = await house.call("POST", path, {"messages": [[0, 1], [0, 3], [0, 99]]})
    assert (status, told["sent"], told["stayed"]) == (200, 1, 1)
    assert told["reasons"] == ["some messages are no dead letters"]
    assert await house.take("alive", "peek") == ["two"]
    _, told = await house.call("POST", path, {})
    assert (told["sent"], told["stayed"]) == (2, 1)
    assert await house.take("alive", "peek") == ["two", "one", "three"]
    assert await house.take("dead", "peek") == ["never died"]
    for account in await house.get("/api/accounts"):
        assert account["ok"], account


@in_house()
async def test_a_dead_letter_whose_queue_is_gone_stays(house: House) -> None:
    await died(house, "one")
    assert (await house.call("DELETE", "/api/queues/%2F/alive"))[0] == 204
    _, told = await house.call("POST", "/api/console/queues/%2F/dead/send-back", {})
    assert (told["sent"], told["stayed"]) == (0, 1)
    assert "alive" in told["reasons"][0]
    assert await house.take("dead", "peek") == ["one"]


@in_house(asks=True)
async def test_a_letter_does_not_go_where_its_user_may_not_write(house: House) -> None:
    await died(house, "one")
    await house.add_user("ann")
    permission = permission_record("ann", "/", Permission("", "", "dead"))
    await house.broker.change_security(permission)
    path = "/api/console/queues/%2F/dead/send-back"
    _, told = await house.call("POST", path, {}, user="ann")
    assert (told["sent"], told["stayed"]) == (0, 1)
    assert await house.take("dead", "peek") == ["one"]


@in_house()
async def test_messages_that_make_no_sense(house: House) -> None:
    await house.declare("q")
    path = "/api/console/queues/%2F/q/send-back"
    for wrong in ([1], [[0]], [[0, "1"]], [[9, 0]], [[0, -1]], [[0, 2**63]], [[True, 0]]):
        assert (await house.call("POST", path, {"messages": wrong}))[0] == 400, wrong
    many = [[0, number] for number in range(1_001)]
    assert (await house.call("POST", path, {"messages": many}))[0] == 400
