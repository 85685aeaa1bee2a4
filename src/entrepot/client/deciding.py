"""Which batch of a Spark query was written: one decision for the transactions of all its tasks.

Each task leaves a transaction open. The driver writes down, in one record, which ones make
up the batch, and commits them then. A crash before that record leaves transactions that
nobody decided on: they are aborted, and the batch is written anew. A crash after it leaves
a decision, which is carried out when the batch comes again; what was written again is
aborted. So a batch is seen once, whatever happens.

The records are in a compacted topic; its newest one for a query counts:

    key     the query's id
    value   {"batch": 7, "transactions": [["spark-…-0-0", 4001, 3], …]}

A transaction that was decided on must not end by itself, so these have no timeout.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from entrepot.client.client import Client
from entrepot.client.errors import BadAnswer
from entrepot.client.remembering import recall, remember
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.ports import Clock

TOPIC = "entrepot-spark-commits"


class Decision(NamedTuple):
    batch: int
    transactions: tuple[OpenTransaction, ...]


class TransactionGone(Exception):
    """A task's transaction is not open any more, so its batch cannot be committed."""


def prefix_of(query: str) -> str:
    """What the transactional ids of a query begin with."""
    return f"spark-{query}-"


async def commit(
    client: Client, clock: Clock, query: str, batch: int, written: Sequence[OpenTransaction]
) -> bool:
    """All of them are seen, or were before, when it returns; False when they were before."""
    known = await latest(client, query)
    await _tidy(client, query, written, known)
    transactions = Transactions(client)
    if known is not None and known.batch >= batch:
        for each in written:
            await transactions.end(each, commit=False)
        return False
    if written:
        await _decide(client, clock, query, Decision(batch, tuple(written)))
    for each in written:
        await transactions.end(each, commit=True)
    return True


async def clear(client: Client, query: str, transactional_id: str) -> None:
    """Before a task takes an id: what its predecessor left open ends as was decided."""
    left = await Transactions(client).find_open(transactional_id)
    if left is not None:
        await _end(client, left, await latest(client, query))


async def end_left_open(client: Client, left: OpenTransaction) -> bool:
    """End a transaction that nobody works on any more; return whether it was committed.

    What is part of a batch that was decided on is committed: the query will not write that batch
    again. Everything else is aborted, and its owner fenced.
    """
    of_task = re.fullmatch(r"spark-(.+)-\d+-\d+", left.transactional_id)
    known = None if of_task is None else await latest(client, of_task[1])
    return await _end(client, left, known)


async def _end(client: Client, left: OpenTransaction, known: Decision | None) -> bool:
    if known is not None and left in known.transactions:
        await Transactions(client).end(left, commit=True)
        return True
    await Transactions(client).take(left.transactional_id)  # Which aborts it.
    return False


async def _tidy(
    client: Client, query: str, written: Sequence[OpenTransaction], known: Decision | None
) -> None:
    """End what is open of the query but for these, which must be."""
    transactions = Transactions(client)
    ours = [each.transactional_id for each in written]
    for transactional_id in await transactions.list_open(prefix_of(query)):
        if transactional_id not in ours:
            left = await transactions.find_open(transactional_id)
            if left is not None:
                await _end(client, left, known)
    for each in written:
        if not await transactions.is_open(each):
            raise TransactionGone(
                f"transaction {each.transactional_id} was ended by somebody else; "
                "does the query run twice?"
            )


# --- the record


async def _decide(client: Client, clock: Clock, query: str, decision: Decision) -> None:
    value = {"batch": decision.batch, "transactions": decision.transactions}
    await remember(client, clock, TOPIC, query, value)


async def latest(client: Client, query: str) -> Decision | None:
    """The newest decision for the query."""
    found = await recall(client, TOPIC, query)
    if found is None:
        return None
    try:
        transactions = [OpenTransaction(*each) for each in found["transactions"]]
        return Decision(found["batch"], tuple(transactions))
    except (KeyError, TypeError) as error:
        raise BadAnswer(f"topic {TOPIC} has a record that is not ours: {error}") from None
