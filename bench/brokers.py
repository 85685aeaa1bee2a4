"""Starting and stopping the brokers: ours, and Apache Kafka as one KRaft node.

Each runs as its own process on 127.0.0.1, on free ports, with its data in a directory it is
given, and is stopped by its process id. Kafka keeps its defaults: the heap and collector
flags of its start script, and the replication factors of its single-node configuration.
"""

import contextlib
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import confluent_kafka

from bench.amqp_wire import Connection as AmqpConnection
from bench.meter import rss_mib
from bench.wire import Connection, Refused, count_brokers

START_S_MAX = 60
STOP_S_MAX = 60
KAFKA_CLUSTER = "entrepotBenchKafkaPeeQ"  # Sixteen bytes in base64; any would do.
KAFKA_WARM_UP_S = 15  # Its compiler has caught up after about ten.
DATA = "data"  # Ours, in the directory it is given.
KAFKA_HOME = Path(__file__).parent / "peers" / "kafka"

# What bin/kafka-server-start.sh and bin/kafka-run-class.sh pass to the virtual machine.
KAFKA_JVM = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]

KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
log.dirs={logs}
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class StartFailed(Exception):
    """A broker that did not become ready, with what it said."""


class Broker:
    """A running broker."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        port: int,
        started: float,
        amqp_port: int | None = None,
        mqtt_port: int | None = None,
    ) -> None:
        self._process = process
        self._started = started
        self.host = "127.0.0.1"
        self.port = port
        self._amqp_port = amqp_port
        self._mqtt_port = mqtt_port
        self.start_s = self.age_s()  # From exec until it serves.

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def amqp_address(self) -> str:
        assert self._amqp_port is not None, "it speaks no AMQP"
        return f"{self.host}:{self._amqp_port}"

    @property
    def mqtt_port(self) -> int:
        """Where it speaks MQTT; or its own language, if it has no other."""
        assert self._mqtt_port is not None, "it speaks no MQTT"
        return self._mqtt_port

    def connect(self) -> Connection:
        return Connection(self.host, self.port)

    def amqp(self) -> AmqpConnection:
        assert self._amqp_port is not None, "it speaks no AMQP"
        return AmqpConnection(self.host, self._amqp_port)

    def age_s(self) -> float:
        """Seconds since exec."""
        return time.perf_counter() - self._started

    def rss_mib(self) -> float:
        return rss_mib(self.pid)

    def stop(self) -> None:
        """Orderly, so that the next start finds a clean stop; by force when that takes too long."""
        stop_process(self._process)


@dataclass(frozen=True, slots=True)
class Contestant:
    """One column of the table: a broker in one configuration."""

    name: str
    # In a directory, which may hold an earlier run's data; and how long a session is in the
    # modern protocol of groups, where that is the broker's to say. None: its default.
    start: Callable[[Path, int | None], Broker]
    warm_up_s: float  # Before anything else than its start is measured.

    @contextlib.contextmanager
    def running(self, directory: Path, session_ms: int | None = None) -> Iterator[Broker]:
        broker = self.start(directory, session_ms)
        try:
            yield broker
        finally:
            broker.stop()


def entrepot(durability: str) -> Contestant:
    return Contestant(f"entrepot {durability}", partial(start_entrepot, durability), 2)


def compiled(durability: str, python: str) -> Contestant:
    """Another installation of ours, beside this one."""
    start = partial(start_entrepot, durability, python=python)
    return Contestant(f"compiled {durability}", start, 2)


def kafka(jars: Path) -> Contestant:
    return Contestant("Kafka", partial(start_kafka, jars), KAFKA_WARM_UP_S)


def start_entrepot(
    durability: str,
    directory: Path,
    session_ms: int | None = None,
    *,
    is_whole: bool = False,
    settings: Sequence[str] = (),
    python: str = sys.executable,
) -> Broker:
    """Serves when it has printed `ready`. Settings are as the option `--set` takes them.

    `is_whole` means: with HTTP, STOMP and SQS, too.
    """
    program = [python, "-m", "entrepot.cli"]
    data = directory / DATA
    arguments = ["serve", "--data-dir", str(data), "--kafka-port", "0", "--durability", durability]
    arguments += ["--amqp-port", "0", "--mqtt-port", "0"]
    for name in ("http", "stomp", "sqs"):
        arguments += [f"--{name}-port", "0" if is_whole else "off"]
    if session_ms is not None:
        arguments += ["--set", f"groups.consumer_session_timeout_ms={session_ms}"]
    for each in settings:
        arguments += ["--set", each]
    # As after an installation: compiled to bytecode, and from where that Python has it.
    dropped = {"PYTHONDONTWRITEBYTECODE"} | ({"PYTHONPATH"} if python != sys.executable else set())
    environment = {k: v for k, v in os.environ.items() if k not in dropped}
    process, started = spawn([*program, *arguments], directory, subprocess.PIPE, environment)
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() == b"ready":
                break
        else:
            raise StartFailed(last_words(directory))
        endpoints = json.loads((data / "endpoints.json").read_text())
        ports = {name: end["port"] for name, end in endpoints.items()}
        return Broker(process, ports["kafka"], started, ports.get("amqp"), ports.get("mqtt"))
    except BaseException:
        stop_process(process)
        raise


def start_kafka(jars: Path, directory: Path, session_ms: int | None = None) -> Broker:
    """Serves when a Metadata answer names a broker. Formatting the storage is not counted."""
    properties = directory / "server.properties"
    logs = directory / "logs"
    if (logs / "meta.properties").exists():
        lines = dict(line.split("=", 1) for line in properties.read_text().splitlines())
        port = int(lines["listeners"].split(",")[0].rpartition(":")[2])
    else:
        port, controller = free_ports(2)
        text = KAFKA_PROPERTIES.format(port=port, controller=controller, logs=logs)
        if session_ms is not None:
            text += f"group.consumer.min.session.timeout.ms={session_ms}\n"
            text += f"group.consumer.session.timeout.ms={session_ms}\n"
        properties.write_text(text)
        format_storage(jars, properties)
    command = ["java", *KAFKA_JVM, "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
    with open(directory / "stdout", "ab") as output:
        process, started = spawn(command, directory, output.fileno())
    try:
        while not _answers(port):
            if process.poll() is not None or time.perf_counter() - started > START_S_MAX:
                raise StartFailed(last_words(directory))
            time.sleep(0.01)
        return Broker(process, port, started)
    except BaseException:
        stop_process(process)
        raise


def fetch(home: Path, what: str) -> Path | str:
    """The directory with a peer's jars, fetched when it is not there yet; or why there is none."""
    jars = home / "jars"
    if shutil.which("java") is None:
        return f"no java on the path: {what} is left out"
    if any(jars.glob("*.jar")):
        return jars
    if shutil.which("mvn") is None:
        return f"no mvn on the path to fetch {what} with: it is left out"
    command = ["mvn", "-B", "-q", "-f", str(home), "dependency:copy-dependencies"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        why = next((line for line in done.stdout.splitlines() if "ERROR" in line), "mvn failed")
        return f"{what} could not be fetched and is left out: {why}"
    return jars


def kafka_version(jars: Path) -> str:
    return next(jars.glob("kafka-clients-*.jar")).stem.removeprefix("kafka-clients-")


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def spawn(
    command: list[str], directory: Path, stdout: int, environment: dict[str, str] | None = None
) -> tuple["subprocess.Popen[bytes]", float]:
    """Start a server in a session of its own: Ctrl-C is for us, and we stop it in order."""
    with open(directory / "stderr", "ab") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=errors,
            env=environment,
            start_new_session=True,
        )
    return process, started


