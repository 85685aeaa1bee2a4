"""What messages are compared with, each as two real processes: `bench.baselines`."""

import pytest

from bench import baselines

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

MESSAGES = 20


def test_each_way_there_and_back() -> None:
    """Proves SYS-46: sockets, remote calls, REST, and queues in memory and on disk."""
    found = {name: (times, waits, survives) for name, times, waits, survives in rows()}
    for name, (times, _, _) in found.items():
        assert name == "MPI" or (times is not None and len(times) == MESSAGES), name
    assert [name for name, (_, waits, _) in found.items() if waits] == [
        "entrepot, in memory",
        "entrepot, on disk",
    ]
    assert [name for name, (_, _, survives) in found.items() if survives] == ["entrepot, on disk"]


def rows() -> list[tuple[str, list[float] | None, bool, bool]]:
    return list(baselines.measure(MESSAGES))


def test_mpi() -> None:
    """Proves SYS-46: MPI."""
    times = baselines.by_mpi(MESSAGES)
    if times is None:
        pytest.skip("pip install mpi4py mpich")
    assert len(times) == MESSAGES
