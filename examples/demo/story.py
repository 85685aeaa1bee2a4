"""`make demo`: the whole story on a laptop, in a minute or two.

A broker starts, boxes and customers send what they have to say, Spark joins it and adds it up
while it comes, and pika hears from a queue which orders are getting warm. In the end every
number stands beside the one that plain Python computed from the same story. If one differs,
the exit code is 1.
"""

import argparse
import json
import logging
import tempfile
import time
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from entrepot.spark.errors import PipelineError
from entrepot.spark.java import NoJava
from entrepot.spark.session import Interrupts, NoSession, Session, settings_for
from entrepot.testing import Broker, broker
from examples.demo.simulation import BOXES, MINUTES, POISON, Expected, Simulation

SEED = 7
SECONDS = 30  # What the story is told in.
STATUS_S = 5.0
CORES = 2
SETTINGS = settings_for("local") | {
    "spark.sql.shuffle.partitions": "1",  # Of six small queries, each has work for one core.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",  # It is short.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
console = Console(highlight=False)


def say(text: str) -> None:
    console.print(f"[dim]{time.strftime('%H:%M:%S')}[/]  {text}", soft_wrap=True)


def tell_alerts(alerts: list[Any]) -> None:
    """One line for each box."""
    for box in sorted({alert["box"] for alert in alerts}):
        found = [alert for alert in alerts if alert["box"] == box]
        newest = max(found, key=lambda alert: alert["at"])
        euros = sum(alert["cents"] for alert in found) / 100
        goods = f"{len(found)} order{'s' if len(found) > 1 else ''} for {euros:.2f} €"
        say(
            f"[bold red]alert[/]  {newest['at'][11:16]}  {box} has {newest['celsius']:.1f} °C, "
            f"{goods}"
        )


# --- the story


@dataclass(frozen=True)
class Computed:
    """What came out, each number from where a user would look for it."""

    readings: int
    orders: int
    cents: int
    warm: list[int]
    sales: dict[Any, Any]
    minutes: dict[Any, Any]
    heard: int
    poison: int


def play(spark: Any, server: Broker, directory: Path, simulation: Simulation) -> Computed:
    from entrepot.spark.pipelines import Runner
    from examples.demo import pipelines
    from examples.demo.traffic import Listener, Sender, create_topics, declare_queue, everything

    bootstrap, (host, port) = server.bootstrap, server.endpoints["amqp"]
    records = simulation.records()
    create_topics(bootstrap, [pipelines.READINGS.name, pipelines.ORDERS.name, pipelines.ALERTS])
    runner = Runner(spark, pipelines, directory, bootstrap, trigger_s=0.2, tell=say)
    sender = Sender(bootstrap, records, MINUTES * 60 / SECONDS)
    declare_queue(server.amqp_url, pipelines.ALARMS)
    listener = Listener(server.amqp_url, pipelines.ALARMS, tell_alerts)
    listener.start()
    with ExitStack() as stack:
        running = []
        for made in runner.pipelines:  # One after the other: two cores are not many.
            running.append(stack.enter_context(runner.start(made.name)))
            running[-1].drain()
            say(f"pipeline [bold]{made.name}[/] is live: {made.function.__doc__}")
            if len(running) == 1:  # What the others miss meanwhile waits in the log.
                sender.start()
                say(f"boxes and customers begin: {MINUTES} minutes of theirs in {SECONDS} seconds")
        place = directory / pipelines.ALARMS
        alarms = pipelines.start_alarms(spark, bootstrap, f"{host}:{port}", place)
        stack.callback(alarms.stop)
        say(f"alerts go to the queue [bold]{pipelines.ALARMS}[/], where pika listens")
        while sender.is_alive():
            sender.join(STATUS_S)
            for each in running:
                each.step()  # Raises what went wrong.
            say(f"{sender.sent:,} of {len(records):,} records sent, {listener.heard} alerts heard")
        say("all is sent, and what is on its way arrives")
        for each in running:
            each.drain()
        alarms.processAllAvailable()
        alerts = everything(bootstrap, pipelines.ALERTS)
        listener.finish(len(alerts))
    return computed(
        runner.view("sales").collect(),
        runner.view("minutes").collect(),
        warm=sorted(json.loads(alert)["id"] for alert in alerts),
        heard=listener.heard,
        poison=len(everything(bootstrap, f"{pipelines.READINGS.name}.dead-letters")),
    )


def computed(sales: list[Any], minutes: list[Any], **more: Any) -> Computed:
    def key(row: Any) -> tuple[str, datetime]:
        return row.box, row.minute.replace(tzinfo=UTC)

    return Computed(
        readings=sum(row.readings for row in minutes),
        orders=sum(row.orders for row in sales),
        cents=sum(row.cents for row in sales),
        sales={key(row): (row.orders, row.cents, row.warm) for row in sales},
        minutes={key(row): (row.readings, row.celsius) for row in minutes},
        **more,
    )


# --- the reckoning


def comparison(expected: Expected, found: Computed) -> list[tuple[str, Any, Any]]:
    """What is compared, what must be, what is."""
    lines: list[tuple[str, Any, Any]] = [
        ("readings averaged", expected.readings, found.readings),
        ("records that were no JSON, in dead letters", POISON, found.poison),
        ("orders joined with their box", expected.orders, found.orders),
        ("revenue, €", expected.cents / 100, found.cents / 100),
        ("alerts in the topic", len(expected.warm), len(found.warm)),
        ("alerts heard by pika", len(expected.warm), found.heard),
    ]
    for box in BOXES:
        lines.append((f"{box}: revenue, €", euros(expected.sales, box), euros(found.sales, box)))
        lines.append(
            (
                f"{box}: warmest minute, °C",
                warmest(expected.minutes, box),
                warmest(found.minutes, box),
            )
        )
    return lines


def euros(sales: dict[Any, Any], box: str) -> Any:
    return sum(cents for (name, _), (_, cents, _) in sales.items() if name == box) / 100


def warmest(minutes: dict[Any, Any], box: str) -> Any:
    return max((mean for (name, _), (_, mean) in minutes.items() if name == box), default=None)


def differences(expected: Expected, found: Computed) -> list[str]:
    """All there are, of every box in every minute; none is the promise."""
    wrong = [f"{what}: {wanted} is {is_}" for what, wanted, is_ in comparison(expected, found)
             if wanted != is_]  # fmt: skip
    if expected.warm != found.warm:
        wrong.append("alerts: of other orders")
    for name in ("sales", "minutes"):
        wanted, is_ = getattr(expected, name), getattr(found, name)
        for key in sorted(wanted.keys() | is_.keys()):
            if wanted.get(key) != is_.get(key):
                wrong.append(
                    f"{name}: {key[0]}, {key[1]:%H:%M}: {wanted.get(key)} is {is_.get(key)}"
                )
    return wrong


def show(expected: Expected, found: Computed) -> None:
    table = Table(title="expected by plain Python, computed by the pipelines", title_style="bold")
    table.add_column("")
    table.add_column("expected", justify="right")
    table.add_column("computed", justify="right")
    table.add_column("")
    for what, wanted, is_ in comparison(expected, found):
        form = "{:,}" if isinstance(wanted, int) else "{:,.2f}"
        mark = "[green]equal[/]" if wanted == is_ else "[bold red]differs[/]"
        shown = "none" if is_ is None else form.format(is_)
        table.add_row(what, form.format(wanted), shown, mark)
    console.print(table)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.demo", description=__doc__)
    parser.add_argument("--picture", type=Path, default=Path("build/demo.png"), metavar="FILE")
    parser.add_argument("--seed", type=int, default=SEED, help="another one is another story")
    said = parser.parse_args(arguments)
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # Of libraries about one another.
    session = Session(f"local[{CORES}]", SETTINGS, name="entrepot demo")
    interrupts = Interrupts(session)
    interrupts.listen()
    with interrupts.ending():
        try:
            return tell_story(said.picture, Simulation(said.seed), session)
        except (NoJava, NoSession, PipelineError) as error:
            console.print(f"[bold red]the demo ends[/]: {error}", soft_wrap=True)
            return 1


def tell_story(picture: Path, simulation: Simulation, session: Session) -> int:
    begun = time.monotonic()
    expected = simulation.expected()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="entrepot-demo-")))
        say("starting a broker")
        server = stack.enter_context(broker())
        amqp = ":".join(map(str, server.endpoints["amqp"]))
        say(f"a broker listens on {server.bootstrap} for Kafka, and on {amqp} for AMQP")
        say("starting Spark, which takes half a minute or less")
        spark = stack.enter_context(session).start()
        say(f"Spark {spark.version} has started, with {CORES} cores")
        found = play(spark, server, directory, simulation)
    from examples.demo.picture import draw

    draw(picture, expected, found.sales, found.minutes)
    show(expected, found)
    wrong = differences(expected, found)
    for line in wrong:
        console.print(f"[bold red]differs[/] {line}")
    views = f"{len(expected.sales) + len(expected.minutes)} rows of two Delta views"
    if not wrong:
        console.print(f"All of it is equal, {views} included.")
    console.print(f"The picture is {picture}. It took {time.monotonic() - begun:.0f} seconds.")
    return 1 if wrong else 0
