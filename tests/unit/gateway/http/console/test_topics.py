"""Topics in the console: what is listed, shown, produced and read."""

import json
from base64 import b64encode
from typing import Any
from urllib.parse import urlencode

from entrepot.broker.served_partition import committed
from entrepot.core import batch
from entrepot.core.batch import Codec
from entrepot.core.record import Record
from entrepot.wire.http import limits as http_limits
from tests.unit.gateway.http.management.house import House, in_house


async def make(house: House, name: str = "t", partitions: int = 1, **settings: str) -> None:
    path, wanted = f"/api/console/topics/{name}", {"partitions": partitions}
    status, told = await house.call("PUT", path, wanted | {"settings": settings})
    assert status == 204, told


async def append(house: House, *records: Record, **how: Any) -> None:
    await append_to(house, "t", *records, **how)


async def append_to(
    house: House, name: str, *records: Record, partition: int = 0, **how: Any
) -> None:
    broker = house.broker
    served = broker.served_partition(broker.topic(name), partition)
    appended = served.append(batch.build(records, now_ms=house.clock.now_ms(), **how))
    await committed(served.partition, appended.offset_end)


async def read(house: House, **query: object) -> Any:
    return await house.get(f"/api/console/topics/t/records?{urlencode(query)}")


def values(found: Any) -> list[str]:
    return [row["value"]["text"] for row in found["records"]]


@in_house()
async def test_a_topic_is_made_listed_shown_and_deleted(house: House) -> None:
    await make(house, "orders", 3, **{"retention.ms": "1000"})
    await make(house, "other")
    await house.declare("a-queue")
    found = await house.get("/api/console/topics?sort=partitions&sort_reverse=true")
    assert [(row["name"], row["partitions"]) for row in found["items"]] == [
        ("orders", 3),
        ("other", 1),
    ]
    shown = await house.get("/api/console/topics/orders")
    assert len(shown["partition_details"]) == 3
    by_name = {each["name"]: each for each in shown["settings"]}
    assert by_name["retention.ms"]["source"] == "this topic"
    assert by_name["cleanup.policy"]["source"] == "default"
    assert (await house.get("/api/console/topics/a-queue"))["may"]["write"] is False
    assert (await house.call("PUT", "/api/console/topics/orders", {}))[0] == 400
    assert (await house.call("DELETE", "/api/console/topics/orders"))[0] == 204
    assert (await house.call("GET", "/api/console/topics/orders"))[0] == 404
    assert (await house.call("DELETE", "/api/console/topics/a-queue"))[0] == 400


@in_house()
async def test_a_topic_is_altered(house: House) -> None:
    await make(house, "orders", 1, **{"retention.ms": "1000"})
    await house.declare("a-queue")
    path = "/api/console/topics/orders"
    put, post = "PUT", "POST"
    assert (await house.call(put, f"{path}/settings/segment.ms", {"value": "5000"}))[0] == 204
    assert (await house.call(put, f"{path}/settings/retention.ms", {"value": None}))[0] == 204
    shown = await house.get(path)
    own = {each["name"]: each["value"] for each in shown["settings"] if each["source"] != "default"}
    assert own == {"segment.ms": "5000"}
    for name, value in (("segment.ms", "soon"), ("nothing", "1"), ("min.insync.replicas", "2")):
        status, told = await house.call(put, f"{path}/settings/{name}", {"value": value})
        assert status == 400, told
    assert (await house.call(post, f"{path}/partitions", {"count": 3}))[0] == 204
    assert (await house.get(path))["partitions"] == 3
    assert (await house.call(post, f"{path}/partitions", {"count": 2}))[0] == 400
    for name in ("a-queue", "__consumer_offsets"):
        path = f"/api/console/topics/{name}"
        assert (await house.call(post, f"{path}/partitions", {"count": 9}))[0] >= 400
        assert (await house.call(put, f"{path}/settings/retention.ms", {"value": "1"}))[0] >= 400


@in_house(asks=True)
async def test_who_may_not_alter_a_topic(house: House) -> None:
    await house.broker.create_topic("t", 1)
    await house.add_user("ann")
    path = "/api/console/topics/t"
    for method, rest, body in (
        ("PUT", "/settings/retention.ms", {"value": "1"}),
        ("POST", "/partitions", {"count": 9}),
        ("GET", "/groups", None),
    ):
        assert (await house.call(method, path + rest, body, user="ann"))[0] == 403


