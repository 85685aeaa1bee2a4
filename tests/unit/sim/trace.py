"""A busy simulated world, printed as one number. Run by `test_loop` in several processes."""

import asyncio
import hashlib
import sys

from entrepot.core.ports import Link
from sim.disk import Habits, SimDisk
from sim.entropy import SimEntropy
from sim.loop import Process, SimLoop, run
from sim.net import SimNetwork

ROUNDS = 20
CLIENTS = 5


class Recorder:
    """A receiver that answers everything, and notes what happens to it."""

    def __init__(self, link: Link, trace: list[object], name: str) -> None:
        self._link = link
        self._trace = trace
        self._name = name
        self._view = memoryview(bytearray(100))

    def _note(self, *event: object) -> None:
        self._trace.append((asyncio.get_running_loop().time(), self._name, *event))

    def writable(self) -> memoryview:
        return self._view

    def received(self, size: int) -> None:
        self._note("received", bytes(self._view[:size]))
        if self._name == "server":
            self._link.send([bytes(self._view[:size])])

    def drained(self) -> None:
        self._note("drained")

    def closed(self, reason: str) -> None:
        self._note("closed", reason)


async def main(loop: SimLoop) -> list[object]:
    trace: list[object] = []
    entropy = SimEntropy(loop.random("entropy"))
    network = SimNetwork(loop.random("net"))
    disk = SimDisk(loop.random("disk"), Habits(short_write_chance=0.2))

    async def client(name: str, port: int) -> None:
        link = await network.door(name).connect(
            "server", port, lambda link: Recorder(link, trace, name)
        )
        for _ in range(5):
            link.send([entropy.token(entropy.below(50))])
            await asyncio.sleep(entropy.below(10) / 1000)

    async def writer(name: str, disk: SimDisk) -> None:
        file = disk.open(name, create=True)
        while True:
            size = file.write(file.size(), [entropy.token(3_000)])
            trace.append((loop.time(), name, size, await disk.sync([file], [""])))

    for round_number in range(ROUNDS):
        process = Process(loop)
        listener = await network.door("server").listen(
            "server", 0, lambda link: Recorder(link, trace, "server")
        )
        for name in ("a", "b", "c"):
            process.start(writer(name, disk))
        clients = [
            asyncio.create_task(client(f"client {number}", listener.port))
            for number in range(CLIENTS)
        ]
        done, pending = await asyncio.wait(clients, timeout=0.02)
        for task in pending:
            task.cancel()
        trace.append([task.get_name() for task in done])  # A set, in an order of its own.
        network.crash("server")
        process.kill()
        disk = disk.crash() if round_number % 2 else disk.kill()
        trace.extend(disk.open(name).read(0, 1_000_000) for name in disk.names(""))
    return trace


if __name__ == "__main__":
    outcome = run(int(sys.argv[1]), main)
    assert len(outcome) > 1_000
    print(hashlib.sha256(repr(outcome).encode()).hexdigest())
