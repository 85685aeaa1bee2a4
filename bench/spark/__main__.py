"""The command line: one session, all rows in turns, one table."""

import signal
import sys
import tempfile
from pathlib import Path

import click

from bench import brokers
from bench.brokers import DATA
from bench.spark.session import PEER_HOME, Contestant, contestants, session
from bench.spark.sources import Arena, Scenario, scenarios
from bench.spark.targets import spark_targets
from bench.table import Readings, tables
from bench.targets import verdicts
from entrepot.spark.columns import HAS_COMPILED


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--records", default=5_000_000, show_default=True, help="In the topic; 100 B each.")
@click.option("--runs", default=3, show_default=True, help="Runs of each row on each contestant.")
@click.option("--rows", multiple=True, help="Only rows whose name has this in it: noop, stream.")
@click.option("--only", multiple=True, help="Only contestants whose name has this in it: Kafka.")
@click.option("--cores", default=2, show_default=True, help="That Spark may use.")
@click.option("--dir", "directory", help="Where everything is kept; removed at the end.")
def main(
    records: int,
    runs: int,
    rows: tuple[str, ...],
    only: tuple[str, ...],
    cores: int,
    directory: str | None,
) -> None:
    """Measure the Spark source beside Spark's own Kafka connector."""
    signal.signal(signal.SIGTERM, _stop)
    jars = brokers.fetch(PEER_HOME, "Spark's Kafka connector")
    if isinstance(jars, str):
        print(jars)
    chosen = [each for each in scenarios(records) if _wanted(each.name, rows)]
    readings = Readings()
    with tempfile.TemporaryDirectory(prefix="bench-", dir=directory) as name:
        root = Path(name)
        print(brokers.machine(root))
        with brokers.entrepot("fsync").running(root) as broker, session(root, jars, cores) as spark:
            loop = (
                "C" if HAS_COMPILED else "Python: it was not compiled, and is several times slower"
            )
            print(f"Spark {spark.version}, local[{cores}]; entrepot decodes in {loop}")
            arena = Arena(spark, broker, root, records)
            found = contestants(broker, root / DATA, arena.tier, jars)
            running = [each for each in found if _wanted(each.name, only)]
            arena.fill()
            for scenario in chosen:
                print(scenario.name, file=sys.stderr)
                _take_turns(scenario, arena, running, runs, readings)
    print()
    print(tables(readings, [each.name for each in running]))
    print()
    print(verdicts(spark_targets(readings)))


def _take_turns(
    scenario: Scenario, arena: Arena, running: list[Contestant], runs: int, readings: Readings
) -> None:
    """A B A B, after a run that does not count: Java compiles what it runs often."""
    for run in range(-1, runs):
        for contestant in running:
            for row, sample in scenario.measure(arena, contestant):
                print(f"  {contestant.name}: {sample.value:.4g} {row.unit}", file=sys.stderr)
                if run >= 0:
                    readings.add(row, contestant.name, sample)


def _wanted(name: str, parts: tuple[str, ...]) -> bool:
    return not parts or any(part in name for part in parts)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt  # So that the broker and Spark are stopped on the way out.


if __name__ == "__main__":
    main()
