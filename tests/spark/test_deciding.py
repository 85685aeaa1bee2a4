"""A batch is seen once, wherever its driver or its tasks end, on a real broker."""

import contextlib
import pickle
from collections.abc import Callable, Sequence

import pytest

pa = pytest.importorskip("pyarrow", reason="the Spark sink needs pyarrow")

from entrepot.client import deciding, remembering, transaction_writer  # noqa: E402
from entrepot.client.client import LATEST, Client, TopicPartition  # noqa: E402
from entrepot.client.cluster import Cluster  # noqa: E402
from entrepot.client.deciding import TransactionGone, prefix_of  # noqa: E402
from entrepot.client.errors import Refused  # noqa: E402
from entrepot.client.transactions import OpenTransaction, Transactions  # noqa: E402
from entrepot.core.batch import Codec  # noqa: E402
from entrepot.core.clock import SystemClock  # noqa: E402
from entrepot.spark.connecting import Connected  # noqa: E402
from entrepot.spark.decoding import Range  # noqa: E402
from entrepot.spark.fetching import RangeReader  # noqa: E402
from entrepot.spark.options import Address  # noqa: E402
from entrepot.spark.writing import RowError, TaskWriter  # noqa: E402
from entrepot.testing import Broker  # noqa: E402
from tests.spark.producing import create, texts  # noqa: E402

ROWS = pa.schema([("key", pa.string()), ("value", pa.string())])


class Job:
    """A query without Spark: tasks that write, and a driver that decides."""

    def __init__(self, server: Broker, topic: str) -> None:
        self.address = Address(server.bootstrap)
        self.topic = topic
        self.query = f"query-{topic}"

    def task(self, number: int, values: Sequence[str]) -> OpenTransaction:
        transactional_id = f"{prefix_of(self.query)}{number}-0"

        async def begin(client: Client) -> OpenTransaction:
            await deciding.clear(client, self.query, transactional_id)
            return await Transactions(client).take(transactional_id, two_phase=True)

        with Connected(self.address) as connected:
            writer = new_writer(connected, self.topic)
            rows = pa.RecordBatch.from_pydict({"key": values, "value": values}, schema=ROWS)
            writer.write([rows], begin)
            assert writer.transaction is not None
            return pickle.loads(pickle.dumps(writer.transaction))

    def tasks(self) -> list[OpenTransaction]:
        return [self.task(number, texts(5, 5 * number)) for number in range(3)]

    def commit(self, batch: int, written: list[OpenTransaction]) -> bool:
        with Connected(self.address) as connected:
            return connected.run(
                lambda client: deciding.commit(client, SystemClock(), self.query, batch, written)
            )

    def seen(self, committed: bool = True) -> list[str]:
        with Connected(self.address) as connected:
            return sorted(row["value"].decode() for row in read(connected, self.topic, committed))


def new_writer(connected: Connected, topic: str | None) -> TaskWriter:
    return TaskWriter(connected, SystemClock(), topic=topic, codec=Codec.NONE, first_partition=0)


def read(connected: Connected, topic: str, committed: bool = True) -> list[dict]:
    count = len(connected.run(lambda client: client.topic(topic)).partitions)
    parts = [TopicPartition(topic, number) for number in range(count)]
    ends = connected.run(
        lambda client: client.list_offsets(dict.fromkeys(parts, LATEST), committed=committed)
    )
    schema = pa.schema([("key", pa.binary()), ("value", pa.binary()), ("partition", pa.int32())])
    rows = []
    for part in parts:
        wanted = Range(*part, 0, ends[part].offset)
        for batch in RangeReader(connected, wanted, schema, committed=committed).batches():
            rows += batch.to_pylist()
    return rows


@pytest.fixture
def job(server: Broker, new_topic: Callable[[], str]) -> Job:
    return Job(server, create(server, new_topic(), 2))


ALL = sorted(texts(15))


def test_nothing_is_seen_before_the_commit(job: Job) -> None:
    written = job.tasks()
    assert job.seen() == []
    assert len(job.seen(committed=False)) == 15
    assert job.commit(0, written)
    assert job.seen() == ALL
    assert job.commit(1, [job.task(0, ["next"])])
    assert job.seen() == sorted([*ALL, "next"])


def test_a_batch_that_is_repeated_is_not_seen_twice(job: Job) -> None:
    assert job.commit(4, job.tasks())
    assert not job.commit(4, job.tasks())
    assert not job.commit(3, [job.task(7, ["older"])])
    assert job.seen() == ALL


def test_a_batch_without_rows_needs_no_decision(job: Job) -> None:
    assert job.commit(0, [])
    with Connected(job.address) as connected:
        assert connected.run(lambda client: deciding.latest(client, job.query)) is None


class Crash(BaseException):
    """The process ends here."""


def crash_after(monkeypatch: pytest.MonkeyPatch, requests: int) -> None:
    ask, count = Cluster.ask, iter(range(requests))

    async def dying(self, *arguments, **named):
        if next(count, None) is None:
            raise Crash
        return await ask(self, *arguments, **named)

    monkeypatch.setattr(Cluster, "ask", dying)


