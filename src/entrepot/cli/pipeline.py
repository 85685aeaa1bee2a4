"""`entrepot pipeline`: run the pipelines of a file, and look at what they have made."""

import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.security import command_config_option, command_properties
from entrepot.cli.talk import INTERRUPTED, TERMINATED, key_values, server_option, show_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from entrepot.spark.options import Address
    from entrepot.spark.pipelines import Pipeline, Runner
    from entrepot.spark.pipelines.progress import Progress

# What suits one machine; --conf and SPARK_CONF_DIR have the last word.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",  # What goes wrong is one line of ours.
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _shared(command: _Command) -> _Command:
    for option in (
        click.option(
            "--conf", multiple=True, metavar="KEY=VALUE", help="Of Spark; may be repeated."
        ),
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
        click.option(
            "--dir",
            "directory",
            metavar="DIR",
            default="./pipelines",
            show_default=True,
            type=click.Path(file_okay=False),
            help="Where views and checkpoints are.",
        ),
    ):
        command = option(command)
    return command


@click.group()
def pipeline() -> None:
    """Run pipelines on Spark: functions from DataFrame to DataFrame, in a file of Python."""


@pipeline.command()
@click.argument("file", metavar="FILE.py")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--live", "way", flag_value="live", help="Go on, micro-batch by micro-batch.")
@click.option("--replay", "way", flag_value="replay", help="From the first record, anew; swap.")
@click.option("--batch", "way", flag_value="batch", help="Over history, as a table; swap.")
@_shared
@server_option
@command_config_option
@click.option("--trigger", default="1s", show_default=True, help="Between batches: 500ms, 1s, 5m.")
@click.option("--max-rows", type=click.IntRange(1), help="In one micro-batch, about.")
def run(
    file: str,
    names: tuple[str, ...],
    way: str | None,
    directory: str,
    master: str,
    conf: tuple[str, ...],
    bootstrap: str,
    trigger: str,
    max_rows: int | None,
) -> None:
    """Run the pipelines of FILE.py, or those named."""
    if way is None:
        raise click.UsageError("one of --live, --replay and --batch")
    trigger_s = _seconds(trigger)
    with _clear_errors():
        from entrepot.spark.pipelines import Runner
        from entrepot.spark.pipelines.declaring import choose

        address = _address(bootstrap)
        made = _load(file)
        choose(made, names)
        with _session(master, conf) as spark:
            runner = Runner(
                spark,
                made,
                directory,
                address,
                trigger_s=trigger_s,
                rows_max=max_rows,
                report=_report(),
            )
            _run(runner, way, names)


def _run(runner: "Runner", way: str, names: tuple[str, ...]) -> None:
    if way == "live":
        _run_live(runner, names)
        return
    # Not a KeyboardInterrupt, of which py4j would print a trace.
    signal.signal(signal.SIGINT, lambda *_: sys.exit(INTERRUPTED))
    getattr(runner, way)(*names)
    for name, version in runner.versions(*names).items():
        click.echo(f"{name}: version {version} is current")


def _run_live(runner: "Runner", names: tuple[str, ...]) -> None:
    """Until Ctrl-C or SIGTERM, which let the batches that are under way finish."""
    told: list[int] = []

    def stop(number: int, _: object) -> None:
        told.append(number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    runner.live(*names, until=lambda: bool(told))
    sys.exit(INTERRUPTED if signal.SIGINT in told else TERMINATED)


@pipeline.command("list")
@click.argument("file", metavar="FILE.py")
def list_pipelines(file: str) -> None:
    """List the pipelines of FILE.py: what they read and write."""
    with _clear_errors():
        rows = [
            {
                "PIPELINE": each.name,
                "READS": ", ".join(map(str, each.reads)),
                "WRITES": str(each.writes),
                "MODE": "lambda" if each.is_lambda else each.mode,
            }
            for each in _load(file)
        ]
    show_table(rows)


@pipeline.command()
@click.argument("file", metavar="FILE.py")
@click.argument("name")
@_shared
@click.option("-n", "--rows", "count", default=20, show_default=True, help="At most so many.")
def show(
    file: str, name: str, directory: str, master: str, conf: tuple[str, ...], count: int
) -> None:
    """Show the view of pipeline NAME; of a Lambda pipeline, the serving view."""
    with _clear_errors():
        from entrepot.spark.options import Address
        from entrepot.spark.pipelines import Runner
        from entrepot.spark.pipelines.declaring import choose

        made = _load(file)
        choose(made, [name])
        with _session(master, conf) as spark:
            view = Runner(spark, made, directory, Address("")).view(name)
            found = view.orderBy(*view.columns).limit(count).collect()
    show_table(row.asDict() for row in found)


def _load(file: str) -> "list[Pipeline]":
    from entrepot.spark.pipelines.declaring import collect
    from entrepot.spark.pipelines.loading import load

    return collect(load(file))


def _address(bootstrap: str) -> "Address":
    from entrepot.client.security import SECURITY_PROPERTIES
    from entrepot.spark.options import Address

    given = command_properties().items()
    return Address(bootstrap, tuple(each for each in given if each[0] in SECURITY_PROPERTIES))


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|m|)", text.strip())
    if found is None:
        raise click.UsageError(f"--trigger {text}: not like 500ms, 1s or 5m")
    return float(found[1]) * _UNITS_S[found[2]]


def _report() -> "Callable[[Progress], None]":
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)

    def report(progress: "Progress") -> None:
        if progress.rows:
            console.print(str(progress))

    return report


@contextmanager
def _session(master: str, conf: tuple[str, ...]) -> "Iterator[SparkSession]":
    from entrepot.spark import prepare

    prepare()
    from pyspark.sql import SparkSession

    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    builder = SparkSession.builder.master(master).appName("entrepot pipeline")
    for name, value in (SETTINGS | key_values(conf, "--conf")).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What goes wrong is one line for people."""
    try:
        from entrepot.spark.java import NoJava
        from entrepot.spark.pipelines import PipelineError
    except ModuleNotFoundError as error:
        words = f"{error.name} is missing: pip install 'entrepot[spark]'"
        raise click.ClickException(words) from None
    try:
        yield
    except (PipelineError, NoJava) as error:
        raise click.ClickException(str(error)) from None