def format_storage(jars: Path, properties: Path, *, is_standalone: bool = True) -> None:
    alone = ["--standalone"] if is_standalone else []
    arguments = ["format", *alone, "-t", KAFKA_CLUSTER, "-c", str(properties)]
    command = ["java", "-cp", f"{jars}/*", "kafka.tools.StorageTool", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise StartFailed(done.stdout)


def _answers(port: int) -> bool:
    try:
        with Connection("127.0.0.1", port) as connection:
            return count_brokers(connection) > 0
    except (OSError, Refused):
        return False


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def last_words(directory: Path) -> str:
    said = ""
    for name in ("stdout", "stderr"):
        with contextlib.suppress(FileNotFoundError):
            said += (directory / name).read_text(errors="replace")
    return "the broker did not start:\n" + "\n".join(said.splitlines()[-20:])


def fdatasync_ms(directory: Path, count: int = 50) -> float:
    """The median time of a 4 KiB append made permanent: what this disk makes of fsync."""
    times = []
    descriptor = os.open(directory / "probe", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        for _ in range(count):
            os.write(descriptor, bytes(4096))
            start = time.perf_counter()
            os.fdatasync(descriptor)
            times.append(time.perf_counter() - start)
    finally:
        os.close(descriptor)
    return sorted(times)[count // 2] * 1e3


def machine(root: Path) -> str:
    library = confluent_kafka.libversion()[0]
    return (
        f"{platform.system()} {platform.release()}, {os.cpu_count()} cores,"
        f" Python {platform.python_version()}, librdkafka {library},"
        f" fdatasync of 4 KiB {fdatasync_ms(root):.2f} ms,"
        f" load before the run {os.getloadavg()[0]:.1f}"
    )
