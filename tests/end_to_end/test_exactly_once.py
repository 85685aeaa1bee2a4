"""Proves N-05: consume, transform, produce exactly once, through kill -9 of all involved."""

import pytest

from tests.end_to_end.exactly_once import experiment


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("protocol", "durability", "records", "kills"),
    [
        ("classic", "fsync", 100_000, 10),
        ("consumer", "fsync", 100_000, 10),
        ("classic", "os", 20_000, 3),
        ("classic", "interval", 20_000, 3),
        ("consumer", "os", 20_000, 3),
        ("consumer", "interval", 20_000, 3),
    ],
)
def test_many_records(protocol: str, durability: str, records: int, kills: int) -> None:
    outcome = experiment(records, kills, protocol=protocol, durability=durability)
    assert (outcome.lost, outcome.duplicated, outcome.misplaced) == (0, 0, 0), outcome
    assert outcome.workers_killed == outcome.brokers_killed == kills
    assert outcome.aborted > 0, "nothing went wrong on the way: the kills came too late"
