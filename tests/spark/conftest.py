"""One broker and one lean Spark session for all tests here; each keeps to its own topics.

Starting Spark takes longer than most of these tests, so those that use it run one after
the other in one process: the scheduler in tests/conftest.py knows their files. They are
slow, and skipped where there is no pyspark or no Java.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from entrepot.spark.connecting import Connected
from entrepot.spark.options import Address
from entrepot.testing import Broker, broker

LEAN = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
}


@pytest.hookimpl(tryfirst=True)  # Before tests are chosen by their marks.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(300))  # The first one starts Spark.
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture
def connected(server: Broker) -> Iterator[Connected]:
    with Connected(Address(server.bootstrap)) as made:
        yield made


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return itertools.count()


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, _numbers: Iterator[int]) -> Callable[..., str]:
    """A name nobody else has."""

    def make(name: str = "t") -> str:
        return f"{name}-{os.getpid()}-{next(_numbers)}"

    return make


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    sql = pytest.importorskip("pyspark.sql", reason="pip install 'entrepot[spark]' for this test")
    from entrepot.spark import prepare
    from entrepot.spark.java import NoJava

    try:
        prepare()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    builder = sql.SparkSession.builder.master("local[2]").appName("tests")
    for name, value in LEAN.items():
        builder = builder.config(name, value)
    place = tmp_path_factory.mktemp("spark")
    builder = builder.config("spark.sql.warehouse.dir", str(place / "warehouse"))
    builder = builder.config("spark.local.dir", str(place))
    assert os.environ["PYSPARK_PYTHON"] == sys.executable
    session = builder.getOrCreate()
    yield session
    session.stop()
