"""Where `groups reset-offsets` is told to go."""

import pytest

from entrepot.cli.group_offsets import ResetTarget, Row
from entrepot.cli.groups import parse_target
from entrepot.client.client import EARLIEST, LATEST, TopicPartition


@pytest.mark.parametrize(
    ("where", "target"),
    [
        ("earliest", ResetTarget(time=EARLIEST)),
        ("latest", ResetTarget(time=LATEST)),
        ("0", ResetTarget(offset=0)),
        ("17", ResetTarget(offset=17)),
        ("+3", ResetTarget(shift=3)),
        ("-3", ResetTarget(shift=-3)),
        ("1970-01-01T00:01:00Z", ResetTarget(time=60_000)),
        ("1970-01-01T01:00:00+01:00", ResetTarget(time=0)),
    ],
)
def test_places(where: str, target: ResetTarget) -> None:
    assert parse_target(where) == target


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (10, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag(committed: int | None, end: int | None, lag: int | None) -> None:
    assert Row(TopicPartition("t", 0), committed, end, None).lag == lag
