"""What is in a queue: taken, looked at, thrown away, rewound, moved, deferred."""

import asyncio
import contextlib
from typing import Any

import pytest

from entrepot.broker.queue.message import Run
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, NO_PROPERTIES
from entrepot.gateway.http.management import contents
from entrepot.wire.http import limits as http_limits
from tests.unit.gateway.http.management.house import House, in_house

WORK = "/api/queues/%2F/work"


@in_house()
async def test_a_message_as_rabbitmq_shows_it(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "hé", "other", headers={"x": 1})
    asked = {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"}
    status, (row,) = await house.call("POST", f"{WORK}/get", asked)
    assert status == 200
    assert {
        "payload": "hé",
        "payload_bytes": 3,
        "payload_encoding": "string",
        "redelivered": False,
        "exchange": "",
        "routing_key": "work",
        "message_count": 1,
        "properties": {"delivery_mode": 2, "headers": {"x": 1}},
    }.items() <= row.items()
    _, (row,) = await house.call("POST", f"{WORK}/get", asked | {"truncate": 2})
    assert (row["redelivered"], row["payload_bytes"]) == (True, 3)
    assert (row["payload"], row["payload_encoding"]) == ("aMM=", "base64")


@pytest.mark.parametrize("mode", ["peek", "ack_requeue_false"])
@in_house()
async def test_what_is_too_large_is_told_in_part_or_not_at_all(
    house: House, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "MESSAGES_BYTES_MAX", 10)
    await house.declare("work")
    await house.publish("work", "a" * 11)
    asked = {"count": 1, "ackmode": mode, "encoding": "auto"}
    status, answer = await house.call("POST", f"{WORK}/get", asked)
    assert (status, "say truncate" in answer["reason"]) == (400, True)
    status, (row,) = await house.call("POST", f"{WORK}/get", asked | {"truncate": 2})
    assert (row["payload"], row["payload_bytes"]) == ("aa", 11)


@pytest.mark.parametrize(
    ("mode", "left"),
    [
        ("peek", ["a", "b", "c"]),
        ("ack_requeue_true", ["a", "b", "c"]),
        ("reject_requeue_true", ["a", "b", "c"]),
        ("ack_requeue_false", ["c"]),
        ("reject_requeue_false", ["c"]),
    ],
)
@in_house()
async def test_ways_to_take(house: House, mode: str, left: list[str]) -> None:
    await house.declare("dead")
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    await house.declare("work", letters)
    await house.publish("work", "a", "b", "c")
    assert await house.take("work", mode, 2) == ["a", "b"]
    assert await house.take("work", "peek") == left
    assert house.broker.vhosts.get("/").queue("work").unacked_count == 0
    await asyncio.sleep(0.1)  # Letters go their own way.
    row = await house.get("/api/queues/%2F/dead")
    assert row["messages"] == (2 if mode == "reject_requeue_false" else 0)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({}, "[{key_missing,count},{key_missing,ackmode},{key_missing,encoding}]"),
        ({"count": 0, "ackmode": "peek", "encoding": "auto"}, "count: at least 1"),
        ({"count": "x", "ackmode": "peek", "encoding": "auto"}, "count: not_int"),
        ({"count": 1, "ackmode": "x", "encoding": "auto"}, "ackmode: one of ack_requeue_true"),
        ({"count": 1, "ackmode": "peek", "encoding": "x"}, "encoding: auto or base64"),
    ],
)
@in_house()
async def test_taken_wrongly(house: House, body: Any, reason: str) -> None:
    await house.declare("work")
    status, said = await house.call("POST", f"{WORK}/get", body)
    assert status == 400
    assert said["reason"].startswith(reason)
    asked = {"count": 1, "ackmode": "peek", "encoding": "auto"}
    assert (await house.call("POST", "/api/queues/%2F/nosuch/get", asked))[0] == 404


