"""RabbitMQ as it comes from the distribution, with its defaults, in directories of its own.

Its script starts a virtual machine and waits for it. The machine writes its process id into
a file, and that is the process to be measured. The port mapper is started here, because by
itself it would be a daemon that outlives the bench.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.brokers import (
    START_S_MAX,
    Broker,
    Contestant,
    StartFailed,
    free_ports,
    last_words,
    spawn,
    stop_process,
)

RABBITMQ_WARM_UP_S = 10


class RabbitMQ(Broker):
    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        mapper: "subprocess.Popen[bytes]",
        pid: int,
        port: int,
        started: float,
    ) -> None:
        super().__init__(process, port, started, amqp_port=port)
        self._mapper = mapper
        self._pid = pid

    @property
    def pid(self) -> int:
        """Of the virtual machine; the process that was started is a shell."""
        return self._pid

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            stop_process(self._mapper)


def rabbitmq() -> Contestant | None:
    """The newest that is installed."""
    servers = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"))
    if not servers:
        return None

    def start(directory: Path, session_ms: int | None = None) -> Broker:
        return start_rabbitmq(servers[-1], directory)

    return Contestant("RabbitMQ", start, RABBITMQ_WARM_UP_S)


def rabbitmq_version() -> str:
    names = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return max(path.name.removeprefix("rabbitmq_server-") for path in names)


def start_rabbitmq(server: Path, directory: Path) -> Broker:
    """Serves when it says that its start is complete."""
    port, mapper_port, distribution_port = free_ports(3)
    environment = dict(os.environ) | dict(
        rabbitmq_settings(directory, port, mapper_port, distribution_port)
    )
    mapper, _ = spawn(["epmd"], directory, subprocess.DEVNULL, environment)
    process = None
    try:
        with open(directory / "stdout", "wb") as output:
            process, started = spawn([str(server)], directory, output.fileno(), environment)
        while b"broker... completed" not in (directory / "stdout").read_bytes():
            if process.poll() is not None or time.perf_counter() - started > START_S_MAX:
                raise StartFailed(last_words(directory))
            time.sleep(0.05)
        pid = int((directory / "pid").read_text())
        return RabbitMQ(process, mapper, pid, port, started)
    except BaseException:
        if process is not None:
            stop_process(process)
        stop_process(mapper)
        raise


def rabbitmq_settings(
    directory: Path, port: int, mapper_port: int, distribution_port: int
) -> Iterator[tuple[str, str]]:
    """Where it is and where it writes; how it works is left as it is."""
    for name in ("home", "log", "data", "generated"):
        (directory / name).mkdir(exist_ok=True)
    for name in ("environment", "rabbitmq.conf"):
        (directory / name).touch()
    (directory / "enabled_plugins").write_text("[].\n")
    yield "HOME", str(directory / "home")
    yield "ERL_CRASH_DUMP", "/dev/null"
    yield "ERL_EPMD_ADDRESS", "127.0.0.1"
    yield "ERL_EPMD_PORT", str(mapper_port)
    yield "RABBITMQ_DIST_PORT", str(distribution_port)
    yield "RABBITMQ_NODENAME", f"bench{port}@localhost"
    yield "RABBITMQ_NODE_IP_ADDRESS", "127.0.0.1"
    yield "RABBITMQ_NODE_PORT", str(port)
    yield "RABBITMQ_LOG_BASE", str(directory / "log")
    yield "RABBITMQ_MNESIA_BASE", str(directory / "data")
    yield "RABBITMQ_GENERATED_CONFIG_DIR", str(directory / "generated")
    yield "RABBITMQ_PID_FILE", str(directory / "pid")
    yield "RABBITMQ_CONF_ENV_FILE", str(directory / "environment")
    yield "RABBITMQ_CONFIG_FILE", str(directory / "rabbitmq.conf")
    yield "RABBITMQ_ENABLED_PLUGINS_FILE", str(directory / "enabled_plugins")
