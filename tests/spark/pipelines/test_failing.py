"""What Spark says in hundreds of lines, in one. Without Spark."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.pipelines.failing import reason_of

OF_PYTHON = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_…] Error
Traceback (most recent call last):
  File "a.py", line 3, in f
    raise KeyError(1)
KeyError: 1

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/lib/python3.12/site-packages/entrepot/spark/offsets.py", line 69, in partitions_of
    raise MissingTopic(f"{topic.about} does not exist")
entrepot.spark.offsets.MissingTopic: topic orders does not exist

 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: sales/1
"""
OF_A_USER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted \
due to stage failure: org.apache.spark.PythonException: Traceback (most recent call last):
  File "/opt/lib/python3.12/site-packages/pyspark/worker.py", line 2_000, in main
    process()
  File "/srv/shop.py", line 12, in price
    return cents / 0
           ~~~~~~^~~
  File "/usr/lib/python3.12/decimal.py", line 7, in divide
ZeroDivisionError: division by zero

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(x.scala:1)
"""
OF_A_TASK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted \
due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task 0.0 in \
stage 3.0 (TID 3) (localhost executor driver): org.apache.spark.SparkRuntimeException: \
[USER_RAISED_EXCEPTION] a negative price SQLSTATE: P0001
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.raiseError(QueryExecutionErrors.scala:2)
Caused by: x
"""
OF_THE_DISK = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: \
java.io.IOException: No space left on device SQLSTATE: XXKST"""


OF_A_WORKER = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python \
worker failed to connect back. SQLSTATE: XXKST
=== Streaming Query ==="""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (OF_PYTHON, "topic orders does not exist"),
        (OF_A_TASK, "a negative price"),
        (OF_A_USER, "ZeroDivisionError: division by zero (/srv/shop.py, line 12)"),
        (OF_A_WORKER, "Python worker failed to connect back."),
        (OF_THE_DISK, "no space is left on the device where it keeps its checkpoint and its view"),
        ("[UNRESOLVED_COLUMN.X] No column `a`. SQLSTATE: 42703;\n'Project ['a]", "No column `a`."),
        ("plain\nand more", "plain"),
        ("", "ValueError"),
    ],
)
def test_the_reason_is_what_was_meant_for_people(text: str, reason: str) -> None:
    assert reason_of(ValueError(text)) == reason


def test_a_function_that_fails_on_the_driver_names_its_line(tmp_path: Path) -> None:
    from entrepot.spark.errors import PipelineError
    from entrepot.spark.pipelines.loading import load
    from entrepot.spark.pipelines.planning import apply

    path = tmp_path / "failing_shop.py"
    path.write_text(
        "from entrepot.spark.pipelines import Topic, pipeline\n"
        "@pipeline(reads=Topic('t'))\n"
        "def shop(records):\n"
        "    return {}['nothing']\n"
    )
    words = re.escape(f"pipeline shop: KeyError: 'nothing' ({path}, line 4)")
    with pytest.raises(PipelineError, match=words):
        apply(load(str(path)).shop, [None])
