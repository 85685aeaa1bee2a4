"""`entrepot serve`: a broker in this process, until SIGTERM or Ctrl-C.

What others may rely on: when every listener accepts, a table of endpoints and then
the line `ready` are on stdout, and the data directory says the same (see `presence`).
"""

import asyncio
import contextlib
import logging
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from entrepot.cli.logs import configure
from entrepot.cli.presence import announced, remove_leftovers
from entrepot.config import PROTOCOLS, Config, ConfigError, load, origins
from entrepot.log.policy import Durability
from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from entrepot.server import Server

_Command = TypeVar("_Command", bound=Callable[..., Any])

_TITLES = {
    "amqp": "AMQP",
    "mqtt": "MQTT",
    "stomp": "STOMP",
    "http": "management (HTTP)",
    "sqs": "SQS",
}


def _parse_port(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> str | int | None:
    if value is None or value == "off":
        return value
    if not value.isdecimal() or int(value) > 65535:
        raise click.BadParameter(f"{value!r} is not 0 to 65535, nor off")
    return int(value)


def _title(protocol: str) -> str:
    name, _, tls = protocol.partition("_")
    title = _TITLES.get(name, name.capitalize())
    return f"{title} TLS" if tls else title


def port_options(command: _Command) -> _Command:
    """One flag per protocol we speak."""
    for protocol in reversed(PROTOCOLS):
        command = click.option(
            f"--{protocol.replace('_', '-')}-port",
            callback=_parse_port,
            metavar="PORT",
            help=f"Where {_title(protocol)} clients connect: a port, 0 for any free one, or off.",
        )(command)
    return command


@click.command()
@click.option("--config", "config_file", metavar="FILE", help="Settings, as TOML.")
@click.option(
    "--data-dir", metavar="DIR", envvar="ENTREPOT_DATA_DIR", help="Where everything is kept."
)
@click.option("--host", metavar="ADDRESS", help="The address to listen on.")
@click.option("--node-id", type=int, metavar="N", help="This node's number in a cluster.")
@click.option(
    "--coordinator",
    multiple=True,
    metavar="URL",
    help="Where the cluster's etcd answers, as in http://10.0.0.1:2379; once for each member. "
    "Without it the node is alone.",
)
@click.option(
    "--nodes-per-machine",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Run so many nodes of a cluster here, one for each core: --node-id and the next numbers, "
    "on the ports here and the next ones, each with a directory below --data-dir.",
)
@port_options
@click.option(
    "--durability",
    type=click.Choice([str(choice) for choice in Durability]),
    help="What an acknowledgement means: on disk, on disk within a second, or with the "
    "operating system.",
)
@click.option(
    "--insecure",
    is_flag=True,
    default=None,
    help="Listen to other machines although nobody is asked who they are: whoever reaches "
    "the port reads, writes and deletes everything.",
)
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]))
@click.option("--log-format", type=click.Choice(["text", "json"]), help="How stderr is written.")
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Any other setting of the file, as in --set topics.num_partitions=4.",
)
def serve(
    config_file: str | None,
    settings: tuple[str, ...],
    nodes_per_machine: int | None,
    **given: Any,
) -> None:
    """Start a broker.

    Without a flag it listens on localhost, keeps its data in ./data and acknowledges
    nothing that is not on disk. Flags go over the settings of --config.
    """
    config = chosen_config(config_file, settings, **given)
    if nodes_per_machine is not None:
        from entrepot.cli.machine import serve_machine

        serve_machine(nodes_per_machine, config, config_file, settings, given)
        return
    found = origins(config_file, _flags(settings, given))
    source = click.get_current_context().get_parameter_source("data_dir")
    if source is click.core.ParameterSource.ENVIRONMENT:
        found["data_dir"] = "environment"
    run(config, origins=found)


def chosen_config(config_file: str | None, settings: tuple[str, ...], **given: Any) -> Config:
    """What the options of `serve` say."""
    try:
        return load(config_file, _flags(settings, given))
    except ConfigError as error:
        raise click.ClickException(str(error)) from None


