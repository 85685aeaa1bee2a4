"""What every test shares: how hypothesis searches, seeds, and who runs what.

A test that takes `seed` runs with seeds 0 to 19, of which all but the first are
marked slow. `--seeds` says how many instead, none of them slow, and `--seed-first` where
to begin, so a failure `[seed=17]` replays with `--seed-first 17 --seeds 1`.
"""

import gc
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

from entrepot.testing import Broker
from tests import forking

# Tests that share one Spark session, or start Java themselves: two cores have room for one.
ON_SPARK = (
    "tests/spark/pipelines/test_bad_input.py",
    "tests/spark/pipelines/test_batch_progress.py",
    "tests/spark/pipelines/test_exactly_once.py",
    "tests/spark/pipelines/test_queues.py",
    "tests/spark/pipelines/test_ready_",
    "tests/spark/pipelines/test_runner.py",
    "tests/spark/pipelines/test_streams.py",
    "tests/spark/pipelines/test_tables.py",
    "tests/spark/test_cluster.py",
    "tests/spark/test_exactly_once.py",
    "tests/spark/test_formats.py",
    "tests/spark/test_interrupts.py",
    "tests/spark/test_queues_in_spark.py",
    "tests/spark/test_sink.py",
    "tests/spark/test_source.py",
    "tests/spark/test_tier_in_spark.py",
    "tests/test_guides.py::test_page_runs[docs/guides/pipelines.md",
    "tests/test_guides.py::test_page_runs[docs/guides/spark.md",
    "tests/test_guides.py::test_page_runs[docs/guides/streams.md",
)

SEEDS = 20
SEEDS_QUICK = 1  # Of these, without the mark.

# A run in the background may have inherited deaf ears, and would pass them on to the
# commands that tests end with Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is not a bug: no deadlines. A failure prints what reproduces it.
settings.register_profile("house", deadline=None, print_blob=True, max_examples=50)
settings.register_profile("thorough", settings.get_profile("house"), max_examples=500)
settings.load_profile("house")

_launch_command = Broker._launch


def _launch(broker: Broker) -> Any:
    return forking.launch(broker) or _launch_command(broker)


Broker._launch = _launch  # type: ignore[method-assign]


@pytest.fixture
def true_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers are started as everybody else starts them."""
    monkeypatch.setattr(Broker, "_launch", _launch_command)


@pytest.fixture(
    params=["fsync", *(pytest.param(each, marks=pytest.mark.slow) for each in ("interval", "os"))]
)
def every_durability(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Brokers that are started without a durability have this one: they are three products."""
    command = Broker._command

    def _command(broker: Broker) -> list[str]:
        broker._settings.setdefault("durability", request.param)
        return command(broker)

    monkeypatch.setattr(Broker, "_command", _command)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seeds")
    group.addoption("--seeds", type=int, help=f"how many seeds a test gets: {SEEDS}")
    group.addoption("--seed-first", type=int, default=0, help="the first of them")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" not in metafunc.fixturenames:
        return
    first = metafunc.config.getoption("--seed-first")
    asked_for = metafunc.config.getoption("--seeds")
    seeds = range(first, first + (asked_for or SEEDS))
    quick = seeds if asked_for else seeds[:SEEDS_QUICK]
    metafunc.parametrize("seed", [with_mark(seed, seed in quick) for seed in seeds])


def with_mark(seed: int, is_quick: bool) -> Any:
    return pytest.param(seed, id=f"seed={seed}", marks=() if is_quick else pytest.mark.slow)


def pytest_configure(config: pytest.Config) -> None:
    """Let each process of a whole run begin with other files.

    All processes import all files, and the first to see a file after a change compiles it,
    which takes longer than the rest: so they share that, and do not do it all at the same time.
    """
    worker = getattr(config, "workerinput", None)
    tests = config.rootpath / "tests"
    if worker is None or [config.invocation_params.dir / each for each in config.args] != [tests]:
        return
    files = sorted(map(str, tests.rglob("test_*.py")))
    number = int(worker["workerid"].removeprefix("gw"))
    start = number * len(files) // worker["workercount"]
    config.args = files[start:] + files[:start]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Look for garbage only in what comes later: all that is made now stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's first: they go one after the other, which takes longest. Then by the file."""
    items.sort(key=lambda item: (not item.nodeid.startswith(ON_SPARK), _file_of(item.nodeid)))


def _file_of(nodeid: str) -> str:
    return nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests go to whoever is free, but those on Spark all to the same process.

    Quick ones go by the file, whose broker is then started once; slow ones one by one.
    """
    if config.getvalue("dist") != "worksteal":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # The order is good: what takes long comes first.
    by_file = config.getvalue("markexpr") == "not slow"

    class OneSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            if nodeid.startswith(ON_SPARK):
                return "spark"
            return _file_of(nodeid) if by_file else nodeid

    return OneSpark(config, log)
