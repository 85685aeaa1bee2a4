"""`entrepot pipeline`: run the pipelines of a file, and look at what they have made."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.security import command_config_option, command_properties
from entrepot.cli.talk import json_option, key_values, server_option, show_json, show_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from entrepot.spark.options import Address
    from entrepot.spark.pipelines import Pipeline, Runner
    from entrepot.spark.pipelines.progress import Progress
    from entrepot.spark.session import Interrupts, Session

_REMEDY = "in a checkout of entrepot, .venv/bin/pip install -e '.[spark]'"
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}

_Command = TypeVar("_Command", bound=Callable[..., Any])


def _shared(command: _Command) -> _Command:
    for option in (
        click.option("--verbose", is_flag=True, help="Show Spark's log."),
        click.option(
            "--conf", multiple=True, metavar="KEY=VALUE", help="Of Spark; may be repeated."
        ),
        click.option(
            "--archive",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help="Of `entrepot pipeline pack`: the Python that executors run.",
        ),
        click.option("--master", default="local[*]", show_default=True, help="Spark's master."),
        _directory_option,
    ):
        command = option(command)
    return command


_directory_option = click.option(
    "--dir",
    "directory",
    metavar="DIR",
    default="./pipelines",
    show_default=True,
    type=click.Path(file_okay=False),
    help="Where views and checkpoints are.",
)


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
@click.option(
    "--http", metavar="HOST:PORT", default="127.0.0.1:15672", help="To read queues: management."
)
@click.option("--amqp", metavar="HOST:PORT", default="127.0.0.1:5672", help="To write queues.")
@click.option("--user", default="guest", help="Of queues.")
@click.option("--password", default="guest", envvar="ENTREPOT_PASSWORD", show_envvar=True)
@click.option("--trigger", default="1s", show_default=True, help="Between batches: 500ms, 1s, 5m.")
@click.option("--max-rows", type=click.IntRange(1), help="In one micro-batch, about.")
@click.option("--report", is_flag=True, help="Tell the broker's console how far they are.")
def run(
    file: str,
    names: tuple[str, ...],
    way: str | None,
    directory: str,
    bootstrap: str,
    trigger: str,
    max_rows: int | None,
    http: str,
    amqp: str,
    user: str,
    password: str,
    report: bool,
    **how: Any,
) -> None:
    """Run the pipelines of FILE.py, or those named."""
    if way is None:
        raise click.UsageError("one of --live, --replay and --batch")
    trigger_s = _seconds(trigger)
    with _interruptible(**how) as (session, interrupts):
        from entrepot.spark.pipelines import QueueAddress, Runner
        from entrepot.spark.pipelines.declaring import choose

        address = _address(bootstrap)
        made = _load(file)
        choose(made, names)
        spark = _start(session)
        runner = Runner(
            spark,
            made,
            directory,
            address,
            trigger_s=trigger_s,
            rows_max=max_rows,
            report=_report(),
            tell=_tell,
            queues=QueueAddress(http, amqp, user, password),
        )
        with _reporting(spark, address, is_wanted=report):
            if way == "live":
                _run_live(runner, names, interrupts)
                return
            getattr(runner, way)(*names)
            for name, version in runner.versions(*names).items():
                click.echo(f"{name}: version {version} is current")


@contextmanager
def _reporting(spark: "SparkSession", address: "Address", *, is_wanted: bool) -> Iterator[None]:
    """Tell the broker of all queries meanwhile, if that is wanted."""
    if not is_wanted:
        yield
        return
    from entrepot.spark.reporting import Reports

    reports = Reports(address)
    spark.streams.addListener(reports)
    try:
        yield
    finally:
        reports.close()


def _run_live(runner: "Runner", names: tuple[str, ...], interrupts: "Interrupts") -> None:
    """Until Ctrl-C or SIGTERM, which let the batches that are under way finish."""
    with runner.start(*names) as running, interrupts.finishing():
        running.wait(lambda: interrupts.told is not None)


@pipeline.command()
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    default="environment.tar.gz",
    show_default=True,
    type=click.Path(dir_okay=False),
)
@click.option("--without", multiple=True, metavar="PACKAGE", help="Leave it out; may be repeated.")
def pack(output: str, without: tuple[str, ...]) -> None:
    """Pack this Python, for `run --archive` on a cluster.

    With its packages.
    """
    with _clear_errors():
        from pathlib import Path

        from entrepot.spark import packing

        if not output.endswith((".tar.gz", ".tgz")):
            raise click.UsageError(f"-o {output}: Spark unpacks .tar.gz and .tgz")
        _tell("packing, which takes a minute or so")
        try:
            count = packing.pack(Path(output), without)
        except OSError as error:
            raise click.ClickException(str(error)) from None
        size = Path(output).stat().st_size / 1_000_000
    click.echo(f"{output}: {count:,} files, {size:,.0f} MB")


@pipeline.command("warm-up")
def warm_up() -> None:
    """Make runs on this machine start in half the time.

    What Java loads is kept for that, about 200 MB.
    """
    with _clear_errors():
        from entrepot.spark.class_archive import NoArchive
        from entrepot.spark.warm_up import warm_up

        try:
            path = warm_up(_tell)
        except (NoArchive, OSError) as error:
            raise click.ClickException(str(error)) from None
    click.echo(f"{path}: {path.stat().st_size / 1_000_000:,.0f} MB; `run` uses it from now on")


@pipeline.command("list")
@click.argument("file", metavar="FILE.py")
@json_option
def list_pipelines(file: str, as_json: bool) -> None:
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
    if as_json:
        show_json({name.lower(): value for name, value in row.items()} for row in rows)
    else:
        show_table(rows)


@pipeline.command()
@click.argument("file", metavar="FILE.py")
@click.argument("name")
@_directory_option
@click.option("-n", "--rows", "count", default=20, show_default=True, help="At most so many.")
def show(file: str, name: str, directory: str, count: int) -> None:
    """Show the view of a pipeline.

    Of a Lambda pipeline, the serving view.
    """
    with _clear_errors():
        from entrepot.spark.pipelines.declaring import choose
        from entrepot.spark.pipelines.showing import rows_of
        from entrepot.spark.pipelines.versions import Directory

        (chosen,) = choose(_load(file), [name])
        found = rows_of(chosen, Directory(directory), count)
    show_table(found)


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


def _tell(text: str) -> None:
    click.echo(text, err=True)


@contextmanager
def _interruptible(
    master: str, conf: tuple[str, ...], archive: str | None, verbose: bool
) -> "Iterator[tuple[Session, Interrupts]]":
    """A session that is yet to be started. From now on a signal ends the command quietly."""
    with _clear_errors():
        from entrepot.spark.session import Interrupts, Session, settings_for

        settings = settings_for(master, verbose=verbose) | key_values(conf, "--conf")
        session = Session(
            master, settings, name="entrepot pipeline", archive=archive, verbose=verbose
        )
        interrupts = Interrupts(session)
        interrupts.listen()
        with interrupts.ending(), session:
            yield session, interrupts


def _start(session: "Session") -> "SparkSession":
    _tell("starting Spark")
    begun = time.monotonic()
    spark = session.start()
    _tell(f"Spark {spark.version} has started, in {time.monotonic() - begun:.0f} s")
    return spark


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What goes wrong is one line for people."""
    try:
        from entrepot.spark.errors import PipelineError
        from entrepot.spark.java import NoJava
        from entrepot.spark.session import NoSession
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error.name} is missing: {_REMEDY}") from None
    try:
        yield
    except (PipelineError, NoJava, NoSession) as error:
        raise click.ClickException(str(error)) from None
