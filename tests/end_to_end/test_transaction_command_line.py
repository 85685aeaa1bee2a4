"""`entrepot transactions` and `kafka-transactions` on transactions that nobody ends."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator

import confluent_kafka
import kafka
import pytest
from click.testing import CliRunner, Result
from kafka.admin import AbortTransactionSpec

from entrepot.cli import main
from entrepot.client import deciding
from entrepot.client.client import Client, TopicPartition
from entrepot.client.transaction_writer import TransactionWriter
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record
from entrepot.net.sockets import SocketNet
from entrepot.testing import Broker, broker
from tests.end_to_end.transacting import WAIT_S, confluent_producer, create, read


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture
def topic(server: Broker, request: pytest.FixtureRequest) -> str:
    name = re.sub(r"\W", "-", request.node.name)
    create(server.bootstrap, name, 2)
    return name


def invoke(server: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], env={"ENTREPOT_BOOTSTRAP": server.bootstrap})


def output(server: Broker, *arguments: str) -> str:
    result = invoke(server, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def leave_open(server: Broker, topic: str, transactional_id: str) -> OpenTransaction:
    """Write `left` to both partitions as a task of a Spark query that is killed then; behind it
    comes `behind`, of somebody else."""

    async def work() -> OpenTransaction:
        async with Client(SocketNet(), server.bootstrap) as client:
            taken = await Transactions(client).take(transactional_id, two_phase=True)
            writer = TransactionWriter(client, SystemClock(), taken)
            await writer.write({TopicPartition(topic, n): [Record(None, b"left")] for n in (0, 1)})
            return taken

    left = asyncio.run(work())
    producer = confluent_producer(server.bootstrap)
    for number in (0, 1):
        producer.produce(topic, "behind", partition=number)
    assert producer.flush(WAIT_S) == 0
    assert "behind" not in read(server.bootstrap, topic)
    return left


@pytest.mark.slow
def test_what_a_killed_query_left_is_found_and_aborted(server: Broker, topic: str) -> None:
    leave_open(server, topic, "spark-killed-0-0")
    printed = output(server, "transactions", "list")
    assert [printed.count(text) for text in ("spark-killed-0-0", "Ongoing", "none")] == [1, 1, 1]
    assert f"{topic}-0, {topic}-1" in printed
    described = json.loads(output(server, "transactions", "describe", "--json", "spark-killed-0-0"))
    assert described["partitions"] == [[topic, 0], [topic, 1]]
    assert (described["state"], described["timeout_ms"]) == ("Ongoing", None)
    assert "timeout: none" in output(server, "transactions", "describe", "spark-killed-0-0")
    done = output(server, "transactions", "abort", "spark-killed-0-0")
    assert done == "spark-killed-0-0: aborted\n"
    assert read(server.bootstrap, topic) == ["behind", "behind"]
    assert output(server, "transactions", "list") == ""
    assert "spark-killed-0-0" in output(server, "transactions", "list", "--all")
    again = invoke(server, "transactions", "abort", "spark-killed-0-0")
    assert (again.exit_code, "has no transaction to abort" in again.stderr) == (1, True)
    nobody = invoke(server, "transactions", "abort", "nobody")
    assert nobody.stderr.splitlines() == [
        "Error: transactional id nobody: there is no such transactional id "
        "(TRANSACTIONAL_ID_NOT_FOUND)"
    ]


@pytest.mark.slow
def test_what_the_query_had_decided_is_committed(server: Broker, topic: str) -> None:
    """The batch is recorded as written, so the query will not write it again."""
    left = leave_open(server, topic, "spark-decided-0-0")

    async def decide() -> None:
        async with Client(SocketNet(), server.bootstrap) as client:
            decision = deciding.Decision(7, (left,))
            await deciding._decide(client, SystemClock(), "decided", decision)

    asyncio.run(decide())
    done = output(server, "transactions", "abort", "spark-decided-0-0")
    assert done == "spark-decided-0-0: committed, as its query had decided\n"
    assert read(server.bootstrap, topic) == ["behind", "behind", "left", "left"]


def aborts_by_kafkas_tool(server: Broker, topic: str) -> None:
    listed = output(server, "kafka-transactions", "list").splitlines()
    assert listed[0].split("\t")[1:] == ["Coordinator", "ProducerId", "TransactionState", ""]
    (row,) = (line for line in listed if line.startswith("hanging-tool"))
    producer_id = row.split()[2]
    named = ("--topic", topic, "--partition", "1")
    producers = output(server, "kafka-transactions", "describe-producers", *named).splitlines()
    (row,) = (line for line in producers if line.startswith(producer_id))
    start_offset = row.split()[-1]
    described = output(
        server, "kafka-transactions", "describe", "--transactional-id", "hanging-tool"
    )
    assert described.splitlines()[1].split()[-1] == f"{topic}-0,{topic}-1"
    wrong = invoke(server, "kafka-transactions", "abort", *named, "--start-offset", "99")
    assert "Could not find any open transactions starting at offset 99" in wrong.stderr
    missing = invoke(server, "kafka-transactions", "abort", *named)
    assert "The transaction to abort must be identified either with" in missing.stderr
    found = output(
        server,
        "kafka-transactions",
        "find-hanging",
        "--topic",
        topic,
        "--max-transaction-timeout=0",
    )
    assert len(found.splitlines()) == 1, "the coordinator knows it, so it does not hang"
    assert (
        output(server, "kafka-transactions", "abort", *named, "--start-offset", start_offset) == ""
    )


def aborts_by_kafka_python(server: Broker, topic: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=server.bootstrap)
    try:
        part = kafka.TopicPartition(topic, 1)
        (state,) = (
            each
            for each in admin.describe_producers([part])[part].active_producers
            if each.current_transaction_start_offset is not None
            and each.current_transaction_start_offset >= 0
        )
        spec = AbortTransactionSpec(part, state.producer_id, state.producer_epoch, 0)
        admin.abort_transaction(spec)
    finally:
        admin.close()


@pytest.mark.slow
@pytest.mark.parametrize("abort", [aborts_by_kafkas_tool, aborts_by_kafka_python])
def test_kafkas_tools_abort_it_whole(
    server: Broker, topic: str, abort: Callable[[Broker, str], None]
) -> None:
    """They name one partition; readers of the other one go on as well."""
    leave_open(server, topic, "hanging-tool")
    abort(server, topic)
    assert read(server.bootstrap, topic) == ["behind", "behind"]


def test_a_fenced_producer_is_told(server: Broker, topic: str) -> None:
    producer = confluent_producer(server.bootstrap, "fenced")
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "x", partition=0)
    assert producer.flush(WAIT_S) == 0
    assert output(server, "transactions", "abort", "fenced") == "fenced: aborted\n"
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.commit_transaction(WAIT_S)
    assert caught.value.args[0].code() == confluent_kafka.KafkaError._FENCED


def test_consume_shows_committed_records_only_when_told(server: Broker, topic: str) -> None:
    for commit in (True, False):
        producer = confluent_producer(server.bootstrap, f"isolation {commit}")
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce(topic, "committed" if commit else "aborted", partition=0)
        assert producer.flush(WAIT_S) == 0
        (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
    committed = "--isolation=read_committed"
    assert output(server, "consume", topic).splitlines() == ["committed", "aborted"]
    assert output(server, "consume", topic, committed).splitlines() == ["committed"]
    assert output(server, "consume", topic, committed, "--group=g").splitlines() == ["committed"]
    leave_open(server, topic, "isolation open")
    assert output(server, "consume", topic, committed).splitlines() == ["committed"]
    output(server, "transactions", "abort", "isolation open")
