"""Each port's real thing and its twin, as one fixture: a runner for an async test body.

A body gets what it tests and returns nothing. The twin runs in a simulated world, once per
seed, because what differs there is chance: order, delays, where the bytes are split.
"""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any

import pytest
import uvloop

from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.ports import Clock, Disk, Entropy, Net
from entrepot.log.disk import FileDisk
from entrepot.net.sockets import SocketNet
from entrepot.net.tls import TlsNet, client_context, server_context
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork
from tests import certificates

SEEDS = range(8)
LOOPS = {"asyncio": asyncio.run, "uvloop": uvloop.run}

OnClock = Callable[[Callable[[Clock], Coroutine[Any, Any, None]]], None]
OnDisk = Callable[[Callable[[Disk], Coroutine[Any, Any, None]]], None]
OnNet = Callable[[Callable[[Net, Disk], Coroutine[Any, Any, None]]], None]


@pytest.fixture(params=["system", "sim"])
def on_clock(request: pytest.FixtureRequest) -> OnClock:
    if request.param == "sim":
        return lambda body: run(0, lambda loop: body(SimClock(loop)))
    return lambda body: asyncio.run(body(SystemClock()))


@pytest.fixture(params=["system", "sim"])
def entropy(request: pytest.FixtureRequest) -> Entropy:
    return SimEntropy(Random(0)) if request.param == "sim" else SystemEntropy()


@pytest.fixture(params=["file", "file-threads", *(f"sim-{seed}" for seed in SEEDS)])
def on_disk(request: pytest.FixtureRequest, tmp_path: Path) -> OnDisk:
    if request.param.startswith("sim-"):
        seed = int(request.param.removeprefix("sim-"))
        return lambda body: run(seed, lambda loop: body(SimDisk(loop.random("disk"))))

    async def with_files(body: Callable[[Disk], Coroutine[Any, Any, None]]) -> None:
        disk = FileDisk(tmp_path, uses_kernel=request.param == "file")
        try:
            await body(disk)
        finally:
            disk.close()

    return lambda body: asyncio.run(with_files(body))


@pytest.fixture(scope="session")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ssl.SSLContext]:
    """Both sides of TLS, with a certificate that trusts itself."""
    made = certificates.make(tmp_path_factory.mktemp("tls"), "own", subject="/CN=node")
    server = server_context(made.certificate, made.key, None)
    return {"server": server, "client": client_context(made.certificate)}


@pytest.fixture(
    params=[*LOOPS, "no-descriptors", *map("tls-{}".format, LOOPS), *map("sim-{}".format, SEEDS)]
)
def on_net(request: pytest.FixtureRequest, tmp_path: Path) -> OnNet:
    """A net, and a disk for the ranges it sends; the real net also with files of the twin."""
    if request.param.startswith("sim-"):

        def in_simulation(body: Callable[[Net, Disk], Coroutine[Any, Any, None]]) -> None:
            async def main(loop: SimLoop) -> None:
                network = SimNetwork(loop.random("net"))
                await body(network.door("here"), SimDisk(loop.random("disk")))

            run(int(request.param.removeprefix("sim-")), main)

        return in_simulation

    async def with_sockets(body: Callable[[Net, Disk], Coroutine[Any, Any, None]]) -> None:
        disk = SimDisk(Random(0)) if request.param == "no-descriptors" else FileDisk(tmp_path)
        is_tls = request.param.startswith("tls-")
        net = TlsNet(**request.getfixturevalue("contexts")) if is_tls else SocketNet()
        try:
            async with asyncio.timeout(20):
                await body(net, disk)
        finally:
            net.close()

    start = LOOPS.get(request.param.removeprefix("tls-"), asyncio.run)
    return lambda body: start(with_sockets(body))
