"""Messages leased until a time, over the API."""

import asyncio

import pytest

from entrepot.core import limits
from tests.unit.gateway.http.management.house import House, in_house

WORK = "/api/queues/%2F/work"


async def filled(house: House, *payloads: str) -> None:
    await house.declare("work")
    await house.publish("work", *payloads)


@in_house()
async def test_leased_then_settled(house: House) -> None:
    await filled(house, "a", "b", "c")
    asked = {"count": 2, "seconds": 5, "messages": True}
    status, said = await house.call("POST", f"{WORK}/lease", asked)
    assert status == 200
    assert said["ranges"] == [[0, 0, 2, 0]] or said["ranges"] == [[0, 0, 1, 0], [0, 1, 2, 0]]
    assert [each["payload"] for each in said["messages"]] == ["a", "b"]
    assert said["until_ms"] == house.clock.now_ms() + 5_000
    assert await house.take("work", "peek") == ["c"]
    path = f"{WORK}/leases/{said['lease']}"
    status, said = await house.call("POST", path, {"settle": [[0, 0, 1]], "renew_seconds": 9})
    assert (status, said["settled"], said["left"]) == (200, 1, 1)
    status, said = await house.call("POST", path, {"release": [[0, 0, 9]], "failed": True})
    assert (status, said["released"], said["left"]) == (200, 1, 0)
    assert (await house.call("POST", path, {}))[0] == 404
    _, said = await house.call("POST", f"{WORK}/lease", {"count": 5})
    spans = [each[1:] for each in said["ranges"]]
    assert spans == [[1, 2, 1], [2, 3, 0]]
    assert "messages" not in said


@in_house()
async def test_its_time_is_over(house: House) -> None:
    await filled(house, "a")
    _, said = await house.call("POST", f"{WORK}/lease", {"seconds": 1})
    assert await house.take("work", "peek") == []
    _, none = await house.call("POST", f"{WORK}/lease", {})
    assert (none["lease"], none["ranges"]) == (None, [])
    await asyncio.sleep(1.1)
    assert await house.take("work", "peek") == ["a"]
    status, _ = await house.call("POST", f"{WORK}/leases/{said['lease']}", {"settle": [[0, 0, 1]]})
    assert status == 404


@in_house()
async def test_given_ones_again(house: House) -> None:
    await filled(house, "a", "b", "c", "d")
    _, first = await house.call("POST", f"{WORK}/lease", {"count": 2})
    change = {"settle": [[0, 0, 1]]}
    await house.call("POST", f"{WORK}/leases/{first['lease']}", change)
    _, said = await house.call("POST", f"{WORK}/lease", {"ranges": [[0, 0, 3, 7], [9, 0, 2]]})
    assert said["ranges"] == [[0, 2, 3, 0]]
    assert (said["leased_by_others"], said["dying"]) == ([[0, 1, 2]], [])
    _, said = await house.call("POST", f"{WORK}/leases/{said['lease']}", {"reject": [[0, 2, 3]]})
    assert said["rejected"] == 1
    assert await house.take("work", "peek") == ["d"]


@in_house()
async def test_taken_over(house: House) -> None:
    await filled(house, "a", "b")
    _, first = await house.call("POST", f"{WORK}/lease", {"count": 2, "seconds": 5})
    path = f"{WORK}/leases/{first['lease']}"
    await asyncio.sleep(2)
    _, said = await house.call("POST", path, {})
    assert (said["lease"], said["idle_ms"]) == (first["lease"], 2_000)
    asked = {"take_over": True, "release": [[0, 1, 2]], "renew_seconds": 5}
    _, said = await house.call("POST", path, asked)
    assert said["lease"] != first["lease"]
    assert (said["left"], said["until_ms"]) == (1, house.clock.now_ms() + 5_000)
    assert (await house.call("POST", path, {"release": [[0, 0, 2]]}))[0] == 404
    assert await house.take("work", "peek") == ["b"]
    status, said = await house.call(
        "POST", f"{WORK}/leases/{said['lease']}", {"settle": [[0, 0, 1]]}
    )
    assert (status, said["settled"], said["idle_ms"]) == (200, 1, 0)


@pytest.mark.parametrize(
    "asked",
    [
        {"count": 0},
        {"count": 10**9},
        {"seconds": 0},
        {"seconds": 10**9},
        {"ranges": 7},
        {"ranges": [[0, 1]]},
        {"ranges": [[0, -1, 1]]},
        {"ranges": [["0", 1, 2]]},
        {"ranges": [[0, 0, 10**9]]},
        {"ranges": [[0, 0, 1]] * 100_001},
        {"messages": True, "encoding": "x"},
        {"messages": True, "ranges": [[0, 0, 1]]},
    ],
)
@in_house()
async def test_nonsense_is_refused(house: House, asked: dict[str, object]) -> None:
    await filled(house, "a")
    status, said = await house.call("POST", f"{WORK}/lease", asked)
    assert (status, said["error"]) == (400, "bad_request")
    assert await house.take("work", "peek") == ["a"]


@in_house(asks=True)
async def test_who_may_not_read_may_not_lease(house: House) -> None:
    await filled(house, "a")
    await house.add_user("eve")
    status, _ = await house.call("POST", f"{WORK}/lease", {}, user="eve")
    assert status == 403


@in_house()
async def test_whoever_hangs_up_meanwhile_has_nothing(house: House) -> None:
    count = 3 * limits.QUEUE_TURN_MESSAGES_MAX  # In as many turns.
    await filled(house, *["x"] * count)
    queue = house.broker.vhosts.get("/").queue("work")
    call = asyncio.ensure_future(house.call("POST", f"{WORK}/lease", {"count": count}))
    while not queue.unacked_count:  # noqa: ASYNC110  # Turn by turn is what it is about.
        await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (queue.ready_count, queue.unacked_count) == (count, 0)
