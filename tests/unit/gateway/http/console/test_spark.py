"""Queries of Spark, as they told of themselves."""

import json

from entrepot.core.record import Record
from tests.unit.gateway.http.console.test_topics import append_to
from tests.unit.gateway.http.management.house import House, in_house


def told(identity: str, time: int, state: str, **more: object) -> Record:
    said = {"id": identity, "time": time, "state": state} | more
    return Record(identity.encode(), json.dumps(said).encode(), ())


@in_house(asks=True)
async def test_the_newest_of_each_query_counts(house: House) -> None:
    assert (await house.get("/api/console/spark"))["items"] == []
    await house.broker.create_topic("spark.progress", 1)
    await append_to(
        house,
        "spark.progress",
        told("a", 1, "running", name="alerts"),
        told("a", 2, "running", name="alerts", batch=0, rows=7, topics=["t"], behind=3),
        told("b", 3, "running", name=None),
        Record(b"c", b"nonsense", ()),
        told("d", 4, "running", batch="seven"),
        told("a", 5, "failed", name="alerts", error="it broke"),
        Record(b"a", None, ()),
    )
    found = (await house.get("/api/console/spark?sort=time"))["items"]
    assert [(each["id"], each["state"]) for each in found] == [("b", "running"), ("a", "failed")]
    last = found[1]
    assert (last["batch"], last["rows"], last["topics"], last["behind"]) == (0, 7, ["t"], 3)
    assert last["error"] == "it broke"
    assert (await house.get("/api/console/spark?name=ALERT"))["filtered_count"] == 1
    await house.add_user("max")
    assert (await house.call("GET", "/api/console/spark", user="max"))[0] == 403
