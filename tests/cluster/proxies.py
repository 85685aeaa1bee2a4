"""Connections between processes on one machine, to be cut: one way, both ways, silently.

Each process is reached through a proxy. Who connects is found by asking the system which process
the other end of the connection is of; so nodes and clients use the same address, and only what is
between two nodes, or a node and etcd, is cut. A cut is silent: bytes are neither taken nor
refused, as when a cable is pulled. What was under way goes on when it is healed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16
_LOOK_S = 0.02  # How often a connection looks whether its cut is healed.


class Proxies:
    """Runs in a thread of its own."""

    def __init__(self) -> None:
        self.pids: dict[str, Callable[[], int]] = {}  # Name of a process -> its id, now.
        self._targets: dict[str, tuple[str, int]] = {}
        self._cut: dict[tuple[str, str], None] = {}  # (who connects, to whom).
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._servers: list[asyncio.Server] = []
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def listen(self, name: str) -> int:
        """Return the port of a new proxy; `aim` says whose."""
        return asyncio.run_coroutine_threadsafe(self._listen(name), self._loop).result()

    async def _listen(self, name: str) -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks[task] = None
            try:
                await self._serve(name, reader, writer)
            except asyncio.CancelledError:
                pass
            finally:
                del self._tasks[task]
                writer.transport.abort()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    def aim(self, name: str, host: str, port: int) -> None:
        """Say where the process listens that is reached through this proxy."""
        self._targets[name] = (host, port)

    # --- cutting

    def cut(self, source: str, target: str) -> None:
        """Cut what one process asks of another."""
        self._cut[source, target] = None

    def isolate(self, name: str, others: list[str]) -> None:
        """Cut a process off from these others, both ways."""
        for other in others:
            self.cut(name, other)
            self.cut(other, name)

    def heal(self) -> None:
        self._cut.clear()

    # --- connections

    async def _serve(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = self._name_of(writer.get_extra_info("peername")[1])
        await self._pass((source, name))
        try:
            there = await asyncio.open_connection(*self._targets[name])
        except (OSError, KeyError):
            return
        both = [
            asyncio.ensure_future(self._carry((source, name), reader, there[1])),
            asyncio.ensure_future(self._carry((source, name), there[0], writer)),
        ]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in both:
                task.cancel()
            await asyncio.wait(both)
            there[1].transport.abort()

    async def _carry(
        self, way: tuple[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK_BYTES):
                await self._pass(way)
                writer.write(data)
                await writer.drain()

    async def _pass(self, way: tuple[str, str]) -> None:
        while way in self._cut:  # noqa: ASYNC110 (another thread heals it)
            await asyncio.sleep(_LOOK_S)

    def _name_of(self, port: int) -> str:
        """Return the name of the process that has this port of loopback; empty: a client's."""
        inode = _inode_of(port)
        for name, pid in self.pids.items():
            if inode is not None and _has_socket(pid(), inode):
                return name
        return ""


def _inode_of(port: int) -> str | None:
    # Of all lines of the system, one by this pattern: others have thousands of connections, too.
    line = re.compile(rb"^ *\d+: [0-9A-F]+:%04X (?:\S+ +){7}(\d+)" % port, re.MULTILINE)
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for found in line.finditer(Path(table).read_bytes()):
            if found[1] != b"0":
                return found[1].decode()
    return None


def _has_socket(pid: int, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) == wanted:
                    return True
    return False
