"""An application that is elsewhere: the Python client stands for its queue manager."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

import pytest

import entrepot
from entrepot.client.amqp_connection import AmqpRefused
from entrepot.client.amqp_publisher import NotTaken
from entrepot.testing import Broker
from tests.end_to_end.test_links import Session, chain, eventually, get, knows

WAIT_S = 30.0


class Relay:
    """A network between a client and its manager; it can be cut."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections; new ones are let through."""
        sockets, self._sockets = self._sockets, []
        self.cuts += len(sockets) // 2
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                manager = socket.create_connection(self._target)
                self._sockets += (client, manager)
                for pair in ((client, manager), (manager, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture(scope="module")
def managers() -> Iterator[dict[str, Broker]]:
    with contextlib.ExitStack() as stack:
        made = chain()
        for each in made.values():
            stack.enter_context(each)
        eventually(lambda: knows(made["paris"], "tokyo"))
        yield made
        for each in made.values():
            assert "Traceback" not in each.log_path.read_text()


def work(client: entrepot.Client, network: Relay | None, name: str) -> list[object]:
    """Do everything there is to do with queues, and return what was seen."""
    seen: list[object] = []
    for number in range(4):
        client.put(f"{name}-in", f"order {number}", correlation_id=f"c-{number}")
    if network is not None:
        network.cut()
    seen.append([each.value for each in client.browse(f"{name}-in")])
    seen.append(client.get(f"{name}-in", WAIT_S, correlation_id="c-2").value)
    with contextlib.suppress(KeyError), client.transaction() as unit:
        unit.put(f"{name}-out@tokyo", unit.get(f"{name}-in", WAIT_S).value)
        raise KeyError  # Backed out.
    if network is not None:
        network.cut()
    with client.transaction() as unit:
        unit.put(f"{name}-out@tokyo", unit.get(f"{name}-in", WAIT_S).value)
    client.put(f"{name}-out@tokyo", "and one more")
    seen.append(client.count(f"{name}-in"))
    with pytest.raises(NotTaken):
        client.put(f"{name}-out@nowhere", "lost")
    with pytest.raises(NotTaken, match="-out@nowhere"), client.transaction() as unit:
        unit.put(f"{name}-out@nowhere", "lost")
    with pytest.raises(AmqpRefused, match="NOT_FOUND"):
        client.get(f"{name}-out@tokyo", 1)  # Got is what is here.
    return seen


@pytest.mark.parametrize("is_remote", [False, True])
def test_an_application_works_with_a_manager_as_if_it_were_here(
    managers: dict[str, Broker], is_remote: bool
) -> None:
    """Proves F-07 and AA-03: it says nothing else, and sees nothing else, when the manager is
    behind a network whose connections break."""
    host, port = managers["paris"].endpoints["amqp"]
    name = "remote" if is_remote else "local"
    with Session(managers["tokyo"]) as tokyo, Relay((host, port)) as network:
        tokyo.queue_declare(f"{name}-out", durable=True)
        address = network.address if is_remote else f"{host}:{port}"
        with entrepot.Client(address, patience_s=WAIT_S) as client:
            seen = work(client, network if is_remote else None, name)
        assert seen == [[f"order {number}" for number in range(4)], "order 2", 2]
        assert [get(tokyo, f"{name}-out")[1] for _ in range(2)] == ["order 0", "and one more"]
        assert tokyo.basic_get(f"{name}-out")[0] is None
        assert bool(network.cuts) is is_remote
