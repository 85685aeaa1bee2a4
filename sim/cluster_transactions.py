"""Transactions in the cluster of `cluster_world`, and producers that repeat what was not answered.

The clients are those of `transaction_clients`; each of their requests goes to the node that leads
the partition, or coordinates the transaction or the group. Beside them are idempotent producers,
which send a batch until it is answered: it must be there once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v5.response import InitProducerIdResponse
from kio.static.primitive import i8

from entrepot.broker import vouching
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction_coordinator import TransactionCoordinator
from entrepot.broker.transaction_markers import MarkerWriter
from entrepot.client import cluster as routing
from entrepot.client.errors import ClientError, Refused, Unreachable
from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.log.policy import Durability
from entrepot.log.producers import Producers
from entrepot.wire.kafka.api import Api
from sim import transaction_messages as messages
from sim.cluster_world import COUNT, NODES, PATIENCE_S, TOPIC, ClusterWorld
from sim.history import Violation
from sim.loop import SimLoop
from sim.transaction_clients import BOOKS, LISTS, TIMEOUT_MS, Asked, TransactionClients

IDEMPOTENT = 2
_GROUPS, _TRANSACTIONS = 0, 1
_MOVED = (
    ErrorCode.not_leader_or_follower,
    ErrorCode.not_coordinator,
    ErrorCode.leader_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.coordinator_not_available,
)


class Outcome(NamedTuple):
    acks: int
    reads: int
    crashes: int
    changes: int  # Of assignments.
    committed: int  # Transactions.
    transactional_reads: int
    trace: str


class Router:
    """Asks the node that a request is for."""

    def __init__(self, world: ClusterTransactionWorld, name: str) -> None:
        bootstrap = ",".join(f"n{node}:9092" for node in NODES)
        net = world.door(name)
        self._cluster = routing.Cluster(
            net, bootstrap, client_id=name, timeout_s=PATIENCE_S, attempts=1
        )
        self._coordinators: dict[tuple[int, str], int] = {}
        self.is_open = True

    async def ask(self, request: Any, answer: type[Any], timeout_s: float) -> Any:
        node = await self._node(request)
        try:
            response = await self._cluster.ask(request, answer, node=node)
        except Unreachable:
            self._forget()
            raise
        code = code_of(response)
        if code in _MOVED:
            self._forget()
            await asyncio.sleep(0.05)
        return response

    def close(self) -> None:
        self.is_open = False
        self._cluster.drop()

    def _forget(self) -> None:
        self._coordinators.clear()
        self._cluster.forget()

    async def _node(self, request: Any) -> int:
        match Api(request.__api_key__):
            case Api.PRODUCE:
                topic = request.topic_data[0]
                return await self._cluster.leader(topic.name, topic.partition_data[0].index)
            case Api.FETCH:
                wanted = request.topics[0]
                return await self._cluster.leader(wanted.topic, wanted.partitions[0].partition)
            case Api.OFFSET_FETCH:
                return await self._coordinator(_GROUPS, request.groups[0].group_id)
            case Api.TXN_OFFSET_COMMIT:
                return await self._coordinator(_GROUPS, request.group_id)
            case Api.ADD_PARTITIONS_TO_TXN:
                key = request.v3_and_below_transactional_id
                return await self._coordinator(_TRANSACTIONS, key)
            case _:
                return await self._coordinator(_TRANSACTIONS, request.transactional_id)

    async def _coordinator(self, kind: int, key: str) -> int:
        known = self._coordinators.get((kind, key))
        if known is None:
            request = FindCoordinatorRequest(key=key, key_type=i8(kind))
            found = await self._cluster.ask(request, FindCoordinatorResponse)
            if found.error_code is not ErrorCode.none:
                raise Refused(found.error_code, "its coordinator is not known")
            known = self._coordinators[kind, key] = int(found.node_id)
            if known not in self._cluster.brokers:
                await self._cluster.describe([])
        return known


def code_of(response: Any) -> ErrorCode:
    match Api(response.__api_key__):
        case Api.FETCH:
            ((found,),) = (topic.partitions for topic in response.responses)
            return ErrorCode(found.error_code)
        case Api.OFFSET_FETCH:
            return ErrorCode(response.groups[0].error_code)
    return messages.code_of(response)


class ClusterTransactionWorld(TransactionClients, ClusterWorld):
    tries = 100
    topics: Mapping[str, int] = {TOPIC: COUNT, "lists": len(LISTS), "books": len(BOOKS), "copy": 1}

    def __init__(self, loop: SimLoop, **options: Any) -> None:
        ClusterWorld.__init__(self, loop, **options)
        TransactionClients.__init__(self)

    def door(self, name: str) -> Any:
        return self._network.door(name)

    async def outcome(self) -> Outcome:
        found = await self.run()
        counts = found.acks, found.reads, found.crashes, found.changes
        return Outcome(*counts, self.seen.committed, self.seen.reads, found.trace)

    async def _connect(self, name: str) -> Asked:
        return Router(self, name)

    def _more_work(self) -> list[Coroutine[Any, Any, None]]:
        work = [self._work_on(name, task) for name, task in self._work()]
        return work + [self._repeat(f"i{number}") for number in range(IDEMPOTENT)]

    async def _work_on(
        self, name: str, work: Callable[[str, Random, Asked], Coroutine[Any, Any, None]]
    ) -> None:
        random = self._loop.random(name)
        while not self._is_over:
            router = await self._connect(f"t-{name}")
            try:
                while not self._is_over:
                    await work(name, random, router)
            except ClientError:
                await asyncio.sleep(random.uniform(0.01, 0.3))
            router.close()

    # --- idempotent producers

    async def _repeat(self, name: str) -> None:
        """Send batches with numbers, each until it is answered."""
        random = self._loop.random(name)
        while not self._is_over:
            client = self._client(name)
            with contextlib.suppress(ClientError):
                request = messages.init(None, 1_000)
                producer = await client.cluster.ask(request, InitProducerIdResponse)
                if producer.error_code is ErrorCode.none:
                    await self._repeat_as(name, random, int(producer.producer_id))
            await client.close()
            await asyncio.sleep(random.uniform(0.01, 0.3))

    async def _repeat_as(self, name: str, random: Random, producer_id: int) -> None:
        sequences = [0] * COUNT
        while not self._is_over:
            partition, values = random.randrange(COUNT), []
            for _ in range(random.randint(1, 3)):
                self._counter += 1
                values.append(f"{name}:{self._counter}")
                self.history.write(partition, values[-1])
            data = batch.build(
                [Record(None, value.encode()) for value in values],
                now_ms=self._clock.now_ms(),
                producer_id=producer_id,
                producer_epoch=0,
                sequence_first=sequences[partition],
            )
            offset = await self._until_answered(name, random, partition, data)
            if offset is None:
                return
            self.history.ack(partition, offset, values)
            sequences[partition] += len(values)
            await asyncio.sleep(random.uniform(0, 0.05))

    async def _until_answered(
        self, name: str, random: Random, partition: int, data: bytes
    ) -> int | None:
        """Return the offset; None when it is not to be known any more."""
        while not self._is_over:
            client = self._client(name)
            try:
                return await client.produce(TOPIC, partition, data, acks=-1)
            except Refused as error:
                if error.code is ErrorCode.out_of_order_sequence_number:
                    raise Violation(f"{name}: what it was promised is forgotten: {error}") from None
            except ClientError:
                pass
            finally:
                await client.close()
            await asyncio.sleep(random.uniform(0, 0.3))
        return None

    # --- the end

    async def _check_more(self) -> None:
        await asyncio.sleep(2 * TIMEOUT_MS / 1_000)
        await self._check_logs(await self._connect("judge"), is_lossy=False)

    def _end_of(self, place: TopicPartition) -> int:
        ends = [self._served(n, place.topic, place.partition).partition.offset_end for n in NODES]
        return max(ends)


@contextlib.contextmanager
def planted(bug: str | None) -> Iterator[None]:
    match bug:
        case "old-coordinator":  # Its late markers are taken.
            with patch.object(Producers, "get", lambda *_: None):
                yield
        case "no-memory-of-ends":  # A batch joins although the transaction has ended meanwhile.
            with patch.object(vouching, "check", lambda *_: None):
                yield
        case "forgotten-producers":  # A follower that begins to lead knows no producer.
            with patch.object(Producers, "check", lambda *_: None):
                yield
        case "markers-here-only":
            with patch.object(MarkerWriter, "_leader", lambda *_: 0):
                yield
        case "old-states":  # Who leads anew goes on with what was there when it led before.
            with patch.object(TransactionCoordinator, "ended_to_lead", lambda *_: None):
                yield
        case _:
            assert bug is None, bug
            yield


def cluster_transactions(
    seconds: float = 20.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
    bug: str | None = None,
) -> Callable[[SimLoop], Coroutine[Any, Any, Outcome]]:
    """For `loop.run`."""

    async def main(loop: SimLoop) -> Outcome:
        with planted(bug):
            return await ClusterTransactionWorld(
                loop, seconds=seconds, sync_is_noop=sync_is_noop, durability=durability
            ).outcome()

    return main
