"""The broker for tests comes back on its ports, even if somebody else has one for a while."""

import socket
import subprocess
import threading
import time

import pytest

from entrepot.testing import START_S_MAX, Broker, broker

pytestmark = pytest.mark.usefixtures("true_command")

_TAKEN = "Address already in use"


def test_a_port_that_is_taken_for_a_while() -> None:
    with broker() as started:
        before = started.endpoints
        started.kill()
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind(("127.0.0.1", before["amqp"][1]))
            other.listen()
            freeing = threading.Thread(target=_free_once_refused, args=(started, other))
            freeing.start()
            started.start()
            freeing.join()
        assert started.endpoints == before
        assert _TAKEN in started.log_path.read_text()


def _free_once_refused(started: Broker, other: socket.socket) -> None:
    """Close the socket when the broker has said that it did not get the port."""
    deadline = time.monotonic() + START_S_MAX / 2
    while _TAKEN not in started.log_path.read_text() and time.monotonic() < deadline:
        time.sleep(0.01)
    other.close()


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_a_start_that_is_interrupted_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    launched: list[subprocess.Popen[bytes]] = []
    launch = Broker._launch

    def note(self: Broker) -> "subprocess.Popen[bytes]":
        launched.append(launch(self))
        return launched[-1]

    def interrupt(seconds: float) -> None:
        raise error

    made = broker()
    with monkeypatch.context() as patch:
        patch.setattr(Broker, "_launch", note)
        patch.setattr(time, "sleep", interrupt)
        with pytest.raises(error):
            made.start()
    (process,) = launched
    assert process.poll() is not None
    made.close()
    assert not made.data_dir.exists()


def test_its_ports_are_its_own_while_it_is_away() -> None:
    with broker() as started:
        before = started.endpoints
        started.kill()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(before["amqp"])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", before["amqp"][1]))
        started.start()
        assert started.endpoints == before
        started.restart()
        assert started.endpoints == before
