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
import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

_CHUNK_BYTES = 1 << 16
Address = tuple[str, int]
_SOCK_DIAG, _BY_FAMILY, _REQUEST = 4, 20, 1  # Of Linux: netlink's protocol, message and flag.
_ANY_STATE, _NO_COOKIE = 0xFFFFFFFF, (0xFFFFFFFF, 0xFFFFFFFF)
_HEADER_BYTES = 16
_INODE_AT = 68  # In `struct inet_diag_msg`.
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
        far = writer.get_extra_info("peername")
        source = self._name_of(_inode_of(far, writer.get_extra_info("sockname")))
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

    def _name_of(self, inode: int | None) -> str:
        """Return the name of the process that has this socket; empty: a client's."""
        for name, pid in self.pids.items():
            if inode is not None and _has_socket(pid(), inode):
                return name
        return ""


def _inode_of(near: Address, far: Address) -> int | None:
    """Return the inode of the socket that is bound to `near` and connected to `far`.

    Asked of the kernel by netlink: to read /proc/net/tcp takes tens of milliseconds when there are
    thousands of sockets on the machine, for each connection.
    """
    ends = struct.pack(">HH", near[1], far[1])
    hosts = b"".join(socket.inet_aton(host).ljust(16, b"\0") for host, _ in (near, far))
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY_STATE)
    asked += ends + hosts + struct.pack("=III", 0, *_NO_COOKIE)
    header = struct.pack("=IHHII", _HEADER_BYTES + len(asked), _BY_FAMILY, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as asking:
        asking.sendto(header + asked, (0, 0))
        answer = asking.recv(_CHUNK_BYTES)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind != _BY_FAMILY:  # An error: there is none any more.
        return None
    (inode,) = struct.unpack_from("=I", answer, _HEADER_BYTES + _INODE_AT)
    return int(inode) or None


def _has_socket(pid: int, inode: int) -> bool:
    wanted = f"socket:[{inode}]"
    with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if os.readlink(entry.path) == wanted:
                    return True
    return False
