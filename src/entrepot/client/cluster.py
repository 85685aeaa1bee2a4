"""How a request finds its broker.

Bootstrap addresses lead to any broker; from there metadata lead to the one that leads a
partition or controls the cluster, and a question to the one that coordinates a group.
What is known may be out of date: an error that says so makes us forget it and ask again.
Connections are made when needed, one per broker, and made anew when they break.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.metadata.v12.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import TopicName
from kio.static.primitive import i8

from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError, Refused, Unreachable, check
from entrepot.client.sasl import Credentials
from entrepot.core.ports import Net

PAUSE_S_FIRST = 0.02
PAUSE_S_MAX = 1.0

_GROUP = i8(0)  # What a coordinator is asked for; transactions have theirs, too.

_Answer = TypeVar("_Answer")


class Broker(NamedTuple):
    id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    index: int
    leader: int  # -1: nobody leads it.
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    id: UUID | None  # None: the broker is too old to tell.
    is_internal: bool
    partitions: tuple[PartitionInfo, ...]  # In the order of their index.


class Cluster:
    def __init__(
        self,
        net: Net,
        bootstrap: str,
        *,
        client_id: str = "entrepot",
        timeout_s: float = 30.0,
        connect_s: float | None = None,
        attempts: int = 10,
        credentials: Credentials | None = None,
    ) -> None:
        self.brokers: dict[int, Broker] = {}
        self.controller = -1
        self._net = net
        self._bootstrap = parse_bootstrap(bootstrap)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_s = connect_s or timeout_s
        self._attempts = attempts
        self._credentials = credentials
        # What we know; forgotten when it proves wrong.
        self._topics: dict[str, TopicInfo] = {}
        self._coordinators: dict[str, Broker] = {}  # By group.
        self._connections: dict[tuple[str, int], Connection] = {}
        self._opening: dict[tuple[str, int], asyncio.Lock] = {}

    def twin(self) -> "Cluster":
        """The same brokers through connections of its own. A broker answers a connection in
        order, so what must not wait behind a fetch or a rebalance goes through a twin."""
        twin = copy(self)
        twin._topics, twin._coordinators = {}, {}
        twin._connections, twin._opening = {}, {}
        return twin

    async def ask(
        self,
        request: Any,
        answer: type[_Answer],
        *,
        node: int | None = None,
        timeout_s: float | None = None,
    ) -> _Answer:
        """Ask this broker, or any. Errors inside the answer are the caller's to look at."""
        connection = await (self._any() if node is None else self._connection(node))
        return await connection.ask(request, answer, timeout_s or self._timeout_s)

    async def tell(self, request: Any, *, node: int) -> None:
        """Send what is never answered (a produce request with acks=0)."""
        await (await self._connection(node)).tell(request)

    async def ask_controller(self, request: Any, answer: type[_Answer]) -> _Answer:
        if self.controller not in self.brokers:
            await self.describe([])
        known = self.controller in self.brokers
        return await self.ask(request, answer, node=self.controller if known else None)

    async def ask_coordinator(
        self, group: str, request: Any, answer: type[_Answer], *, timeout_s: float | None = None
    ) -> _Answer:
        broker = await self.coordinator(group)
        connection = await self._open((broker.host, broker.port))
        return await connection.ask(request, answer, timeout_s or self._timeout_s)

    async def coordinator(self, group: str) -> Broker:
        """The broker that knows the group's members and offsets."""
        known = self._coordinators.get(group)
        if known is None:
            request = FindCoordinatorRequest(key=group, key_type=_GROUP)
            found = await self.ask(request, FindCoordinatorResponse)
            check(found.error_code, f"group {group}", found.error_message)
            known = self._coordinators[group] = Broker(found.node_id, found.host, found.port)
        return known

    async def retry(self, attempt: Callable[[], Awaitable[_Answer]]) -> _Answer:
        """Repeat what may succeed later, with what we know of the cluster forgotten."""
        pause_s = PAUSE_S_FIRST
        for _ in range(self._attempts - 1):
            try:
                return await attempt()
            except ClientError as error:
                if not error.retriable:
                    raise
            self.forget()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)
        return await attempt()

    def forget(self) -> None:
        self._topics.clear()
        self._coordinators.clear()
        self.controller = -1

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """What is known of the topic. A missing one is made only if the broker does such things."""
        known = self._topics.get(name)
        if known is not None:
            return known
        found = (await self.describe([name], create=create))[0]
        if isinstance(found, Refused):
            raise found
        return found

    async def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads the partition."""
        partitions = (await self.topic(topic)).partitions
        if not 0 <= partition < len(partitions):
            about = f"partition {partition} of topic {topic}"
            raise Refused(ErrorCode.unknown_topic_or_partition, about)
        leader = partitions[partition].leader
        if leader < 0:
            raise Refused(ErrorCode.leader_not_available, f"partition {partition} of {topic}")
        return leader

    async def describe(
        self, topics: Iterable[str] | None, *, create: bool = False
    ) -> list[TopicInfo | Refused]:
        """Ask anew about these topics, or about all; remember and return the answers."""
        request = MetadataRequest(
            topics=None
            if topics is None
            else tuple(MetadataRequestTopic(topic_id=None, name=TopicName(t)) for t in topics),
            allow_auto_topic_creation=create,
            include_topic_authorized_operations=False,
        )
        answer = await self.ask(request, MetadataResponse)
        self.brokers = {b.node_id: Broker(b.node_id, b.host, b.port) for b in answer.brokers}
        self.controller = answer.controller_id
        found = [_topic_info(topic) for topic in answer.topics]
        for info in found:
            if isinstance(info, TopicInfo):
                self._topics[info.name] = info
        return found

    async def connect(self) -> None:
        """Reach any broker, or say at once that there is none."""
        await self._any()

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    async def _any(self) -> Connection:
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        problems = []
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        for address in dict.fromkeys([*self._bootstrap, *known]):
            try:
                return await self._open(address)
            except Unreachable as error:
                problems.append(str(error))
        raise Unreachable("; ".join(problems))

    async def _connection(self, node: int) -> Connection:
        broker = self.brokers.get(node)
        if broker is None:
            raise Unreachable(f"broker {node} is not in the cluster's metadata")
        return await self._open((broker.host, broker.port))

    async def _open(self, address: tuple[str, int]) -> Connection:
        async with self._opening.setdefault(address, asyncio.Lock()):
            connection = self._connections.get(address)
            if connection is None or not connection.is_open:
                connection = await Connection.open(
                    self._net,
                    *address,
                    client_id=self._client_id,
                    timeout_s=self._connect_s,
                    credentials=self._credentials,
                )
                self._connections[address] = connection
            return connection


def parse_bootstrap(text: str) -> list[tuple[str, int]]:
    """`host:port,host:port`; the port may be left out, an IPv6 address is in brackets."""
    found = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = entry.rpartition(":")
        if not colon or entry.endswith("]"):
            host, port = entry, "9092"
        if not port.isdecimal() or not 0 < int(port) < 65536 or not host:
            raise ClientError(f"{entry!r} is not an address like localhost:9092")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ClientError("no broker address given")
    return found


def _topic_info(topic: MetadataResponseTopic) -> TopicInfo | Refused:
    name = topic.name or ""
    try:
        check(topic.error_code, f"topic {name}")
    except Refused as error:
        return error
    partitions = sorted(topic.partitions, key=lambda partition: partition.partition_index)
    return TopicInfo(
        name=name,
        id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(_partition_info(partition) for partition in partitions),
    )


def _partition_info(partition: MetadataResponsePartition) -> PartitionInfo:
    return PartitionInfo(
        index=partition.partition_index,
        leader=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replica_nodes,
        in_sync=partition.isr_nodes,
    )
