"""A tuple space on three real nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.spaces import run
from tests.cluster.world import has_etcd


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.skipif(not has_etcd(), reason="needs etcd")
def test_no_tuple_is_taken_twice_and_none_is_lost(tmp_path: Path) -> None:
    """`python -m tests.cluster.spaces` does it with 100,000 tuples and ten takers."""
    outcome = run(tmp_path, tuples=4_000, takers=4, kill_every=2_000)
    assert outcome.is_good, outcome.text()
    assert outcome.kills == 2
