"""How long a live run of pipelines takes to start, and what that costs.

    python -m bench.spark_start                       one pipeline, and six
    python -m bench.spark_start --pipelines 1 --runs 3 --conf spark.driver.extraJavaOptions=

A broker, a topic of 1,000 records, and `entrepot pipeline run --live` in a process of its own:
sums per customer, kept in RocksDB, into Delta tables. Wall time is until a line is printed;
processor time, of Java and of all processes of Python, is the sturdier figure on a machine that
is not idle.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
from confluent_kafka import Producer

from entrepot.testing import broker

RECORDS = 1_000
WAIT_S = 60
FILE = """
from pyspark.sql import functions as F
from entrepot.spark.pipelines import Delta, Topic, pipeline

orders = Topic("orders", schema="customer string, cents bigint")

def make(number):
    def sales(orders):
        return orders.groupBy("customer").agg(F.sum("cents").alias("cents"))
    sales.__name__ = f"sales{number}"
    output = Delta(f"sales{number}", keys=["customer"])
    return pipeline(reads=orders, writes=output, mode="update")(sales)

"""


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(RECORDS):
        order = {"customer": f"customer {number % 10}", "cents": number}
        producer.produce("orders", json.dumps(order))
    assert producer.flush(WAIT_S) == 0


def processor_s(root: int) -> dict[str, float]:
    """Of a process and all below it, by the names of their programs."""
    parents: dict[int, list[int]] = {}
    used: dict[int, tuple[str, float]] = {}
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = place.read_text()
        except OSError:
            continue
        name, _, rest = text.partition("(")[2].rpartition(")")
        fields = rest.split()
        number = int(place.parent.name)
        parents.setdefault(int(fields[1]), []).append(number)
        used[number] = (name, sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
    sums: dict[str, float] = {}
    waiting = [root]
    while waiting:
        number = waiting.pop()
        name, seconds = used.get(number, ("", 0.0))
        sums[name] = sums.get(name, 0.0) + seconds
        waiting += parents.get(number, [])
    return sums


def measure(bootstrap: str, place: Path, count: int, conf: tuple[str, ...]) -> str:
    file = place / "started_pipelines.py"
    lines = [f"sales{number} = make({number})" for number in range(count)]
    file.write_text(FILE + "\n".join(lines) + "\n")
    command = [sys.executable, "-u", "-m", "entrepot.cli", "pipeline", "run", str(file), "--live",
               "--dir", str(place / "views"), "-b", bootstrap,
               *(f"--conf={each}" for each in conf)]  # fmt: skip
    begun = time.monotonic()
    session_s, done, again = 0.0, dict[str, float](), 0
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        try:
            for line in run.stdout:
                now_s = time.monotonic() - begun
                again += "trying again" in line
                if "has started" in line:
                    session_s = now_s
                if (found := re.match(r"(sales\d+) v1 batch 0", line)) is not None:
                    done.setdefault(found[1], now_s)
                if len(done) == count:
                    break
            used = processor_s(run.pid)
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate()
    if len(done) < count:
        return f"{count} pipelines: ended after {len(done)} of them had begun"
    cost = ", ".join(f"{name} {seconds:.1f}" for name, seconds in used.items() if seconds >= 1)
    return (
        f"{count} pipelines: session {session_s:.1f} s, first batch {min(done.values()):.1f} s, "
        f"first batch of all {max(done.values()):.1f} s, tried again {again}; "
        f"processor s: {sum(used.values()):.1f} ({cost})"
    )


@click.command(help=__doc__)
@click.option("--pipelines", multiple=True, type=int, default=(1, 6), show_default=True)
@click.option("--runs", default=1, show_default=True)
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Of Spark.")
def main(pipelines: tuple[int, ...], runs: int, conf: tuple[str, ...]) -> None:
    for _ in range(runs):
        for count in pipelines:
            with broker() as server, tempfile.TemporaryDirectory(prefix="bench-") as name:
                fill(server.bootstrap)
                print(measure(server.bootstrap, Path(name), count, conf), flush=True)


if __name__ == "__main__":
    main()