@pytest.mark.slow
def test_the_driver_may_end_anywhere(server: Broker, new_topic: Callable[[], str]) -> None:
    """After each of its requests, once; then the batch comes again, perhaps with fewer tasks."""
    requests, is_whole = 0, False
    while not is_whole:
        job = Job(server, create(server, new_topic(), 2))
        written = job.tasks()
        with pytest.MonkeyPatch.context() as patch:
            crash_after(patch, requests)
            with contextlib.suppress(Crash):
                is_whole = job.commit(0, written)
        if requests % 2:
            again = job.tasks()
        else:
            again = [job.task(0, texts(15))]
        job.commit(0, again)
        assert job.seen() == ALL, requests
        assert job.commit(1, [])
        requests += 1
    assert requests > 10


def test_what_others_left_open_is_ended(job: Job) -> None:
    job.task(9, ["of a task that nobody waited for"])
    assert job.commit(0, [job.task(0, ["seen"])])
    assert job.seen() == ["seen"]
    with Connected(job.address) as connected:
        assert (
            connected.run(lambda client: Transactions(client).list_open(prefix_of(job.query))) == []
        )


def test_a_transaction_that_was_taken_away(job: Job) -> None:
    written = [job.task(0, ["first"])]
    job.task(0, ["second"])
    with pytest.raises(TransactionGone, match="was ended by somebody else"):
        job.commit(0, written)
    with Connected(job.address) as connected, pytest.raises(Refused, match="PRODUCER_FENCED"):
        connected.run(lambda client: Transactions(client).end(written[0], commit=True))


def test_decisions_of_many_queries(
    server: Broker, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "LOOK_BACK_RECORDS", 1)
    monkeypatch.setattr(remembering, "LOOK_BACK_GROWTH", 2)
    topic = create(server, new_topic())
    jobs = [Job(server, topic) for _ in range(5)]
    for number, job in enumerate(jobs):
        job.query += f"-{number}"
        for batch in range(number + 1):
            assert job.commit(batch, [job.task(0, [f"{number} {batch}"])])
    for number, job in enumerate(jobs):
        with Connected(job.address) as connected:
            found = connected.run(lambda client, job=job: deciding.latest(client, job.query))
        assert found is not None
        assert found.batch == number


# --- one task's rows


def run_task(server: Broker, batches: list, topic: str | None, **patches: int) -> TaskWriter:
    with Connected(Address(server.bootstrap)) as connected:
        writer = new_writer(connected, topic)
        writer.write(batches, lambda client: Transactions(client).take(f"id-{topic}"))
        transaction = writer.transaction
        if transaction is not None:
            connected.run(lambda client: Transactions(client).end(transaction, commit=True))
        return writer


def test_rows_in_order_and_in_pieces(
    server: Broker,
    connected: Connected,
    new_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_writer, "BATCH_BYTES", 500)
    topic = create(server, new_topic(), 3)
    batches = [
        pa.RecordBatch.from_pydict(
            {"key": [f"k{n % 7}" for n in range(100)], "value": [f"{b} {n}" for n in range(100)]},
            schema=ROWS,
        )
        for b in range(4)
    ]
    assert run_task(server, [*batches, batches[0].slice(0, 0)], topic).rows == 400
    rows = read(connected, topic)
    assert len(rows) == 400
    for key in {row["key"] for row in rows}:
        ours = [row for row in rows if row["key"] == key]
        assert len({row["partition"] for row in ours}) == 1
        order = [tuple(map(int, row["value"].split())) for row in ours]
        assert order == sorted(order)
    assert len({row["partition"] for row in rows}) == 3


def test_no_rows_no_transaction(server: Broker, new_topic: Callable[[], str]) -> None:
    assert run_task(server, [], new_topic()).transaction is None


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"value": ["a", "b"], "partition": [0, 5]}, "has partitions 0 to 0, not 5"),
        ({"value": ["a", "b"], "headers": [[], [None]]}, "a header has no key"),
        ({"value": ["a", "b"], "topic": ["t", None]}, "column topic: a row has none"),
    ],
)
def test_a_bad_row_aborts_all(
    server: Broker, new_topic: Callable[[], str], columns: dict[str, list], words: str
) -> None:
    topic = create(server, new_topic())
    kinds = {
        "value": pa.string(),
        "partition": pa.int32(),
        "topic": pa.string(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
    schema = pa.schema([(name, kinds[name]) for name in columns])
    if "topic" in columns:
        columns = {**columns, "topic": [topic, None]}
    good = pa.RecordBatch.from_pydict({"value": ["good"], "topic": [topic]})
    bad = pa.RecordBatch.from_pydict(columns, schema=schema)
    job = Job(server, topic)
    with pytest.raises(RowError, match=words):
        run_task(server, [good, bad], None if "topic" in columns else topic)
    assert job.seen() == []
    with Connected(job.address) as connected:
        assert connected.run(lambda client: Transactions(client).list_open("id-")) == []
