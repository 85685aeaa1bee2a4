"""Groups in the console: how far they are, and a reset that is looked at first."""

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset, assigned_partitions
from entrepot.broker.served_partition import committed
from entrepot.core import batch
from entrepot.core.record import Record
from tests.unit.gateway.http.management.house import House, in_house


async def fill(house: House, count: int = 10) -> int:
    """Make a topic with records, one each second, and a group that has read three of them.

    Return the time of the first.
    """
    await house.broker.create_topic("t", 2)
    now_ms = house.clock.now_ms()
    for index in range(2):
        served = house.broker.served_partition(house.broker.topic("t"), index)
        for number in range(count):
            record = Record(None, b"x", (), now_ms + number * 1_000)
            appended = served.append(batch.build([record], now_ms=now_ms))
        await committed(served.partition, appended.offset_end)
    place = TopicPartition("t", 0)
    await house.broker.groups.commit_offsets("g", "", -1, {place: CommittedOffset(3, -1, "", 0)})
    return now_ms


@in_house()
async def test_lag_is_shown_and_sorted_by(house: House) -> None:
    await fill(house)
    place = TopicPartition("t", 1)
    await house.broker.groups.commit_offsets("h", "", -1, {place: CommittedOffset(9, -1, "", 0)})
    found = await house.get("/api/console/groups?sort=lag&sort_reverse=true")
    assert [(row["name"], row["lag"]) for row in found["items"]] == [("g", 7), ("h", 1)]
    shown = await house.get("/api/console/groups/g")
    assert (shown["lag"], shown["members"], shown["kind"]) == (7, [], "classic")
    (row,) = shown["partitions"]
    assert (row["topic"], row["partition"], row["offset"], row["end"]) == ("t", 0, 3, 10)
    assert (await house.call("GET", "/api/console/groups/nobody"))[0] == 404


@in_house()
async def test_a_reset_is_looked_at_before(house: House) -> None:
    first_ms = await fill(house)
    path = "/api/console/groups/g/reset"
    for wanted, offset in (
        ({"to": "first"}, 0),
        ({"to": "last"}, 10),
        ({"offset": 5}, 5),
        ({"offset": 99}, 10),
        ({"time": first_ms + 4_500}, 5),
    ):
        status, told = await house.call("POST", path, wanted)
        assert (status, told["done"], told["changes"][0]["to"]) == (200, False, offset), wanted
    shown = await house.get("/api/console/groups/g")
    assert shown["partitions"][0]["offset"] == 3  # Nothing was changed so far.
    _, told = await house.call("POST", path, {"offset": 5, "confirm": True, "topic": "other"})
    assert told["changes"] == []
    _, told = await house.call("POST", path, {"to": "first", "confirm": True})
    assert (told["done"], told["changes"][0]["again"]) == (True, 3)
    assert (await house.get("/api/console/groups/g"))["partitions"][0]["offset"] == 0
    assert (await house.call("POST", path, {"to": "elsewhere"}))[0] == 400
    assert (await house.call("DELETE", "/api/console/groups/g"))[0] == 204
    assert (await house.get("/api/console/groups"))["items"] == []


@in_house()
async def test_a_share_group(house: House) -> None:
    await fill(house)
    topic = house.broker.topic("t")
    await house.broker.share_groups.alter_offsets("s", [(topic, {0: 4, 1: 10})])
    shown = await house.get("/api/console/groups/s")
    assert (shown["kind"], shown["lag"]) == ("share", 6)
    body = {"to": "first", "partition": 0, "confirm": True}
    _, told = await house.call("POST", "/api/console/groups/s/reset", body)
    assert [row["to"] for row in told["changes"]] == [0]
    assert (await house.get("/api/console/groups/s"))["lag"] == 10


@in_house(asks=True)
async def test_others_see_and_change_nothing(house: House) -> None:
    await fill(house)
    await house.add_user("ann")
    path = "/api/console/groups"
    assert (await house.call("GET", path, user="ann"))[1]["items"] == []
    for method, rest in (("GET", "/g"), ("POST", "/g/reset"), ("DELETE", "/g")):
        assert (await house.call(method, path + rest, {}, user="ann"))[0] == 403


@in_house()
async def test_who_reads_a_topic(house: House) -> None:
    await fill(house)
    await house.broker.create_topic("other", 1)
    places = {TopicPartition("t", 1): 9, TopicPartition("other", 0): 0}
    offsets = {place: CommittedOffset(each, -1, "", 0) for place, each in places.items()}
    await house.broker.groups.commit_offsets("h", "", -1, offsets)
    found = await house.get("/api/console/topics/t/groups")
    rows = [(row["group"], row["partition"], row["lag"]) for row in found["items"]]
    assert (rows, found["cut"]) == ([("g", 0, 7), ("h", 1, 1)], False)
    assert (await house.call("GET", "/api/console/topics/none/groups"))[0] == 404


def test_an_assignment_that_is_none() -> None:
    wanted = b"\0\1" + b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\3\0\0\0\1" + b"\xff" * 4
    assert assigned_partitions(wanted) == {"t": (3, 1)}
    for damaged in (b"", wanted[:-5], wanted[:6], b"\0\1\x7f\xff\xff\xff", b"\xff" * 30):
        assert assigned_partitions(damaged) == {}
