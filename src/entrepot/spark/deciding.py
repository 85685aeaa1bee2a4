"""Which batch of a query was written: one decision for the transactions of all its tasks.

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

import json
from collections.abc import Sequence
from typing import NamedTuple

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.errors import BadAnswer
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.batch import build, records, walk
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import MIB
from entrepot.core.ports import Clock
from entrepot.core.record import Record

TOPIC = "entrepot-spark-commits"
PART = TopicPartition(TOPIC, 0)
# Small segments: the newest one is never compacted.
SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * MIB)}
NEW_TOPIC = NewTopic(TOPIC, 1, settings=SETTINGS)
LOOK_BACK_RECORDS = 64  # At first; then further and further, as other queries are there, too.
LOOK_BACK_GROWTH = 16


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


async def _end(client: Client, left: OpenTransaction, known: Decision | None) -> None:
    if known is not None and left in known.transactions:
        await Transactions(client).end(left, commit=True)
    else:
        await Transactions(client).take(left.transactional_id)  # Which aborts it.


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
    record = Record(query.encode(), json.dumps(value).encode())
    batch = build([record], now_ms=clock.now_ms())
    await client.produce(*PART, batch)


async def latest(client: Client, query: str) -> Decision | None:
    """The newest decision for the query, looked for from the end."""
    await Admin(client).ensure_topic(NEW_TOPIC)
    first = (await client.list_offsets({PART: EARLIEST}))[PART].offset
    end = until = (await client.list_offsets({PART: LATEST}))[PART].offset
    size = LOOK_BACK_RECORDS
    while until > first:
        begin = max(first, end - size)
        found = await _newest(client, query.encode(), begin, until)
        if found is not None:
            return found
        until, size = begin, size * LOOK_BACK_GROWTH
    return None


async def _newest(client: Client, key: bytes, begin: int, until: int) -> Decision | None:
    found = None
    while begin < until:
        fetched = (await client.fetch({PART: begin}, wait_ms=0))[PART]
        view, after = memoryview(fetched.batches), begin
        try:
            for position, header in walk(view):
                after = header.offset_end
                whole = view[position : position + header.size]
                for record in records(whole) if header.count > 0 else ():
                    if record.key == key and begin <= record.offset < until:
                        found = _read(record)
        except (InvalidBatch, ValueError, KeyError, TypeError) as error:
            raise BadAnswer(f"topic {TOPIC} has a record that is not ours: {error}") from None
        if after <= begin:
            break  # The rest was compacted.
        begin = after
    return found


def _read(record: Record) -> Decision:
    document = json.loads(record.value or b"")
    return Decision(
        document["batch"], tuple(OpenTransaction(*each) for each in document["transactions"])
    )
