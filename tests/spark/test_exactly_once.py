"""A kill of the driver and one of the broker; `exactly_once` itself has as many as one likes,
also of values in Avro. In the queue there is poison, which ends the query some times more.
"""

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from entrepot.spark.java import NoJava, find_java_home
from tests.spark.exactly_once import POISON, run


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize(
    ("source", "records"), [("topic", 2_000), ("tier", 8_000), ("queue", 1_000)]
)
def test_nothing_is_lost_and_nothing_is_there_twice(source: str, records: int) -> None:
    try:
        find_java_home()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    outcome = run(records, kills=1, broker_kills=1, source=source)
    assert (outcome.lost, outcome.duplicated) == (0, 0)
    assert outcome.dead == ((POISON,) if source == "queue" else ())
