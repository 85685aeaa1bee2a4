"""The command line of the bench: pick the rows, run them in turns, print the tables."""

import fnmatch
import gc
import json
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import click

from bench import brokers
from bench.amqp_broker import rabbitmq, rabbitmq_version
from bench.amqp_scenarios import queue_scenarios
from bench.amqp_targets import queue_targets
from bench.brokers import Contestant, StartFailed
from bench.mqtt_broker import broker_of, version_of
from bench.mqtt_scenarios import mqtt_scenarios
from bench.mqtt_targets import mqtt_targets
from bench.one_at_a_time import build, one_at_a_time_scenarios
from bench.scenarios import Arena, Scenario, scenarios
from bench.table import MOSQUITTO, PEER, PEERS, RABBITMQ, REFERENCES, Readings, tables
from bench.targets import broker_targets, verdicts
from bench.wire import Refused


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Fewer rows and less data: about six minutes.")
@click.option("--rows", multiple=True, help="Only these: a section or a pattern, 'raw/1 MiB*'.")
@click.option("--list", "only_list", is_flag=True, help="Name the rows and stop.")
@click.option("--runs", default=3, show_default=True, help="Runs of each row on each broker.")
@click.option("--only", multiple=True, help="Only brokers whose name has this in it: os, Kafka.")
@click.option("--compiled", help="A Python with another entrepot: .venv-compiled/bin/python.")
@click.option("--minutes", type=float, help="Begin no row after this; 40, or 6 when quick.")
@click.option("--dir", "directory", help="Where the brokers keep their data; removed at the end.")
@click.option("--json", "output", type=click.Path(dir_okay=False), help="Write all samples here.")
def main(
    quick: bool,
    rows: tuple[str, ...],
    only_list: bool,
    runs: int,
    only: tuple[str, ...],
    compiled: str | None,
    minutes: float | None,
    directory: str | None,
    output: str | None,
) -> None:
    """Measure entrepot beside Apache Kafka, RabbitMQ and Mosquitto: medians, ranges, ratios."""
    everything = [
        *scenarios(quick),
        *queue_scenarios(quick),
        *one_at_a_time_scenarios(quick),
        *mqtt_scenarios(quick),
    ]
    chosen = [each for each in everything if _wanted(each.name, rows)]
    if only_list:
        for scenario in chosen:
            print(scenario.name)
        return
    if not chosen:
        raise click.UsageError("no such rows; --list names them")
    if any(each.go for each in chosen) and (why := build()):
        print(f"what comes one at a time is left out: {why}")
        chosen = [each for each in chosen if not each.go]
    signal.signal(signal.SIGTERM, _stop)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # Members have a connection each.
    deadline = time.monotonic() + 60 * (minutes or (6 if quick else 40))
    peers = {name for each in chosen for name in (each.peer, *each.references)}
    contestants = _contestants(only, peers, compiled)
    readings = Readings()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=directory) as root:
        print(brokers.machine(Path(root)))
        arena = Arena(Path(root))
        try:
            for i, scenario in enumerate(chosen, 1):
                if time.monotonic() > deadline:
                    print(f"out of time: {len(chosen) - i + 1} rows left out", file=sys.stderr)
                    break
                print(f"[{i}/{len(chosen)}] {scenario.name}", file=sys.stderr)
                failures += _take_turns(scenario, arena, contestants, runs, readings)
        except KeyboardInterrupt:
            failures.append("stopped: not all rows were measured")
        finally:
            arena.close()
    print()
    print(tables(readings, [each.name for each in contestants]))
    print()
    found = [*broker_targets(readings), *queue_targets(readings), *mqtt_targets(readings)]
    print(verdicts(found))
    if output:
        Path(output).write_text(json.dumps(readings.as_json(), indent=1) + "\n")
    if failures:
        print("\nFailed\n" + "\n".join(failures))
        sys.exit(1)


def _take_turns(
    scenario: Scenario,
    arena: Arena,
    contestants: Sequence[Contestant],
    runs: int,
    readings: Readings,
) -> list[str]:
    """A B C, B C A: what disturbs the machine for a while disturbs everybody, and nobody is
    always the first, or always after the same one. Says what failed."""
    failures = []
    beside = (scenario.peer, *scenario.references)
    others = [name for name in (*PEERS, *REFERENCES) if name not in beside]
    taking_part = [each for each in contestants if each.name not in others]
    for run in range(1 if scenario.once else runs):
        turn = run % max(len(taking_part), 1)
        for contestant in (*taking_part[turn:], *taking_part[:turn]):
            if run and scenario.peer_once and contestant.name == scenario.peer:
                continue
            if scenario.fsync_only and contestant.name.endswith(" os"):
                continue
            os.sync()  # What the run before left to be written would disturb this one.
            gc.collect()
            gc.disable()  # The client's collector is not part of any broker.
            try:
                for row, sample in scenario.measure(arena, contestant):
                    readings.add(row, contestant.name, sample)
            except (StartFailed, Refused, OSError) as error:
                failures.append(f"{scenario.name} on {contestant.name}: {error}")
                print(failures[-1], file=sys.stderr)
            finally:
                gc.enable()
    return failures


def _contestants(only: tuple[str, ...], peers: set[str], compiled: str | None) -> list[Contestant]:
    found = [brokers.entrepot("os"), brokers.entrepot("fsync")]
    if compiled:
        found += [brokers.compiled("os", compiled), brokers.compiled("fsync", compiled)]
    if PEER in peers:
        found += _kafka()
    if RABBITMQ in peers:
        found += _rabbitmq()
    for name in (MOSQUITTO, *REFERENCES):
        if name in peers:
            found += _of_the_distribution(name)
    chosen = [each for each in found if not only or any(part in each.name for part in only)]
    if not chosen:
        raise click.UsageError(f"no such broker; there are {', '.join(e.name for e in found)}")
    return chosen


def _kafka() -> list[Contestant]:
    peer = brokers.fetch(brokers.KAFKA_HOME, "Apache Kafka")
    if not isinstance(peer, Path):
        print(peer)
        return []
    print(f"{PEER}: Apache Kafka {brokers.kafka_version(peer)}, one KRaft node, its defaults")
    return [brokers.kafka(peer)]


def _rabbitmq() -> list[Contestant]:
    peer = rabbitmq()
    if peer is None:
        print(f"{RABBITMQ} is not installed and is left out")
        return []
    print(f"{RABBITMQ}: {rabbitmq_version()} of the distribution, its defaults")
    return [peer]


def _of_the_distribution(name: str) -> list[Contestant]:
    peer = broker_of(name)
    if peer is None:
        print(f"{name} is not installed and is left out")
        return []
    print(f"{name}: {version_of(name)}, of the distribution")
    return [peer]


def _wanted(name: str, patterns: tuple[str, ...]) -> bool:
    section = name.partition("/")[0]
    return not patterns or any(each == section or fnmatch.fnmatch(name, each) for each in patterns)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt  # So that the brokers are stopped on the way out.


if __name__ == "__main__":
    main()
