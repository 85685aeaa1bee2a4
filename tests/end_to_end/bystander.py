"""What must stay as it is while somebody misbehaves: another client, the memory, the log."""

import sys
import time

import pytest

from entrepot.testing import Broker
from tests.end_to_end.bare import BareClient, batch_of, values_of

WAIT_S = 30


class Bystander:
    """A client that does nothing wrong and must not notice those who do."""

    def __init__(self, server: Broker, topic: str = "bystander") -> None:
        self._client = BareClient(server)
        self._topic = topic
        self._pid = server.pid
        self._server = server
        self._sent: list[bytes] = []
        self._client.create(topic)

    def is_unharmed(self) -> None:
        assert self._server.pid == self._pid
        self._sent.append(b"%d" % len(self._sent))
        result = self._client.produce(self._topic, batch_of(self._sent[-1]))
        assert (result.error_code, result.offset_first) == (0, len(self._sent) - 1)
        assert values_of(self._client.read(self._topic)) == self._sent


def lines_about(server: Broker, address: str) -> list[str]:
    """What the log says of a client, once it says anything."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        lines = server.log_path.read_text(errors="replace").splitlines()
        if found := [line for line in lines if f" {address}:" in line]:
            return found
        time.sleep(0.01)
    return []


def memory_mib(server: Broker, name: str = "VmRSS") -> int:
    with open(f"/proc/{server.pid}/status") as status:
        (line,) = [line for line in status if line.startswith(name + ":")]
    return int(line.split()[1]) // 1024


class Growth:
    """By how much the broker's memory grew at most, in MiB, since this was made."""

    def __init__(self, server: Broker) -> None:
        if not sys.platform.startswith("linux"):
            pytest.skip("a process's memory is read from /proc")
        self._server = server
        with open(f"/proc/{server.pid}/clear_refs", "w") as peak:
            peak.write("5")
        self._before = memory_mib(server)

    def peak(self) -> int:
        return memory_mib(self._server, "VmHWM") - self._before
