"""What a command does where nobody answers: it says so, within seconds, whatever it speaks."""

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from entrepot.cli import main, management, mqtt_talk, talk, transform

NOWHERE = "127.0.0.1:1"
CONNECT_S = 0.3
SECONDS = 4.0  # CONNECT_S many times over, and a tenth of what a program would wait.

COMMANDS = (
    ("topics", "list"),
    ("pub", "a", "b"),
    ("queues", "list"),
    ("transform", "list"),
    ("transform", "run"),
)


@pytest.fixture
def silent() -> Iterator[str]:
    """Where somebody listens, and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def accept() -> None:
            try:
                while True:
                    kept.append(listener.accept()[0])
            except OSError:
                return

        thread = threading.Thread(target=accept)
        thread.start()
        yield "{}:{}".format(*listener.getsockname())
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in kept:
            each.close()


def run(command: tuple[str, ...], address: str, monkeypatch: pytest.MonkeyPatch) -> Result:
    for module in (talk, mqtt_talk, management, transform):
        monkeypatch.setattr(module, "CONNECT_S", CONNECT_S)
    for protocol in ("BOOTSTRAP", "MQTT", "HTTP", "AMQP"):
        monkeypatch.setenv(f"ENTREPOT_{protocol}", address)
    CliRunner().invoke(main, [command[0], "--help"])  # What is imported is no part of the time.
    begun = time.monotonic()
    result = CliRunner().invoke(main, list(command))
    assert time.monotonic() - begun < SECONDS
    return result


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nobody_listens(command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(command, NOWHERE, monkeypatch)
    assert result.exit_code == 1
    assert "no broker answers at 127.0.0.1:1" in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "command", [each for each in COMMANDS if each[0] != "queues"], ids=" ".join
)
def test_somebody_says_nothing(
    command: tuple[str, ...], silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP is left out: nothing is said there before the answer, and an answer may take long."""
    result = run(command, silent, monkeypatch)
    assert result.exit_code == 1
    assert silent in result.output
