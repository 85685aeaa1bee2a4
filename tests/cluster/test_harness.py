"""A few rounds of the harness: a broker alone, and a cluster."""

from pathlib import Path

import pytest

from tests.cluster.harness import run
from tests.cluster.world import has_etcd

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def test_a_broker_alone(tmp_path: Path) -> None:
    outcome = run(tmp_path, rounds=2, nodes=1, fault_s=1.0, seed=3)
    assert outcome.is_good, outcome.text()
    assert len(outcome.history.acknowledged) > 50
    assert len(outcome.history.committed) > 5
    assert outcome.confirmed > 20


@pytest.mark.skipif(not has_etcd(), reason="needs etcd")
def test_three_nodes(tmp_path: Path) -> None:
    outcome = run(tmp_path, rounds=4, with_queues=False, with_transactions=False, fault_s=2.0)
    assert outcome.is_good, outcome.text()
    assert len(outcome.history.acknowledged) > 100
    assert len(outcome.history.seen) > 100
