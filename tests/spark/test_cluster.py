"""A master and two workers of Spark's own, on loopback, with the package that is installed.

Everything is started and ended by its process id. The executors are on this machine, so
they find the package where the driver finds it.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

START_S_MAX = 90.0
RUN_S_MAX = 900.0
STOP_S_MAX = 30.0
RECORDS = 4_000
DRIVER = """
import sys
from entrepot.spark import prepare
prepare()
from pyspark.sql import SparkSession

master, bootstrap, place = sys.argv[1:]
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.log.level": "ERROR",
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
stream = spark.readStream.format("entrepot").options(**{
    "kafka.bootstrap.servers": bootstrap, "subscribe": "t",
    "startingOffsets": "earliest", "maxOffsetsPerTrigger": "1000", "minPartitions": "4",
})
# An executor has one process that all of its Python workers are children of.
spark.udf.register("executor", lambda: str(__import__("os").getppid()))
rows = stream.load().selectExpr("cast(value as string) value", "executor() executor")
query = rows.writeStream.format("parquet").option("path", place + "/rows")
query = query.option("checkpointLocation", place + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
found = spark.read.parquet(place + "/rows")
values = sorted(row.value for row in found.select("value").collect())
executors = found.select("executor").distinct().count()
print("rows", len(values), len(set(values)), "executors", executors)
spark.stop()
"""


@contextmanager
def started(name: str, place: Path, *arguments: str) -> Iterator[Path]:
    """One of Spark's servers; gives what it says."""
    import pyspark

    home = Path(pyspark.__file__).parent
    log = place / f"{name}.log"
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",  # Its port cannot be any.
        "SPARK_WORKER_DIR": str(place / name),
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S_MAX
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, log.read_text(errors="replace")[-2_000:]
        time.sleep(0.1)
    return found.group()


@pytest.mark.slow
@pytest.mark.timeout(1_200)
def test_a_stream_on_a_standalone_cluster(entrepot_broker: Broker, tmp_path: Path) -> None:
    from entrepot.spark import prepare
    from entrepot.spark.java import NoJava

    try:
        prepare()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    create(entrepot_broker, "t", 4)
    for partition in range(4):
        numbers = texts(RECORDS // 4, partition * RECORDS // 4)
        produce(entrepot_broker, "t", numbers, partition=partition)
    deploy, host = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--port", "0")
    web = ("--webui-port", "0")
    with ExitStack() as stack:
        arguments = (f"{deploy}.master.Master", *host, *web)
        log = stack.enter_context(started("master", tmp_path, *arguments))
        master = said(log, r"spark://127\.0\.0\.1:\d+")
        for name in ("one", "two"):
            sizes = ("--cores", "1", "--memory", "600m")
            arguments = (f"{deploy}.worker.Worker", *host, *web, *sizes, master)
            log = stack.enter_context(started(name, tmp_path, *arguments))
            said(log, "Successfully registered with master")
        command = [sys.executable, "-c", DRIVER, master, entrepot_broker.bootstrap, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert f"rows {RECORDS} {RECORDS} executors 2" in done.stdout, done.stderr[-3_000:]