@in_house()
async def test_what_is_produced_is_read(house: House) -> None:
    await make(house)
    path = "/api/console/topics/t/records"
    raw = bytes(range(256))
    for body in (
        {"key": "k", "value": "v", "headers": {"h": "x"}},
        {"value_base64": b64encode(raw).decode()},
        {"key": "gone"},
    ):
        status, told = await house.call("POST", path, body)
        assert (status, told["partition"]) == (200, 0)
    first, second, third = (await read(house))["records"]
    assert first["key"] == {"bytes": 1, "text": "k"}
    assert first["headers"] == [["h", {"bytes": 1, "text": "x"}]]
    assert second["value"] == {"bytes": 256, "base64": b64encode(raw).decode()}
    assert third["value"] is None
    for wrong in ({"value": "\ud800"}, {"value_base64": "!"}, {"partition": 9, "value": "x"}):
        assert (await house.call("POST", path, wrong))[0] in (400, 404), wrong


@in_house()
async def test_pages_go_on_where_the_last_has_ended(house: House) -> None:
    await make(house, partitions=2)
    now_ms = house.clock.now_ms()
    for number in range(60):
        record = Record(None, b"%d" % number, (), now_ms + number)
        await append(house, record, partition=number % 2)
    assert len(values(await read(house, count=100))) == 60
    seen: list[str] = []
    found = await read(house, count=20)
    while True:
        seen += values(found)
        if not found["next"]:
            break
        found = await read(house, count=20, next=found["next"])
    assert sorted(map(int, seen)) == [*range(60)]
    assert values(await read(house, **{"from": "last", "count": 4})) == ["56", "57", "58", "59"]
    assert values(await read(house, partition=1, offset=28)) == ["57", "59"]
    assert len(values(await read(house, time=now_ms + 50))) == 10


@in_house()
async def test_a_search_is_bounded_and_goes_on(house: House) -> None:
    await make(house)
    count = http_limits.READER_SCANNED_MAX + 10
    await append(house, *(Record(b"k%d" % n, b"v%d" % n) for n in range(count)), codec=Codec.ZSTD)
    found = await read(house, text=f"v{count - 1}")
    assert (found["records"], found["scanned"]) == ([], http_limits.READER_SCANNED_MAX)
    found = await read(house, text=f"V{count - 1}", next=found["next"])
    assert values(found) == [f"v{count - 1}"]
    assert found["next"] == ""
    assert values(await read(house, key="k77", count=1)) == ["v77"]


@in_house()
async def test_text_is_found_in_headers_and_with_escapes(house: House) -> None:
    await make(house)
    await append(house, Record(None, json.dumps({"name": "Zoë"}).encode(), ()))
    await append(house, Record(None, b"other", (("h", b"needle"),)))
    assert len((await read(house, text="zoë"))["records"]) == 1
    assert values(await read(house, text="NEEDLE")) == ["other"]


@in_house()
async def test_long_values_are_cut_in_lists(house: House) -> None:
    await make(house, **{"max.message.bytes": "20000000"})
    long = "é" * 600_000  # Cut in the middle of a letter, or not.
    await append(house, Record(None, b"x" + long.encode()))
    (row,) = (await read(house))["records"]
    assert row["value"]["bytes"] == 1_200_001
    assert 0 <= http_limits.READER_VALUE_BYTES_MAX - len(row["value"]["text"].encode()) <= 1
    whole = await house.get("/api/console/topics/t/records/0/0")
    assert len(whole["value"]["text"].encode()) > 1_000_000
    assert (await house.call("GET", "/api/console/topics/t/records/0/7"))[0] == 400
    assert (await house.call("GET", "/api/console/topics/t/records/7/0"))[0] == 404


@in_house()
async def test_queries_that_make_no_sense(house: House) -> None:
    await make(house)
    for wrong in ("offset=x", "time=-1", "partition=a", "next=0", "next=0:x", "count=x"):
        status, _ = await house.call("GET", f"/api/console/topics/t/records?{wrong}")
        assert status == 400, wrong
    assert (await house.call("GET", "/api/console/topics/t/records?partition=5"))[0] == 404


@in_house(asks=True)
async def test_others_see_nothing(house: House) -> None:
    await make(house)
    await house.add_user("ann")
    for method, path in (
        ("GET", "t"),
        ("GET", "t/records"),
        ("POST", "t/records"),
        ("DELETE", "t"),
        ("PUT", "new"),
    ):
        assert (await house.call(method, f"/api/console/topics/{path}", {}, user="ann"))[0] == 403
    assert (await house.call("GET", "/api/console/topics", user="ann"))[1]["items"] == []
