"""Where `groups reset-offsets` is told to go."""

import pytest

from entrepot.cli.group_offsets import Row, Target
from entrepot.cli.groups import parse_target
from entrepot.client.client import EARLIEST, LATEST, TopicPartition


@pytest.mark.parametrize(
    ("where", "target"),
    [
        ("earliest", Target(time=EARLIEST)),
        ("latest", Target(time=LATEST)),
        ("0", Target(offset=0)),
        ("17", Target(offset=17)),
        ("+3", Target(shift=3)),
        ("-3", Target(shift=-3)),
        ("1970-01-01T00:01:00Z", Target(time=60_000)),
        ("1970-01-01T01:00:00+01:00", Target(time=0)),
    ],
)
def test_places(where: str, target: Target) -> None:
    assert parse_target(where) == target


@pytest.mark.parametrize(
    ("committed", "end", "lag"), [(3, 10, 7), (10, 10, 0), (None, 10, None), (3, None, None)]
)
def test_lag(committed: int | None, end: int | None, lag: int | None) -> None:
    assert Row(TopicPartition("t", 0), committed, end, None).lag == lag
