"""How long a live run of pipelines takes to start, and what that costs.

    python -m bench.spark_start                       one pipeline, and six
    python -m bench.spark_start --pipelines 1 --runs 3 --conf spark.driver.extraJavaOptions=
    python -m bench.spark_start --pipelines 6 --runs 20 --load 4     do all of them start?

A broker, a topic of 1,000 records, and `entrepot pipeline run --live` in a process of its own:
sums per customer, kept in RocksDB, into Delta tables. Wall time is until a line is printed;
processor time, of Java and of all processes of Python, is the sturdier figure on a machine that
is not idle. With `--load`, so many other processes keep the cores busy meanwhile. A start that
ends before each pipeline has done a batch makes the exit code 1.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

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


@dataclass
class Start:
    """What became of one start."""

    pipelines: int
    session_s: float = 0.0
    batch_s: dict[str, float] = field(default_factory=dict)  # The first one of each pipeline.
    again: int = 0  # Queries that were tried again.
    used_s: dict[str, float] = field(default_factory=dict)
    last_line: str = ""
    load: float = 0.0  # What the machine says: processes that ran or waited, in the last minute.

    @property
    def is_whole(self) -> bool:
        return len(self.batch_s) == self.pipelines

    def __str__(self) -> str:
        if not self.is_whole:
            words = f"ended after {len(self.batch_s)} of them had begun: {self.last_line}"
            return f"{self.pipelines} pipelines: {words}"
        used = self.used_s.items()
        cost = ", ".join(f"{name} {seconds:.1f}" for name, seconds in used if seconds >= 1)
        first, last = min(self.batch_s.values()), max(self.batch_s.values())
        return (
            f"{self.pipelines} pipelines: session {self.session_s:.1f} s, first batch {first:.1f} "
            f"s, first batch of all {last:.1f} s, tried again {self.again}; "
            f"processor s: {sum(self.used_s.values()):.1f} ({cost}); load {self.load:.0f}"
        )


def measure(bootstrap: str, place: Path, count: int, conf: tuple[str, ...]) -> Start:
    file = place / "started_pipelines.py"
    lines = [f"sales{number} = make({number})" for number in range(count)]
    file.write_text(FILE + "\n".join(lines) + "\n")
    command = [sys.executable, "-u", "-m", "entrepot.cli", "pipeline", "run", str(file), "--live",
               "--dir", str(place / "views"), "-b", bootstrap,
               *(f"--conf={each}" for each in conf)]  # fmt: skip
    begun, start = time.monotonic(), Start(count)
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as run:
        assert run.stdout is not None
        try:
            for line in run.stdout:
                now_s, start.last_line = time.monotonic() - begun, line.strip()
                start.again += "trying again" in line
                if "has started" in line:
                    start.session_s = now_s
                if (found := re.match(r"(sales\d+) v1 batch 0", line)) is not None:
                    start.batch_s.setdefault(found[1], now_s)
                if start.is_whole:
                    break
            start.used_s, start.load = processor_s(run.pid), os.getloadavg()[0]
        finally:
            run.send_signal(signal.SIGINT)
            run.communicate()
    return start


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that compute, beside what is measured."""
    command = [sys.executable, "-c", "while True: pass"]
    others = [subprocess.Popen(command) for _ in range(count)]
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.wait()


def summary(starts: list[Start]) -> str:
    whole = [each for each in starts if each.is_whole]
    words = f"{len(whole)} of {len(starts)} starts of {starts[0].pipelines} pipelines"
    if not whole:
        return words
    used = [sum(each.used_s.values()) for each in whole]
    return (
        f"{words}; tried again {sum(each.again for each in whole)}; processor s, median: "
        f"{median(used):.1f}"
    )


@click.command(help=__doc__)
@click.option("--pipelines", multiple=True, type=int, default=(1, 6), show_default=True)
@click.option("--runs", default=1, show_default=True)
@click.option("--load", default=0, show_default=True, help="Processes that compute meanwhile.")
@click.option("--conf", multiple=True, metavar="KEY=VALUE", help="Of Spark.")
def main(pipelines: tuple[int, ...], runs: int, load: int, conf: tuple[str, ...]) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))  # And what was started, with it.
    starts: dict[int, list[Start]] = {count: [] for count in pipelines}
    with busy(load):
        for _ in range(runs):
            for count in pipelines:
                with broker() as server, tempfile.TemporaryDirectory(prefix="bench-") as name:
                    fill(server.bootstrap)
                    starts[count].append(measure(server.bootstrap, Path(name), count, conf))
                    print(starts[count][-1], flush=True)
    for found in starts.values():
        print(summary(found))
    sys.exit(not all(each.is_whole for found in starts.values() for each in found))


if __name__ == "__main__":
    main()
