"""What the broker is told of queries of Spark, by a real Spark, as its console lists it."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

from entrepot.spark.reporting import Reports
from entrepot.testing import Broker, broker
from tests.spark.producing import create, produce, texts
from tests.spark.test_source import start, wait_for

pytestmark = pytest.mark.slow


def listed(server: Broker) -> dict[str, dict[str, Any]]:
    login = b64encode(b"guest:guest").decode()
    asked = Request(
        f"http://{server.http_address}/api/console/spark",
        headers={"Authorization": f"Basic {login}"},
    )
    with urlopen(asked, timeout=10) as answer:
        return {each["sink"] or each["id"]: each for each in json.load(answer)["items"]}


def test_a_query_tells_of_itself(spark: Any, tmp_path: Path) -> None:
    def fail(frame: Any, number: int) -> None:
        raise RuntimeError("it broke")

    with broker(settings={"ports.http": 0}) as server:
        create(server, "t", 2)
        produce(server, "t", texts(300))
        reports = Reports(server.bootstrap)
        spark.streams.addListener(reports)
        try:
            wanted = {"subscribe": "t", "startingOffsets": "earliest"}
            query = start(spark, server, tmp_path / "a", lambda frame, _: frame.collect(), **wanted)
            assert query.awaitTermination(60)
            wait_for(lambda: [each["state"] for each in listed(server).values()] == ["ended"])
            (told,) = listed(server).values()
            assert (told["rows"], told["topics"], told["behind"]) == (300, ["t"], 0)
            assert told["id"] == str(query.id)
            failing = start(spark, server, tmp_path / "b", fail, **wanted)
            wait_for(lambda: failing.exception() is not None)
            wait_for(lambda: "failed" in [each["state"] for each in listed(server).values()])
            (said,) = [each for each in listed(server).values() if each["state"] == "failed"]
            assert "it broke" in said["error"]
        finally:
            spark.streams.removeListener(reports)
            reports.close()
