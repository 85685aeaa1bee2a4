"""A message between two processes: directly, and by way of the broker.

    python -m bench.baselines [--messages 2000]

100 bytes there and 100 bytes back, one at a time, over a socket of Berkeley's, MPI (if mpi4py and
an MPI such as mpich are installed), a remote call (XML-RPC, of Python's library), REST (POST over
HTTP, kept open), and through queues of entrepot with its own client, in memory and on disk. What
connects directly is quicker, and wants both to be there at the same time; what is only in a
process is gone with it. So the last columns say what one gets for the time.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import http.server
import shutil
import socket
import statistics
import subprocess
import sys
import time
import xmlrpc.client
import xmlrpc.server
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import entrepot
from entrepot.testing import Broker, broker

BODY = b"x" * 100
WARM_UP = 20
WAIT_S = 60.0
Ask = Callable[[], bytes]  # Sends the body, and returns what comes back.


class Way(NamedTuple):
    begins: Callable[[], contextlib.AbstractContextManager[Ask]]
    waits: bool  # Whether it waits for a receiver that is not there.
    survives: bool  # Whether it survives the end of all processes.


# --- the other process


def serve_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        peer, _ = listener.accept()
        with peer:
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := _exactly(peer, len(BODY)):
                peer.sendall(data)


def serve_calls() -> None:
    class Handler(xmlrpc.server.SimpleXMLRPCRequestHandler):
        protocol_version = "HTTP/1.1"  # It keeps the connection.
        disable_nagle_algorithm = True

    server = xmlrpc.server.SimpleXMLRPCServer(
        ("127.0.0.1", 0), Handler, logRequests=False, use_builtin_types=True
    )
    server.register_function(lambda body: body, "echo")
    print(server.server_address[1], flush=True)
    server.serve_forever()


def serve_rest() -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


def serve_queues(amqp: str, kafka: str) -> None:
    with entrepot.Client(amqp, kafka) as client:
        print(0, flush=True)
        while True:
            asked = client.get("asked")
            persistent = asked.headers["durable"] == "yes"
            client.put("answered", asked.body, persistent=persistent)


def serve_mpi(messages: int) -> None:
    """Both sides: MPI starts them itself. The first prints how long each message took."""
    from mpi4py import MPI

    world, body = MPI.COMM_WORLD, bytearray(BODY)
    if world.rank:
        for _ in range(messages + WARM_UP):
            world.Recv(body, 0)
            world.Send(body, 0)
        return

    def ask() -> bytes:
        world.Send(body, 1)
        world.Recv(body, 1)
        return bytes(body)

    print(*timed(ask, messages))


SERVERS = {
    "socket": serve_socket,
    "calls": serve_calls,
    "rest": serve_rest,
    "queues": serve_queues,
    "mpi": serve_mpi,
}


# --- this one


@contextlib.contextmanager
def served(kind: str, *arguments: str) -> Iterator[int]:
    """Run the other process; yield its port."""
    command = [sys.executable, "-m", "bench.baselines", "--serve", kind, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


@contextlib.contextmanager
def by_socket() -> Iterator[Ask]:
    with served("socket") as port, socket.create_connection(("127.0.0.1", port)) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def ask() -> bytes:
            peer.sendall(BODY)
            return _exactly(peer, len(BODY))

        yield ask


@contextlib.contextmanager
def by_call() -> Iterator[Ask]:
    with served("calls") as port:
        address = f"http://127.0.0.1:{port}"
        with xmlrpc.client.ServerProxy(address, use_builtin_types=True) as server:
            yield lambda: _bytes(server.echo(BODY))


@contextlib.contextmanager
def by_rest() -> Iterator[Ask]:
    with served("rest") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port)

        def ask() -> bytes:
            connection.request("POST", "/echo", BODY)
            return connection.getresponse().read()

        yield ask
        connection.close()


@contextlib.contextmanager
def by_queues(server: Broker, *, durable: bool) -> Iterator[Ask]:
    host, port = server.endpoints["amqp"]
    addresses = f"{host}:{port}", server.bootstrap
    with served("queues", *addresses), entrepot.Client(*addresses) as client:
        headers = {"durable": "yes" if durable else "no"}

        def ask() -> bytes:
            client.put("asked", BODY, headers=headers, persistent=durable)
            return client.get("answered", timeout_s=WAIT_S).body

        yield ask


def by_mpi(messages: int) -> list[float] | None:
    """Return how long messages took with MPI; None if it is not installed."""
    start = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:/usr/bin:/usr/local/bin")
    if start is None or find_spec("mpi4py") is None:
        return None
    command = [start, "-n", "2", sys.executable, "-m", "bench.baselines"]
    found = subprocess.run(
        [*command, "--serve", "mpi", str(messages)],
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S * 4,
    )
    return [float(each) for each in found.stdout.split()]


def timed(ask: Ask, messages: int) -> list[float]:
    """Return how long each message took there and back, in microseconds."""
    found = []
    for number in range(WARM_UP + messages):
        begun_s = time.perf_counter()
        assert ask() == BODY
        if number >= WARM_UP:
            found.append((time.perf_counter() - begun_s) * 1e6)
    return found


def measure(messages: int) -> Iterator[tuple[str, list[float] | None, bool, bool]]:
    """Yield a row for each way: its name, its times, and what one gets for them."""
    with broker() as server:
        ways = {
            "a socket": Way(by_socket, False, False),
            "a remote call (XML-RPC)": Way(by_call, False, False),
            "REST (HTTP POST)": Way(by_rest, False, False),
            "entrepot, in memory": Way(lambda: by_queues(server, durable=False), True, False),
            "entrepot, on disk": Way(lambda: by_queues(server, durable=True), True, True),
        }
        yield "MPI", by_mpi(messages), False, False
        for name, way in ways.items():
            with way.begins() as ask:
                yield name, timed(ask, messages), way.waits, way.survives


def main() -> None:
    parser = argparse.ArgumentParser(description="A message between two processes.")
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        kind, *rest = arguments.serve
        serve: Any = SERVERS[kind]
        serve(*(map(int, rest) if kind == "mpi" else rest))
        return
    print(f"{'there and back, 100 B':<26}{'median':>12}{'99 of 100':>12}  waits  survives")
    for name, times, waits, survives in measure(arguments.messages):
        if times is None:
            print(f"{name:<26}{'not installed':>12}")
            continue
        times.sort()
        late = times[len(times) * 99 // 100]
        kept = f"{_told(waits):>5}{_told(survives):>10}"
        print(f"{name:<26}{statistics.median(times):>9,.0f} us{late:>9,.0f} us  {kept}")


def _told(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _exactly(peer: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size and (more := peer.recv(size - len(found))):
        found += more
    return bytes(found)


def _bytes(found: object) -> bytes:
    assert isinstance(found, bytes)
    return found


if __name__ == "__main__":
    main()
