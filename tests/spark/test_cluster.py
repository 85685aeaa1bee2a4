"""A master and two workers of Spark's own, on loopback.

Everything is started and ended by its process id. The executors are on this machine, so
they find the package where the driver finds it; unless the driver's Python is hidden from
them, in a view of the file system of their own.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

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


SHOP = """
import sys
from pyspark.sql import functions as F
from entrepot.spark.pipelines import Topic, pipeline

@F.udf("string")
def python():
    return sys.executable

@pipeline(reads=Topic("t"))
def copies(records):
    return records.select(F.col("value").cast("string").alias("value"), python().alias("python"))
"""
# What an executor needs of what is installed here; the rest would only take its time.
PACKED = (
    "arro3", "click", "cramjam", "crc32c", "dateutil", "deltalake", "entrepot", "kio", "msgspec",
    "numpy", "pandas", "phantom", "py4j", "pyarrow", "pyspark", "pyspark_entrepot", "pytz", "six",
    "typing_extensions", "tzdata", "uvloop",
)  # fmt: skip
HIDE = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


class Server(NamedTuple):
    log: Path
    process: "subprocess.Popen[bytes]"


@contextmanager
def started(
    name: str, place: Path, *arguments: str, within: tuple[str, ...] = ()
) -> Iterator[Server]:
    """One of Spark's servers, `within` another command; gives what it says."""
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
            [*within, str(home / "bin" / "spark-class"), *arguments],
            stdout=output,
            stderr=output,
            env=environment,
        )
    try:
        yield Server(log, process)
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


@contextmanager
def cluster(place: Path, within: tuple[str, ...] = ()) -> Iterator[tuple[str, list[Server]]]:
    """The master's address, and two workers of one core each."""
    deploy, host = "org.apache.spark.deploy", ("--host", "127.0.0.1", "--port", "0")
    web = ("--webui-port", "0")
    with ExitStack() as stack:
        arguments = (f"{deploy}.master.Master", *host, *web)
        log = stack.enter_context(started("master", place, *arguments)).log
        master = said(log, r"spark://127\.0\.0\.1:\d+")
        workers = []
        for name in ("one", "two"):
            sizes = ("--cores", "1", "--memory", "600m")
            arguments = (f"{deploy}.worker.Worker", *host, *web, *sizes, master)
            worker = stack.enter_context(started(name, place, *arguments, within=within))
            said(worker.log, "Successfully registered with master")
            workers.append(worker)
        yield master, workers


@pytest.fixture
def _java() -> None:
    from entrepot.spark import prepare
    from entrepot.spark.java import NoJava

    try:
        prepare()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")


def fill(broker: Broker) -> None:
    create(broker, "t", 4)
    for partition in range(4):
        numbers = texts(RECORDS // 4, partition * RECORDS // 4)
        produce(broker, "t", numbers, partition=partition)


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.usefixtures("_java")
def test_a_stream_on_a_standalone_cluster(entrepot_broker: Broker, tmp_path: Path) -> None:
    fill(entrepot_broker)
    with cluster(tmp_path) as (master, _):
        command = [sys.executable, "-c", DRIVER, master, entrepot_broker.bootstrap, str(tmp_path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert f"rows {RECORDS} {RECORDS} executors 2" in done.stdout, done.stderr[-3_000:]


# --- a Python that executors do not have


def hiding(directory: Path, place: Path) -> tuple[str, ...]:
    """A command that hides a directory from what it starts."""
    empty = place / "empty"
    empty.mkdir()
    command = ("unshare", "--mount", "sh", "-c", HIDE, "sh", str(empty), str(directory))
    try:
        tried = subprocess.run([*command, "true"], capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if tried.returncode != 0:
        pytest.skip(f"a directory cannot be hidden: {tried.stderr.strip()}")
    return command


def pack(place: Path) -> Path:
    import sysconfig

    archive = place / "environment.tar.gz"
    there = {each.name.partition(".")[0] for each in Path(sysconfig.get_path("purelib")).iterdir()}
    without = [
        f"--without={name}" for name in sorted(there) if name.partition("-")[0] not in PACKED
    ]
    command = [sys.executable, "-m", "entrepot.cli", "pipeline", "pack", "-o", str(archive)]
    subprocess.run([*command, *without], check=True, timeout=RUN_S_MAX)
    return archive


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.usefixtures("_java")
def test_executors_run_the_packed_python_and_one_of_them_is_lost(
    entrepot_broker: Broker, tmp_path: Path
) -> None:
    from entrepot.spark.pipelines.tables import stream_files

    fill(entrepot_broker)
    shop = tmp_path / "packed_shop.py"
    shop.write_text(SHOP)
    archive = pack(tmp_path)
    settings = ("spark.driver.host=127.0.0.1", "spark.driver.bindAddress=127.0.0.1",
                "spark.executor.memory=512m", "spark.executor.cores=1")  # fmt: skip
    with cluster(tmp_path, hiding(Path(sys.executable).parent, tmp_path)) as (master, workers):
        command = [sys.executable, "-m", "entrepot.cli", "pipeline", "run", str(shop), "--replay",
                   "--master", master, "--archive", str(archive), "--dir", str(tmp_path / "views"),
                   "-b", entrepot_broker.bootstrap, "--max-rows", "500",
                   *(f"--conf={each}" for each in settings)]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
            assert run.stdout is not None
            first = run.stdout.readline()
            workers[0].process.send_signal(signal.SIGKILL)
            rest, errors = run.communicate(timeout=RUN_S_MAX)
    assert b"copies v1 batch 0: 500 rows" in first, errors.decode()[-3_000:]
    assert run.returncode == 0, (rest, errors.decode()[-3_000:])
    import pyarrow.parquet as pq

    files = stream_files(tmp_path / "views" / "copies" / "1" / "table")
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert sorted(row["value"] for row in rows) == sorted(texts(RECORDS))
    places = {str(Path(row["python"]).relative_to(tmp_path)).split("/")[0] for row in rows}
    assert "two" in places
    assert places <= {"one", "two"}
