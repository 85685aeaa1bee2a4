"""Proves N-05: consume, transform, produce exactly once, through kill -9 of all involved."""

import pytest

from tests.end_to_end.exactly_once import experiment


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_many_records(protocol: str) -> None:
    outcome = experiment(100_000, 10, protocol=protocol)
    assert (outcome.lost, outcome.duplicated, outcome.misplaced) == (0, 0, 0), outcome
    assert outcome.workers_killed == outcome.brokers_killed == 10
    assert outcome.aborted > 0, "nothing went wrong on the way: the kills came too late"
