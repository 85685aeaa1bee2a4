"""Prints what SQS costs here, in moto_server and in ElasticMQ: send, and receive and delete, one at
a time; and how long messages take to receivers that wait.

    python -m bench.sqs

moto_server is installed into build/moto, and Maven fetches the jars of ElasticMQ, unless they are
named or there already; what cannot be had is left out.

Each of many connections waits for its answer before it asks again, as boto3's clients do. The
requests are written beforehand, as boto3 sends them in JSON, so that the client has little to do.
Our rows end with how many times the peer's rate ours is and, behind a slash, how many times our
processor time for one message theirs is: the noise of a machine changes the second less. The
brokers take turns. moto and ElasticMQ keep messages in memory; `os` and `fsync` say how durable
ours are.
"""

import argparse
import asyncio
import contextlib
import json
import re
import socket
import subprocess
import tempfile
import time
import venv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench import rates
from bench.brokers import fetch
from bench.meter import tree_cpu_s
from entrepot.testing import broker

BODY = "x" * 100
ELASTICMQ_HOME = Path(__file__).parent / "peers" / "elasticmq"
MOTO_HOME = Path(__file__).parent.parent / "build" / "moto"
START_S_MAX = 60.0
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_AUTHORIZATION = (
    "AWS4-HMAC-SHA256 Credential=any/20300101/us-east-1/sqs/aws4_request, "
    f"SignedHeaders=host;x-amz-date, Signature={'0' * 64}"
)

Server = tuple[int, int]  # Process and port.


