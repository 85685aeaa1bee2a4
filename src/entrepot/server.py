"""Assembles the house; alone knows every part.

Only here are the real clock, entropy, disk and network built, and only here does a
setting become a plain value. A start that cannot be is a `StartError`, one line
for the person at the terminal.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import os
import resource
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from entrepot.broker.broker import Broker, Defaults
from entrepot.config import Config, Topics
from entrepot.core import limits
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.errors import InvalidConfig, StorageError
from entrepot.core.ports import Link, Listener, Receiver, World
from entrepot.gateway.kafka.adapter import KafkaAdapter
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.fetch_session import FetchSessions
from entrepot.log.disk import FileDisk
from entrepot.net.sockets import SocketNet

log = logging.getLogger("entrepot.server")


class StartError(Exception):
    """Why the broker cannot start, in one line."""


class Endpoint(NamedTuple):
    host: str
    port: int


def world(config: Config) -> World:
    """The real doors."""
    descriptors = _allow_many_files()
    try:
        disk = FileDisk(config.data_dir)
    except OSError as error:
        raise StartError(f"{config.data_dir}: {error.strerror}") from None
    connections_max = min(limits.CONNECTIONS_MAX, descriptors - 2 * disk.files_max)
    return World(SystemClock(), SystemEntropy(), disk, SocketNet(connections_max=connections_max))


class Server:
    def __init__(self, config: Config, doors: World) -> None:
        self._config = config
        self._doors = doors
        self._listeners: list[Listener] = []
        self.endpoints: dict[str, Endpoint] = {}
        try:
            self.broker = Broker(
                doors.disk,
                doors.clock,
                doors.entropy,
                _defaults(config),
                check_all=config.recovery == "full",
            )
        except InvalidConfig as error:
            raise StartError(str(error)) from None

    async def start(self) -> None:
        """Recover, then listen. When this returns, every endpoint accepts."""
        started = self._doors.clock.monotonic()
        try:
            await self.broker.open()
        except BlockingIOError:
            raise StartError(f"{self._config.data_dir}: another broker is using it") from None
        except OSError as error:
            raise StartError(f"{self._config.data_dir}: {error.strerror}") from None
        except StorageError as error:
            raise StartError(f"{self._config.data_dir}: {error}") from None
        if self._config.ports.kafka is not None:
            await self._listen_kafka(self._config.ports.kafka)
        seconds = self._doors.clock.monotonic() - started
        log.info("%d topics, started in %.3f s", len(self.broker.topics), seconds)

    async def stop(self) -> None:
        """No new connections, no more requests, everything permanent."""
        for listener in self._listeners:
            listener.close()
        self._doors.net.close()
        await asyncio.sleep(0)  # The adapters hear of it and let go of what they wait for.
        await self.broker.close()
        log.info("stopped")

    async def _listen_kafka(self, port: int) -> None:
        config, doors = self._config, self._doors
        context = Context(
            self.broker,
            doors.clock,
            FetchSessions(doors.clock, doors.entropy),
            config.node_id,
            config.advertised.host or config.host,
            0,
        )
        listener = await self._listen("kafka", port, lambda link: KafkaAdapter(link, context))
        context.port = config.advertised.kafka_port or listener.port

    async def _listen(
        self, protocol: str, port: int, adapter: Callable[[Link], Receiver]
    ) -> Listener:
        host = self._config.host
        try:
            listener = await self._doors.net.listen(host, port, adapter)
        except OSError as error:
            await self.broker.close()
            why = os.strerror(error.errno) if error.errno else str(error)
            raise StartError(f"cannot listen on {host}:{port} for {protocol}: {why}") from None
        self._listeners.append(listener)
        self.endpoints[protocol] = Endpoint(host, listener.port)
        return listener


def _defaults(config: Config) -> Defaults:
    """The topic settings that are not the usual ones, as Kafka names them."""
    chosen, usual = dataclasses.asdict(config.topics), dataclasses.asdict(Topics())
    auto_create, partitions = chosen.pop("auto_create"), chosen.pop("num_partitions")
    settings = {
        name.replace("_", "."): str(value)
        for name, value in chosen.items()
        if value != usual[name] and value is not None
    }
    if config.durability is not Config().durability:
        settings["durability"] = str(config.durability)
    return Defaults(partitions, auto_create, settings)


def _allow_many_files() -> int:
    """Connections and segments need descriptors; take as many as the system lets us."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return sys.maxsize if hard == resource.RLIM_INFINITY else hard


def stop_the_node(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The loop's exception handler: a mistake of ours in the background.

    What follows from it is unknown, so the process ends at once; recovery is made for that.
    """
    log.critical("stopping: %s", context.get("message"), exc_info=context.get("exception"))
    os._exit(70)
