"""A real cluster on loopback: processes of `entrepot serve`, a real etcd, and what goes wrong."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient, ClusterMetadata

from entrepot.cli.local_etcd import LocalEtcd
from entrepot.testing import Broker
from tests.cluster.proxies import Proxies

HEAL_S_MAX = 90.0
_ETCD_FAST = ("--heartbeat-interval", "50", "--election-timeout", "250")


class Node:
    """A broker process, which others reach through a proxy."""

    def __init__(self, number: int, broker: Broker, proxy_port: int) -> None:
        self.number = number
        self.name = f"node{number}"
        self.broker = broker
        self.proxy_port = proxy_port
        self.is_stopped = False

    @property
    def pid(self) -> int:
        with contextlib.suppress(AssertionError):
            return self.broker.pid
        return 0


class World:
    """With one node there is no etcd, and nothing to cut: that node is alone."""

    def __init__(
        self,
        directory: Path,
        count: int,
        settings: Mapping[str, object] | None = None,
        client: Mapping[str, object] | None = None,
    ) -> None:
        """`client` has settings of the clients that ask the cluster how it is."""
        self.directory = directory
        self.proxies = Proxies()
        self.nodes: list[Node] = []
        self.etcd = LocalEtcd(directory / "etcd") if count > 1 else None
        self._is_etcd_stopped = False
        self._count = count
        self.settings = dict(settings or {})
        self.client = {"log_level": 0, **(client or {})}

    def __enter__(self) -> Self:
        self.proxies.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _start(self) -> None:
        if self.etcd is not None:
            self.etcd.start(*_ETCD_FAST)
            self.etcd.wait()
        for number in range(1, self._count + 1):
            port = self.proxies.listen(f"node{number}")
            settings: dict[str, object] = {
                "node_id": number, "host": "127.0.0.1", "advertised.host": "127.0.0.1",
                "advertised.kafka_port": port, **self.settings,
            }  # fmt: skip
            if self.etcd is not None:
                to_etcd = self.proxies.listen(f"etcd of node{number}")
                self.proxies.aim(f"etcd of node{number}", "127.0.0.1", self.etcd.client_port)
                settings["cluster.coordinator"] = [f"http://127.0.0.1:{to_etcd}"]
            broker = Broker(self.directory / f"node-{number}" / "data", settings=settings)
            broker.patience_s = HEAL_S_MAX
            node = Node(number, broker, port)
            self.nodes.append(node)
            self.proxies.pids[node.name] = lambda node=node: node.pid  # type: ignore[misc]
        for node in self.nodes:
            self.begin(node)
        for node in self.nodes:
            self._wait_known(node)

    def _wait_known(self, node: Node) -> None:
        """Wait until the node knows all nodes."""
        address, deadline = f"127.0.0.1:{node.proxy_port}", time.monotonic() + HEAL_S_MAX
        while True:
            admin = AdminClient({"bootstrap.servers": address, **self.client})
            if len(admin.list_topics(timeout=10).brokers) == self._count:
                return
            assert time.monotonic() < deadline, f"node {node.number} does not know the others"
            time.sleep(0.1)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                self.resume(node)
            node.broker.kill()
            node.broker.close()
        if self.etcd is not None and self.etcd.process is not None:
            self.etcd.process.kill()
            self.etcd.process.wait()
        self.proxies.__exit__(None, None, None)  # type: ignore[arg-type]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{node.proxy_port}" for node in self.nodes)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **self.client})

    # --- what goes wrong

    def kill(self, node: Node) -> None:
        self.resume(node)
        node.broker.kill()

    def begin(self, node: Node) -> None:
        if not node.pid:
            node.broker.start()
            self.proxies.aim(node.name, *node.broker.endpoints["kafka"])

    def stop(self, node: Node) -> None:
        if node.pid:
            os.kill(node.pid, signal.SIGSTOP)
            node.is_stopped = True

    def resume(self, node: Node) -> None:
        if node.is_stopped and node.pid:
            os.kill(node.pid, signal.SIGCONT)
        node.is_stopped = False

    def cut_off_from_etcd(self, node: Node) -> None:
        self.proxies.cut(node.name, f"etcd of {node.name}")

    def stop_etcd(self) -> None:
        assert self.etcd is not None
        assert self.etcd.process is not None
        self.etcd.process.send_signal(signal.SIGSTOP)
        self._is_etcd_stopped = True

    def kill_etcd(self) -> None:
        assert self.etcd is not None
        assert self.etcd.process is not None
        self.etcd.process.kill()
        self.etcd.process.wait()

    def heal(self) -> None:
        """Let everything go on that was stopped, cut or killed."""
        self.proxies.heal()
        if self.etcd is not None:
            assert self.etcd.process is not None
            if self._is_etcd_stopped:
                self.etcd.process.send_signal(signal.SIGCONT)
                self._is_etcd_stopped = False
            if self.etcd.process.poll() is not None:
                self.etcd.start(*_ETCD_FAST)
        for node in self.nodes:
            self.resume(node)
        for node in self.nodes:
            self.begin(node)

    # --- what is to be seen

    def metadata(self) -> ClusterMetadata:
        return self.admin().list_topics(timeout=10)

    def unhealed(self, topics: list[str]) -> str:
        """Return what is not as it should be; empty when all replicas are in sync."""
        try:
            seen = self.metadata()
        except Exception as error:  # librdkafka's, of several kinds.
            return str(error)
        if len(seen.brokers) < self._count:
            return f"only nodes {sorted(seen.brokers)} are there"
        for name in topics:
            if name not in seen.topics:
                return f"the node that was asked does not know {name}"
            for number, partition in seen.topics[name].partitions.items():
                if partition.leader not in seen.brokers:
                    return f"{name} {number} has no leader"
                if len(partition.isrs) < len(partition.replicas):
                    return f"{name} {number}: {partition.isrs} of {partition.replicas} in sync"
        return ""

    def wait_healed(self, topics: list[str]) -> str:
        """Wait until nothing is wrong any more; return what still is when that takes too long."""
        deadline = time.monotonic() + HEAL_S_MAX
        while wrong := self.unhealed(topics):
            if time.monotonic() > deadline:
                return wrong
            time.sleep(0.2)
        return ""


def has_etcd() -> bool:
    try:
        return LocalEtcd(Path("etcd")).program.exists()
    except Exception:
        return False