def _flags(settings: tuple[str, ...], given: Mapping[str, Any]) -> dict[str, object]:
    """Return the settings that the command line gives, by their paths. Raises ConfigError."""
    flags = {_key(name): value for name, value in given.items() if value not in (None, ())}
    return flags | dict(map(_parse_setting, settings))


def _key(flag: str) -> str:
    if flag in ("insecure", "coordinator"):
        return {"insecure": "security.insecure", "coordinator": "cluster.coordinator"}[flag]
    return f"ports.{flag.removesuffix('_port')}" if flag.endswith("_port") else flag


def _parse_setting(setting: str) -> tuple[str, object]:
    """The value is read as TOML where it is (4, true, "x") and as text where it is not."""
    import tomllib

    key, equals, text = setting.partition("=")
    if not equals:
        raise ConfigError(f"--set {setting}: write it as KEY=VALUE")
    try:
        return key.strip(), tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), text


def run(
    config: Config, notes: tuple[str, ...] = (), origins: Mapping[str, str] | None = None
) -> None:
    """Serve until told to stop. `notes` are logged at the start; `origins` say where settings
    were given."""
    load_kio()
    from entrepot.server import StartError

    node = config.node_id if config.cluster.coordinator else None
    configure(config.log_level, config.log_format, node)
    for note in notes:
        logging.getLogger(__name__).warning(note)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, origins or {}))
    except StartError as error:
        raise click.ClickException(str(error)) from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:  # Where it does not build. The standard loop serves, a little slower.
        return None
    return uvloop.new_event_loop


async def _serve(config: Config, origins: Mapping[str, str]) -> None:
    from entrepot.server import Server, exception_handler, world
    from entrepot.workers import codec_worker, password_worker, store_worker

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    doors = world(config)
    loop.set_exception_handler(exception_handler(doors.faults))

    def ask_to_stop() -> None:
        """The first signal asks; a second one meets the system's default and ends us."""
        stop.set()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask_to_stop)
    directory = Path(config.data_dir)
    workers = password_worker(), codec_worker(), store_worker()
    server = Server(config, doors, *workers, origins=origins)
    remove_leftovers(directory)
    await server.start()
    try:
        opened = [(name, server.endpoints[name]) for name in PROTOCOLS if name in server.endpoints]
        endpoints = {name: (end.host, end.port) for name, end in opened}
        with announced(directory, endpoints):
            _say_ready(config, endpoints)
            with _keeping_house(endpoints, server):
                await stop.wait()
    finally:
        await server.stop()


@contextlib.contextmanager
def _keeping_house(protocols: Iterable[str], server: "Server") -> Iterator[None]:
    from entrepot.core.clock import SystemClock
    from entrepot.housekeeping import collect_garbage, imports_of, keep_beating, load

    clock = SystemClock()
    names = dict.fromkeys(each.removesuffix("_tls") for each in protocols)
    imports = (each for name in names for each in imports_of(name))
    loading = load(imports, clock, asyncio.to_thread)
    collecting = collect_garbage(clock, server.pulse.collections.add)
    beating = keep_beating(server.beat, clock)
    tasks = [asyncio.create_task(each) for each in (collecting, loading, beating)]
    for task in tasks:
        task.add_done_callback(lambda done: done.cancelled() or done.result())
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()


def _say_ready(config: Config, endpoints: dict[str, tuple[str, int]]) -> None:
    lines = [
        f"data in {Path(config.data_dir).absolute()}, durability {config.durability}",
        *(f"  {name:<10} {_address(*end)}" for name, end in endpoints.items()),
    ]
    if "http" in endpoints:
        lines.append(f"  {'console':<10} http://{_address(*endpoints['http'])}/")
    lines.append("ready")
    with contextlib.suppress(BrokenPipeError):  # Nobody reads. That does not stop a broker.
        print("\n".join(lines), flush=True)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