@in_house()
async def test_purged(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b")
    assert await house.call("DELETE", f"{WORK}/contents") == (204, None)
    assert await house.take("work", "peek") == []


@in_house()
async def test_rewound_to_an_offset_and_to_a_time(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b")
    await asyncio.sleep(10)
    between_ms = house.clock.now_ms() - 5_000
    await house.publish("work", "c")
    assert await house.take("work", "ack_requeue_false") == ["a", "b", "c"]
    assert await house.call("POST", f"{WORK}/rewind", {"offset": 1}) == (204, None)
    assert await house.take("work", "ack_requeue_false") == ["b", "c"]
    assert await house.call("POST", f"{WORK}/rewind", {"time": between_ms}) == (204, None)
    assert await house.take("work", "ack_requeue_false") == ["c"]
    assert await house.call("POST", f"{WORK}/rewind", {"time": "1970-01-01T00:00"}) == (204, None)
    assert await house.take("work", "ack_requeue_false") == ["a", "b", "c"]
    for wrong in ({}, {"offset": 1, "time": 1}, {"time": "yesterday"}, {"offset": "a"}):
        assert (await house.call("POST", f"{WORK}/rewind", wrong))[0] == 400


@in_house()
async def test_moved(house: House) -> None:
    await house.declare("work")
    await house.declare("other")
    await house.publish("work", *map(str, range(7)))
    moving = {"to": "other", "count": 3}
    assert await house.call("POST", f"{WORK}/move", moving) == (200, {"moved": 3})
    assert await house.take("other", "peek") == ["0", "1", "2"]
    assert await house.call("POST", f"{WORK}/move", {"to": "other"}) == (200, {"moved": 4})
    assert await house.call("POST", f"{WORK}/move", {"to": "other"}) == (200, {"moved": 0})
    assert await house.take("work", "peek") == []
    assert await house.take("other", "peek") == list("0123456")
    assert (await house.call("POST", f"{WORK}/move", {"to": "work"}))[0] == 400
    assert (await house.call("POST", f"{WORK}/move", {"to": "nosuch"}))[0] == 404
    assert (await house.call("POST", f"{WORK}/move", {}))[0] == 400


@in_house()
async def test_what_cannot_be_moved_stays(house: House) -> None:
    await house.declare("work")
    await house.declare("full", {"x-max-length": 1, "x-overflow": "reject-publish"})
    await house.publish("full", "first")
    await house.publish("work", "a", "b")
    status, said = await house.call("POST", f"{WORK}/move", {"to": "full"})
    assert (status, said["reason"]) == (400, "queue 'full' takes no more")
    assert await house.take("work", "peek") == ["a", "b"]
    assert house.broker.vhosts.get("/").queue("work").unacked_count == 0


@in_house()
async def test_what_could_be_moved_is_not_in_both(house: House) -> None:
    await house.declare("work")
    await house.declare("small", {"x-max-length": 2, "x-overflow": "reject-publish"})
    await house.publish("work", "a", "b", "c", "d")
    status, said = await house.call("POST", f"{WORK}/move", {"to": "small"})
    assert (status, said["reason"]) == (400, "queue 'small' takes no more")
    assert await house.take("small", "peek") == ["a", "b"]
    assert await house.take("work", "peek") == ["c", "d"]


@in_house()
async def test_who_asked_for_a_move_is_gone(house: House) -> None:
    await house.declare("work")
    await house.declare("other")
    await house.publish("work", "a", "b")
    asked = asyncio.ensure_future(house.call("POST", f"{WORK}/move", {"to": "other"}))
    for _ in range(3):
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.sleep(1)
    assert asked.cancelled()
    assert await house.take("other", "peek") == ["a", "b"]
    assert await house.take("work", "peek") == []


@in_house()
async def test_messages_that_cannot_be_shown_go_back(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ValueError("planted")

    await house.declare("work")
    await house.publish("work", "a")
    asked = {"count": 1, "ackmode": "ack_requeue_false", "encoding": "auto"}
    with monkeypatch.context() as patched:
        patched.setattr(contents, "describe", fail)
        with contextlib.suppress(ValueError):
            await house.call("POST", f"{WORK}/get", asked)
    assert await house.take("work", "peek") == ["a"]


@in_house()
async def test_deferred(house: House) -> None:
    await house.declare("work")
    queue = house.broker.vhosts.get("/").queue("work")
    now = house.clock.now_ms()
    for number in range(2):
        run = Run(now, [(Envelope("", "work", NO_PROPERTIES, NEUTRAL), b"%d" % number)])
        queue.publish(run, None, due_ms=now + 60_000 * (number + 1))
    await house.publish("work", "now")
    rows = await house.get(f"{WORK}/deferred")
    assert [(row["offset"], row["due"] - now) for row in rows] == [(0, 60_000), (1, 120_000)]
    assert (await house.get(WORK))["messages_deferred"] == 2
    assert await house.call("PUT", f"{WORK}/deferred/1", {"due": now}) == (204, None)
    assert await house.call("DELETE", f"{WORK}/deferred/0:0") == (204, None)
    await asyncio.sleep(0.1)
    assert await house.get(f"{WORK}/deferred") == []
    assert sorted(await house.take("work", "peek")) == ["1", "now"]
    assert (await house.call("DELETE", f"{WORK}/deferred/0"))[0] == 404
    assert (await house.call("PUT", f"{WORK}/deferred/0", {"due": 5}))[0] == 404
    assert (await house.call("PUT", f"{WORK}/deferred/0", {}))[0] == 400
    assert (await house.call("DELETE", f"{WORK}/deferred/x"))[0] == 400


@in_house()
async def test_what_waits_at_a_delayed_exchange(house: House) -> None:
    waiting = "/api/queues/%2F/amq.delayed/deferred"
    assert (await house.call("GET", waiting))[0] == 404
    await house.declare("work")
    late = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "fanout"}}
    assert (await house.call("PUT", "/api/exchanges/%2F/late", late))[0] == 201
    await house.call("POST", "/api/bindings/%2F/e/late/q/work", {})
    for number, delay_ms in enumerate((60_000, 90_000)):
        sent = {
            "routing_key": "",
            "payload": str(number),
            "payload_encoding": "string",
            "properties": {"headers": {"x-delay": delay_ms}},
        }
        assert (await house.call("POST", "/api/exchanges/%2F/late/publish", sent))[0] == 200
    rows = await house.get(waiting)
    assert [row["due"] // 1_000 - house.clock.now_ms() // 1_000 for row in rows] == [60, 90]
    assert await house.call("DELETE", f"{waiting}/{rows[0]['offset']}") == (204, None)
    due = {"due": house.clock.now_ms()}
    assert await house.call("PUT", f"{waiting}/{rows[1]['offset']}", due) == (204, None)
    await asyncio.sleep(0.1)
    assert await house.get(waiting) == []
    assert await house.take("work", "peek") == ["1"]
    assert (await house.call("GET", "/api/queues/%2F/amq.delayed"))[0] == 404


@in_house()
async def test_a_rewind_is_previewed(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b", "c", "d")
    queue = house.broker.vhosts.default.queue("work")
    owner = object()
    for _ in range(2):
        taken = queue.get(owner, auto_ack=False)
        assert taken is not None
    queue.settle(owner, 0, range(1))  # "b" is leased; "c" and "d" are ready.
    asked = {"offset": 0, "preview": True}
    assert await house.call("POST", f"{WORK}/rewind", asked) == (200, {"again": 2, "leased": 1})
    asked = {"offset": 2, "preview": True}
    assert await house.call("POST", f"{WORK}/rewind", asked) == (200, {"again": 0, "leased": 0})
    asked = {"time": 0, "preview": True}
    assert await house.call("POST", f"{WORK}/rewind", asked) == (200, {"again": 2, "leased": 1})
    assert await house.take("work", "peek") == ["c", "d"]  # Nothing has changed.
    assert (await house.call("POST", f"{WORK}/rewind", {"preview": True}))[0] == 400
