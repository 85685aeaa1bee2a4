"""What every test shares: hypothesis without deadlines, seeds, and who runs what.

A test that takes `seed` runs once per seed. `--seeds` says how many, `--seed-first`
where to begin, so a failure `[seed=17]` replays with `--seed-first 17 --seeds 1`.
"""

import signal
from typing import Any

import pytest
from hypothesis import settings

# Tests that share one Spark session, or start Java themselves: two cores have room for one.
ON_SPARK = (
    "tests/spark/pipelines/test_bad_input.py",
    "tests/spark/pipelines/test_exactly_once.py",
    "tests/spark/pipelines/test_ready_",
    "tests/spark/pipelines/test_runner.py",
    "tests/spark/pipelines/test_streams.py",
    "tests/spark/pipelines/test_tables.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_queues_in_spark.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_source.py",
)

# A run in the background may have inherited deaf ears, and would pass them on to the
# commands that tests end with Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is not a bug: no deadlines. A failure prints what reproduces it.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, default=20, help="how many seeds a test gets")
    group.addoption("--seed-first", type=int, default=0, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    first = metafunc.config.getoption("--seed-first")
    seeds = range(first, first + metafunc.config.getoption("--seeds"))
    metafunc.parametrize("seed", seeds, ids=lambda seed: f"seed={seed}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Each test goes to whoever is free, but those on Spark all to the same process."""
    if config.getvalue("dist") != "worksteal":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class OneSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if nodeid.startswith(ON_SPARK) else nodeid

    return OneSpark(config, log)
