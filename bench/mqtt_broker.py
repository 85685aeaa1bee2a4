"""Mosquitto as the peer for MQTT, and for reference NATS and Redis, as the distribution has them.

Mosquitto drops messages when more than a hundred wait for a subscriber, so that limit is lifted;
it persists what sessions have, in its own time. Otherwise all have their defaults.
"""

import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
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
from bench.table import MOSQUITTO, NATS, REDIS

MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
max_queued_messages 100000
persistence true
persistence_location {directory}/
user root
log_type error
"""

Command = Callable[[str, int, Path], Sequence[str]]


def _mosquitto(program: str, port: int, directory: Path) -> Sequence[str]:
    path = directory / "mosquitto.conf"
    path.write_text(MOSQUITTO_CONF.format(port=port, directory=directory))
    return [program, "-c", str(path)]


def _nats(program: str, port: int, directory: Path) -> Sequence[str]:
    return [program, "--addr", "127.0.0.1", "--port", str(port)]


def _redis(program: str, port: int, directory: Path) -> Sequence[str]:
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
    return [program, *arguments, "--save", "", "--daemonize", "no"]


PROGRAMS: dict[str, tuple[str, Command]] = {
    MOSQUITTO: ("mosquitto", _mosquitto),
    NATS: ("nats-server", _nats),
    REDIS: ("redis-server", _redis),
}


def broker_of(name: str) -> Contestant | None:
    """The one that is installed."""
    program, command = PROGRAMS[name]
    found = shutil.which(program, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin")
    if found is None:
        return None

    def start(directory: Path, session_ms: int | None = None) -> Broker:
        (port,) = free_ports(1)
        return _started(command(found, port, directory), port, directory)

    return Contestant(name, start, 1)


def version_of(name: str) -> str:
    program = PROGRAMS[name][0]
    option = "-h" if name == MOSQUITTO else "--version"
    done = subprocess.run([program, option], capture_output=True, text=True)
    return done.stdout.splitlines()[0]


def _started(command: Sequence[str], port: int, directory: Path) -> Broker:
    """Serves when it accepts a connection."""
    with open(directory / "stdout", "ab") as output:
        process, started = spawn([*command], directory, output.fileno())
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                return Broker(process, port, started, mqtt_port=port)
            except ConnectionRefusedError:
                if process.poll() is not None or time.perf_counter() - started > START_S_MAX:
                    raise StartFailed(last_words(directory)) from None
                time.sleep(0.01)
    except BaseException:
        stop_process(process)
        raise
