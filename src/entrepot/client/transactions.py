"""Transactions, by the requests they are made of.

Whoever takes a transactional id gets a producer id and an epoch. Batches that carry these
are of its transaction, which begins with the first of them and ends when it is told to;
that may be somebody else's task, who then needs no more than these three things. Ending
twice in the same way does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import NamedTuple, TypeVar

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import DescribeTransactionsResponse
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i8, i16, i32Timedelta

from entrepot.client.client import Client
from entrepot.client.errors import check

ONGOING = "Ongoing"  # A state's name, as the protocol has it.
TIMEOUT_MS = 900_000  # The longest a transaction may take.
_TRANSACTION = i8(1)  # What a coordinator is asked for.

_Answer = TypeVar("_Answer")


class OpenTransaction(NamedTuple):
    """What it takes to write to it, or to end it."""

    transactional_id: str
    producer_id: int
    epoch: int


class Transactions:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = client.cluster

    async def take(
        self, transactional_id: str, *, two_phase: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> OpenTransaction:
        """Take the id over: what was open is aborted, who had it is fenced.

        With two-phase commit, transactions have no timeout.
        """
        request = InitProducerIdRequest(
            transactional_id=TransactionalId(transactional_id),
            transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
            enable2_pc=two_phase,
        )

        async def ask(node: int) -> OpenTransaction:
            answer = await self._cluster.ask(request, InitProducerIdResponse, node=node)
            check(answer.error_code, f"transactional id {transactional_id}")
            return OpenTransaction(transactional_id, answer.producer_id, answer.producer_epoch)

        return await self.at_coordinator(transactional_id, ask)

    async def end(self, transaction: OpenTransaction, *, commit: bool) -> OpenTransaction:
        """Returns what the id's next transaction is written with."""
        request = EndTxnRequest(
            transactional_id=TransactionalId(transaction.transactional_id),
            producer_id=ProducerId(transaction.producer_id),
            producer_epoch=i16(transaction.epoch),
            committed=commit,
        )

        async def ask(node: int) -> OpenTransaction:
            answer = await self._cluster.ask(request, EndTxnResponse, node=node)
            check(answer.error_code, f"transactional id {transaction.transactional_id}")
            if answer.producer_id < 0:
                return transaction  # The broker is of a time before epochs moved with each end.
            return transaction._replace(producer_id=answer.producer_id, epoch=answer.producer_epoch)

        return await self.at_coordinator(transaction.transactional_id, ask)

    async def is_open(self, transaction: OpenTransaction) -> bool:
        """Whether this one, and no other of its id, is open."""
        return await self.find_open(transaction.transactional_id) == transaction

    async def find_open(self, transactional_id: str) -> OpenTransaction | None:
        request = DescribeTransactionsRequest(
            transactional_ids=(TransactionalId(transactional_id),)
        )

        async def ask(node: int) -> OpenTransaction | None:
            answer = await self._cluster.ask(request, DescribeTransactionsResponse, node=node)
            (found,) = answer.transaction_states
            if found.error_code is ErrorCode.transactional_id_not_found:
                return None
            check(found.error_code, f"transactional id {transactional_id}")
            if found.transaction_state != ONGOING:
                return None
            return OpenTransaction(transactional_id, found.producer_id, found.producer_epoch)

        return await self.at_coordinator(transactional_id, ask)

    async def list_open(self, prefix: str) -> list[str]:
        """Transactional ids that begin so and have an open transaction, on any broker."""

        async def ask(node: int) -> Iterable[str]:
            request = ListTransactionsRequest(state_filters=(ONGOING,))
            answer = await self._cluster.ask(request, ListTransactionsResponse, node=node)
            check(answer.error_code)
            return [each.transactional_id for each in answer.transaction_states]

        async def attempt() -> list[str]:
            await self._cluster.describe([])
            answers = await asyncio.gather(*map(ask, self._cluster.brokers))
            return sorted(each for found in answers for each in found if each.startswith(prefix))

        return await self._cluster.retry(attempt)

    async def at_coordinator(
        self, transactional_id: str, ask: Callable[[int], Awaitable[_Answer]]
    ) -> _Answer:
        """Ask the broker that coordinates the id's transactions."""
        request = FindCoordinatorRequest(
            key_type=_TRANSACTION, coordinator_keys=(transactional_id,)
        )

        async def attempt() -> _Answer:
            answer = await self._cluster.ask(request, FindCoordinatorResponse)
            (found,) = answer.coordinators
            check(found.error_code, f"transactional id {transactional_id}", found.error_message)
            if found.node_id not in self._cluster.brokers:
                await self._cluster.describe([])
            return await ask(found.node_id)

        return await self._cluster.retry(attempt)


async def idempotent_producer(client: Client) -> tuple[int, int]:
    """Return the id and the epoch of a new producer without transactions."""
    request = InitProducerIdRequest(
        transactional_id=None, transaction_timeout=i32Timedelta.parse(timedelta(0))
    )

    async def attempt() -> tuple[int, int]:
        answer = await client.cluster.ask(request, InitProducerIdResponse)
        check(answer.error_code)
        return int(answer.producer_id), int(answer.producer_epoch)

    return await client.cluster.retry(attempt)
