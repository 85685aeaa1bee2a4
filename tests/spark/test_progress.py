"""How far a query is behind, out of Spark's report."""

import json
from typing import Any

from entrepot.spark.progress import sources_behind


def report(*sources: dict[str, Any]) -> str:
    return json.dumps({"sources": sources})


def test_each_source_says_how_far_it_is_behind() -> None:
    one = {
        "endOffset": {"t": {"0": 5, "1": 20}},
        "latestOffset": {"t": {"0": 8, "1": 20}, "u": {"0": 9}},
    }
    assert sources_behind(report(one)) == [
        {
            "topics": ["t", "u"],
            "minOffsetsBehindLatest": 0,
            "maxOffsetsBehindLatest": 9,
            "avgOffsetsBehindLatest": 4.0,
        }
    ]


def test_what_has_no_such_offsets_is_empty() -> None:
    other = {"endOffset": 7, "latestOffset": 9}
    queue = {"endOffset": {"plan": "x"}, "latestOffset": {"plan": "x"}}
    idle = {"endOffset": None, "latestOffset": None}
    assert sources_behind(report(other, queue, idle)) == [{}, {}, {}]
    assert sources_behind(None) == []
