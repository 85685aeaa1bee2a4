"""How far a running query is behind, out of what Spark reports of it.

Spark's own Kafka source reports this as metrics of the source. A source in Python can neither
report metrics nor say how it is described; but Spark reports the offsets that it has seen, and
the difference is here, under the names of Spark's source.
"""

import json
from collections.abc import Mapping
from typing import Any


def sources_behind(progress: Any) -> list[dict[str, Any]]:
    """Return for each source of `query.lastProgress` which topics it reads, and how many offsets
    its partitions are behind their ends: at least, at most and on average.

    For a source that is not of this package the entry is empty. Without progress there are none.
    """
    if progress is None:
        return []
    report = json.loads(progress if isinstance(progress, str) else progress.json)
    return [_behind(source) for source in report["sources"]]


def _behind(source: Mapping[str, Any]) -> dict[str, Any]:
    latest, end = source.get("latestOffset"), source.get("endOffset")
    if not _is_offsets(latest) or not _is_offsets(end):
        return {}
    assert latest is not None
    assert end is not None
    behind = [
        max(0, offset - end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    ]
    return {
        "topics": sorted(latest),
        "minOffsetsBehindLatest": min(behind),
        "maxOffsetsBehindLatest": max(behind),
        "avgOffsetsBehindLatest": sum(behind) / len(behind),
    }


def _is_offsets(value: object) -> bool:
    """Return whether it is `{"topic": {"0": 23}}`, which the offsets of a topic's source are."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(
            isinstance(each, dict) and each and all(isinstance(n, int) for n in each.values())
            for each in value.values()
        )
    )
