"""A kill of the driver and one of the broker; `exactly_once` itself has as many as one likes."""

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.java import NoJava, find_java_home
from tests.spark.pipelines.exactly_once import run


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_nothing_is_lost_and_nothing_is_there_twice() -> None:
    try:
        find_java_home()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    outcome = run(records=2_000, kills=1, broker_kills=1, output="upsert")
    assert (outcome.lost, outcome.duplicated) == (0, 0)