class Connection:
    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> "Connection":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def ask(self, action: str, **parameters: Any) -> Any:
        body = json.dumps(parameters).encode()
        head = (
            f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{self._port}\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n"
            f"Authorization: {_AUTHORIZATION}\r\nX-Amz-Date: 20300101T000000Z\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        found = _LENGTH.search(answer)
        content = await self._reader.readexactly(int(found[1])) if found else b""
        assert b" 200 " in answer.partition(b"\r\n")[0], (answer, content)
        if b"connection: close" in answer.lower():
            self._writer.close()
            await self.open()
        return json.loads(content) if content else None

    def close(self) -> None:
        self._writer.close()


async def measure(server: Server, connections: int, count: int) -> dict[str, tuple[float, float]]:
    """Messages in a second, and microseconds of processor time for one, by what is done."""
    pid, port = server
    clients = [await Connection(port).open() for _ in range(connections)]
    name = f"bench-{time.monotonic_ns()}"
    url = (await clients[0].ask("CreateQueue", QueueName=name))["QueueUrl"]
    each = count // connections

    async def send(client: Connection) -> None:
        for _ in range(each):
            await client.ask("SendMessage", QueueUrl=url, MessageBody=BODY)

    async def receive(client: Connection) -> None:
        left = each
        while left:
            answer = await client.ask("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=1)
            for message in answer.get("Messages", ()):
                handle = message["ReceiptHandle"]
                await client.ask("DeleteMessage", QueueUrl=url, ReceiptHandle=handle)
                left -= 1

    found = {}
    for label, work in (("send", send), ("receive and delete", receive)):
        cpu_s, start = tree_cpu_s(pid), time.perf_counter()
        await asyncio.gather(*(work(client) for client in clients))
        done = each * connections
        cost = (tree_cpu_s(pid) - cpu_s) / done * 1e6
        found[label] = done / (time.perf_counter() - start), cost
    await clients[0].ask("DeleteQueue", QueueUrl=url)
    for client in clients:
        client.close()
    return found


async def measure_waiting(server: Server, receivers: int, count: int) -> list[float]:
    """Send messages in batches to receivers that wait. Returns the seconds that each took, from
    when it was sent until it was received."""
    clients = [await Connection(server[1]).open() for _ in range(receivers)]
    sender = await Connection(server[1]).open()
    url = (await sender.ask("CreateQueue", QueueName=f"bench-{time.monotonic_ns()}"))["QueueUrl"]
    took: list[float] = []

    async def receive(client: Connection) -> None:
        while len(took) < count:
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 2}
            found = (await client.ask("ReceiveMessage", **asked)).get("Messages", ())
            now = time.perf_counter()
            took.extend(now - float(each["Body"]) for each in found)
            entries = [
                {"Id": str(place), "ReceiptHandle": each["ReceiptHandle"]}
                for place, each in enumerate(found)
            ]
            if entries:
                await client.ask("DeleteMessageBatch", QueueUrl=url, Entries=entries)

    async def send() -> None:
        for _ in range(count // 10):
            text = str(time.perf_counter())
            entries = [{"Id": str(place), "MessageBody": text} for place in range(10)]
            await sender.ask("SendMessageBatch", QueueUrl=url, Entries=entries)

    await asyncio.gather(send(), *(receive(client) for client in clients))
    await sender.ask("DeleteQueue", QueueUrl=url)
    for client in (sender, *clients):
        client.close()
    return sorted(took)


@contextlib.contextmanager
def ours(durability: str) -> Iterator[Server]:
    with broker(durability=durability, settings={"ports.sqs": 0}) as started:
        yield started.pid, int(started.sqs_url.rpartition(":")[2])


def moto(program: Path, directory: Path) -> Iterator[Server]:
    port = free_port()
    return run([str(program), "-H", "127.0.0.1", "-p", str(port)], port)


def fetch_moto() -> Path | str:
    """Return the program, installed when it is not there yet; or why there is none."""
    found = MOTO_HOME / "bin" / "moto_server"
    if found.exists():
        return found
    venv.create(MOTO_HOME, with_pip=True)
    install = [str(MOTO_HOME / "bin" / "python"), "-m", "pip", "install", "-q", "moto[server]"]
    done = subprocess.run(install, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        return f"moto could not be installed and is left out: {done.stdout.splitlines()[-1:]}"
    return found


def elasticmq(jars: Path, directory: Path) -> Iterator[Server]:
    port = free_port()
    settings = directory / "elasticmq.conf"
    settings.write_text(
        'include classpath("application.conf")\n'
        f'node-address {{ protocol = http, host = localhost, port = {port}, context-path = "" }}\n'
        f'rest-sqs {{ enabled = true, bind-port = {port}, bind-hostname = "127.0.0.1" }}\n'
        "rest-stats { enabled = false }\n"
    )
    command = ["java", f"-Dconfig.file={settings}", "-cp", f"{jars}/*", "org.elasticmq.server.Main"]
    return run(command, port)


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return int(chosen.getsockname()[1])


def run(command: list[str], port: int) -> Iterator[Server]:
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_S_MAX
            while time.monotonic() < deadline:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                    break
                time.sleep(0.1)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moto", type=Path, help="the program moto_server")
    parser.add_argument("--elasticmq", type=Path, help="a directory with the jars of ElasticMQ")
    parser.add_argument("--waiting", type=int, default=10_000, help="messages to 30 receivers")
    parser.add_argument("--connections", type=int, nargs="*", default=[1, 50])
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    started: dict[str, Callable[[], contextlib.AbstractContextManager[Server]]] = {
        "os": lambda: ours("os"),
        "fsync": lambda: ours("fsync"),
    }
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name, peer, given in (
            ("moto", moto, options.moto or fetch_moto()),
            ("ElasticMQ", elasticmq, options.elasticmq or fetch(ELASTICMQ_HOME, "ElasticMQ")),
        ):
            if isinstance(given, str):
                print(given)
            else:
                started[name] = partial(contextlib.contextmanager(peer), given, directory)
        servers = {name: stack.enter_context(start()) for name, start in started.items()}
        peers = [name for name in servers if name not in rates.OURS]
        print(rates.heading(peers))
        for connections in options.connections:
            runs: dict[str, dict[str, list[tuple[float, float]]]] = {}
            for _ in range(options.runs):
                for name, server in servers.items():
                    once = asyncio.run(measure(server, connections, options.messages))
                    for label, pair in once.items():
                        runs.setdefault(label, {}).setdefault(name, []).append(pair)
            for label, found in runs.items():
                text = f"{label}, {connections} connections"
                print(*rates.rows(text, found, peers), sep="\n", flush=True)
        print(f"\n{'seconds to 30 receivers that wait':50}{'median':>12}{'99 %':>12}{'most':>12}")
        for name, server in servers.items():
            took = asyncio.run(measure_waiting(server, 30, options.waiting))
            shown = (took[len(took) // 2], took[len(took) * 99 // 100], took[-1])
            print(f"{name:50}" + "".join(f"{each:12.3f}" for each in shown))


if __name__ == "__main__":
    main()
