"""A broker of your own, for tests: a real one, in its own process, on free ports.

    with entrepot.testing.broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})

It starts in a fraction of a second, in a temporary directory, and is gone afterwards.
`kill` ends it as a power cut would end its process; `start` brings it back on the same
data and the same ports, so connected clients find it again. `async with` does the same
without holding up the loop. With pytest, take the fixture `entrepot_broker`.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

START_S_MAX = 30.0
_STEP_S = 0.01
_PORT_TAKEN, _PORT_TAKEN_S = "Address already in use\n", 0.25
_PROTOCOLS = ("kafka", "amqp", "mqtt", "stomp")  # Whose ports are open, unless told otherwise.


class Broker:
    """Started by `with`, or by `start`."""

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        durability: str | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        if data_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="entrepot-")
            data_dir = Path(self._temporary.name) / "data"
        self.data_dir = Path(data_dir)
        self.endpoints: dict[str, tuple[str, int]] = {}
        self._settings = dict(settings or {})
        if durability is not None:
            self._settings["durability"] = durability
        self._process: subprocess.Popen[bytes] | None = None
        self._reserved: list[socket.socket] = []  # Its ports, while it is away.
        self.patience_s = START_S_MAX  # How long a start, or a stop, may take.

    @property
    def bootstrap(self) -> str:
        """For Kafka clients: `host:port`."""
        host, port = self.endpoints["kafka"]
        return f"{host}:{port}"

    @property
    def amqp_url(self) -> str:
        """For RabbitMQ's clients: the virtual host `/`, and the user that there always is."""
        host, port = self.endpoints["amqp"]
        return f"amqp://guest:guest@{host}:{port}/%2F"

    @property
    def mqtt_address(self) -> tuple[str, int]:
        """For MQTT's clients: host and port."""
        return self.endpoints["mqtt"]

    @property
    def stomp_address(self) -> tuple[str, int]:
        """For STOMP's clients: host and port."""
        return self.endpoints["stomp"]

    @property
    def http_address(self) -> str:
        """For tools that manage it: `host:port`. Needs the setting `ports.http`, as 0."""
        host, port = self.endpoints["http"]
        return f"{host}:{port}"

    @property
    def sqs_url(self) -> str:
        """Return the `endpoint_url` for clients of SQS. Needs the setting `ports.sqs`, as 0."""
        host, port = self.endpoints["sqs"]
        return f"http://{host}:{port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    @property
    def log_path(self) -> Path:
        """What it said, over all its starts."""
        return self.data_dir.with_name(self.data_dir.name + ".log")

    def start(self) -> None:
        """Return when it is ready; raise RuntimeError with what it said when it is not."""
        assert self._process is None, "the broker is running"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        ready = self.data_dir / "endpoints.json"
        ready.unlink(missing_ok=True)  # A killed broker leaves its own behind.
        self._process = self._launch()
        try:
            self._wait_until(ready)
        except BaseException:  # Also Ctrl-C: nobody else knows of the process.
            self._process.kill()
            self._process.wait()
            self._process = None
            raise
        self._release()
        document = json.loads(ready.read_text())
        self.endpoints = {name: (end["host"], end["port"]) for name, end in document.items()}

    def _wait_until(self, ready: Path) -> None:
        deadline = time.monotonic() + self.patience_s
        while not ready.exists():
            assert self._process is not None
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = self.log_path.read_text(errors="replace")
                # Between its end and `_reserve`, somebody else may have got its port.
                if said.endswith(_PORT_TAKEN) and self.endpoints and time.monotonic() < deadline:
                    time.sleep(_PORT_TAKEN_S)
                    self._process = self._launch()
                    continue
                raise RuntimeError(f"the broker did not start:\n{said}")
            time.sleep(_STEP_S)

    def _launch(self) -> subprocess.Popen[bytes]:
        with self.log_path.open("ab") as log:
            return subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def stop(self) -> None:
        """Ask it to stop, as SIGTERM does, and wait. Fine when it is not running."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(self.patience_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._process = None
        self._reserve()

    def kill(self) -> None:
        """End the process at once, with kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._reserve()

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop it and remove what was temporary."""
        try:
            self.stop()
        finally:
            self._release()
            if self._temporary is not None:
                self._temporary.cleanup()

    def _reserve(self) -> None:
        """Bind the ports, so that nobody else gets them until it is back. Nobody listens there, so
        clients are refused, and the broker itself may bind them, too."""
        for _, port in self.endpoints.values():
            for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
                with contextlib.suppress(OSError):
                    bound = socket.socket(family)
                    self._reserved.append(bound)
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                    bound.bind((host, port))

    def _release(self) -> None:
        while self._reserved:
            self._reserved.pop().close()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "entrepot.cli", "serve", "--data-dir", str(self.data_dir)]
        settings: dict[str, object] = {f"ports.{name}": 0 for name in _PROTOCOLS}
        settings |= {"ports.http": "off", "ports.sqs": "off"}  # Unless they are asked for.
        settings |= self._settings
        # A client that knows the old port must find us there again.
        settings |= {f"ports.{name}": port for name, (_, port) in self.endpoints.items()}
        for key, value in settings.items():
            command += ["--set", f"{key}={_toml(value)}"]
        return command

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)


def _toml(value: object) -> str:
    """Return a value as the command line takes it."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{name} = {_toml(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


def broker(
    data_dir: str | os.PathLike[str] | None = None,
    *,
    durability: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> Broker:
    """A broker to be used in `with` or `async with`.

    `settings` are those of the configuration file, by their whole name:
    `{"topics.num_partitions": 4}`. A data directory that is given is kept.
    """
    return Broker(data_dir, durability=durability, settings=settings)


try:
    import pytest
except ImportError:  # Of use without it, too.
    pass
else:

    @pytest.fixture
    def entrepot_broker() -> Iterator[Broker]:
        """A fresh broker for one test."""
        with broker() as started:
            yield started
