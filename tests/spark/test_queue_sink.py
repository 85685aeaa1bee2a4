"""Rows on their way to queues, without Spark, on a real broker."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the Spark sink needs pyarrow")
pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from pyspark.sql.types import StructType  # noqa: E402

from entrepot.client.amqp_publisher import UNCONFIRMED_MAX, AmqpRefused, NotTaken  # noqa: E402
from entrepot.spark.options import OptionError, read_queue_sink  # noqa: E402
from entrepot.spark.queue_sink import QueueColumnError, check_columns, publish  # noqa: E402
from entrepot.testing import Broker, broker  # noqa: E402
from tests.spark.producing import texts  # noqa: E402
from tests.spark.queueing import channel, declare, declare_deduplicating, drain  # noqa: E402


def options(server: Broker, **more: str) -> dict[str, str]:
    host, port = server.endpoints["amqp"]
    return {"entrepot.amqp": f"{host}:{port}"} | more


def write(server: Broker, rows: list[dict[str, Any]], **more: str) -> None:
    batch = pa.RecordBatch.from_pylist(rows)
    asyncio.run(publish(read_queue_sink(options(server, **more)), iter([batch])))


@pytest.mark.slow
def test_rows_are_confirmed_and_in_order(server: Broker, new_topic: Callable[..., str]) -> None:
    queue = declare(server, new_topic("q"))
    count = UNCONFIRMED_MAX + 1_000  # So that it waits for confirms on the way.
    write(server, [{"value": text} for text in texts(count)], queue=queue)
    with channel(server) as made:
        assert made.queue_declare(queue, passive=True).method.message_count == count
    assert drain(server, queue) == texts(count)


def test_messages_are_persistent_and_have_headers(
    server: Broker, new_topic: Callable[..., str]
) -> None:
    queue = declare(server, new_topic("q"))
    pairs = [{"key": "text", "value": "é".encode()}, {"key": "bytes", "value": b"\xff"}]
    write(server, [{"value": b"x" * 300_000, "headers": pairs}], queue=queue)
    with channel(server) as made:
        _, properties, body = made.basic_get(queue, auto_ack=True)
    assert (properties.delivery_mode, len(body)) == (2, 300_000)
    assert properties.headers == {"text": "é", "bytes": b"\xff"}


def test_an_exchange_routes_by_the_column(server: Broker, new_topic: Callable[..., str]) -> None:
    queue = declare(server, new_topic("q"))
    with channel(server) as made:
        made.queue_bind(queue, "amq.topic", "box.*")
    rows = [{"value": key, "routing_key": key} for key in ("box.1", "lid.1", "box.2")]
    write(server, rows, exchange="amq.topic")
    assert drain(server, queue) == ["box.1", "box.2"]


def test_what_cannot_be_written_says_so(server: Broker, new_topic: Callable[..., str]) -> None:
    with pytest.raises(NotTaken, match="NO_ROUTE"):
        write(server, [{"value": "a"}], queue=new_topic("missing"))
    with pytest.raises(AmqpRefused, match="no exchange 'missing'"):
        write(server, [{"value": "a"}], exchange="missing")
    login = {"entrepot.user": "eve", "entrepot.password": "x"}
    with pytest.raises(AmqpRefused, match="ACCESS_REFUSED"):
        write(server, [{"value": "a"}], queue="q", **login)
    full = declare(server, new_topic("full"), max_length=1, overflow="reject-publish")
    with pytest.raises(NotTaken, match="full"):
        write(server, [{"value": text} for text in texts(3)], queue=full)


@pytest.mark.slow
def test_a_broker_that_was_restarted_is_found_again(new_topic: Callable[..., str]) -> None:
    with broker() as server:
        queue = declare(server, new_topic("q"))
        said = read_queue_sink(options(server, queue=queue))

        def batches() -> Any:
            for number in range(3):
                yield pa.RecordBatch.from_pylist([{"value": f"value {number}"}])
                server.kill()
                server.start()

        asyncio.run(publish(said, batches()))
        assert drain(server, queue) == texts(3)


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_a_batch_that_is_repeated_is_in_the_queue_once(new_topic: Callable[..., str]) -> None:
    """The broker is killed in the middle, and all of it is published again."""
    with broker() as server:
        queue = declare(server, new_topic("q"))
        exchange = declare_deduplicating(server, new_topic("x"), queue)
        said = read_queue_sink(options(server, exchange=exchange))
        rows = [
            {"value": text, "headers": [{"key": "x-deduplication-header", "value": text.encode()}]}
            for text in texts(40)
        ]

        def batches() -> Any:
            yield pa.RecordBatch.from_pylist(rows[:20])
            server.kill()
            server.start()
            yield pa.RecordBatch.from_pylist(rows[20:])

        for _ in range(2):
            asyncio.run(publish(said, batches()))
        assert drain(server, queue) == texts(40)


@pytest.mark.parametrize(
    ("columns", "where", "text"),
    [
        ("key string", "queue", "column value is missing"),
        ("value integer", "queue", "column value is int, and must be string or binary"),
        ("value string, x integer", "queue", "column x means nothing here"),
        ("value string, routing_key string", "queue", "there is nothing to say"),
        ("value string, routing_key integer", "exchange", "must be string"),
    ],
)
def test_columns(columns: str, where: str, text: str) -> None:
    said = read_queue_sink({"entrepot.amqp": "h:1", where: "q"})
    schema = StructType()
    for column in columns.split(", "):
        schema.add(*column.split())
    with pytest.raises(QueueColumnError, match=text):
        check_columns(schema, said)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"queue": "q"}, "entrepot.amqp is missing"),
        ({"queue": "q", "exchange": "x", "entrepot.amqp": "h:1"}, "one of them"),
        ({"queue": "", "entrepot.amqp": "h:1"}, "is not a name"),
        ({"queue": "q", "entrepot.amqp": "h:1", "entrepot.user": "u"}, "belong together"),
        ({"queue": "q", "entrepot.amqp": "h:1,h:2"}, "more than one"),
        ({"queue": "q", "entrepot.amqp": "h:1", "qeue": "q"}, "is it queue that is meant"),
    ],
)
def test_options(said: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_queue_sink(said)
