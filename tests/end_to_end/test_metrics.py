"""A scrape of a broker that Kafka's and AMQP's clients use."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from urllib.request import urlopen

import pika
import pytest
from confluent_kafka import Consumer, Producer
from prometheus_client.parser import text_string_to_metric_families

from entrepot.testing import Broker, broker
from tests.end_to_end import matrix

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0, **matrix.SETTINGS}) as started:
        yield started


def scrape(server: Broker, login: bytes = b"guest:guest") -> tuple[int, str]:
    connection = http.client.HTTPConnection(*server.endpoints["http"], timeout=WAIT_S)
    headers = {"Authorization": "Basic " + b64encode(login).decode()}
    connection.request("GET", "/metrics", headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def values(server: Broker) -> dict[tuple[str, ...], float]:
    status, text = scrape(server)
    assert status == 200, text
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_scrape(server: Broker) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(100):
        producer.produce("events", str(number), partition=0)
    assert producer.flush(WAIT_S) == 0
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("work", durable=True)
    for _ in range(3):
        channel.basic_publish("", "work", b"x" * 1_000, pika.BasicProperties(delivery_mode=2))
    assert channel.basic_get("work")[2] == b"x" * 1_000

    found = values(server)
    assert found["entrepot_partition_log_end_offset", "0", "events"] == 100
    assert found["entrepot_queue_messages_ready", "work", "/"] == 2
    assert found["entrepot_queue_messages_leased", "work", "/"] == 1
    assert found["entrepot_messages_published_total", "kafka"] == 100
    assert found["entrepot_messages_published_total", "amqp"] == 3
    assert found["entrepot_messages_delivered_total", "amqp"] == 1
    assert found["entrepot_connections", "amqp"] == 1
    assert found["entrepot_connections", "kafka"] >= 1
    assert found["entrepot_received_bytes_total", "amqp"] > 3_000
    assert found["entrepot_sent_bytes_total", "amqp"] > 1_000
    # What came together is synced together: a commit is not of one message.
    assert 0 < found["entrepot_commit_latency_seconds_count",] < 100
    assert found["entrepot_sync_errors_total",] == found["entrepot_internal_errors_total",] == 0
    assert found["process_resident_memory_bytes",] > 0

    connection.close()
    after = values(server)
    assert after["entrepot_connections_opened_total", "amqp"] == 1
    assert after["entrepot_queue_messages_ready", "work", "/"] == 3


# A writer of the matrix, and the port whose messages these are.
TIMED = {
    "Kafka": ("produce", "kafka"),
    "AMQP 0-9-1": ("confirm", "amqp"),
    "AMQP 1.0": ("confirm", "amqp"),
    "MQTT": ("confirm", "mqtt"),
    "STOMP": ("confirm", "stomp"),
    "SQS": ("confirm", "sqs"),
}


@pytest.mark.parametrize("writer", matrix.WRITERS)
def test_how_long_an_answer_took(server: Broker, writer: str) -> None:
    kind, port = TIMED[writer]
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        connection.channel().queue_declare("timed", durable=True)
    name = "timed-topic" if writer == "Kafka" else "timed"
    count, total = (f"entrepot_{kind}_latency_seconds_{each}" for each in ("count", "sum"))
    before = values(server)
    for _ in range(10):  # Nothing may be timed right after another was; most writers connect anew.
        matrix.WRITERS[writer](server, name, matrix.Message("x", "text/plain", "1", "blue"))
        after = values(server)
        if after[count, port] > before[count, port]:
            break
    assert after[count, port] > before[count, port]
    assert after[total, port] > before[total, port]


def test_fetches_are_timed(server: Broker) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("read", b"x")
    assert producer.flush(WAIT_S) == 0
    before = values(server)
    settings = {"auto.offset.reset": "earliest", "group.id": "readers"}
    consumer = Consumer({"bootstrap.servers": server.bootstrap, **settings})
    consumer.subscribe(["read"])
    assert consumer.poll(WAIT_S).value() == b"x"
    consumer.commit(asynchronous=False)
    consumer.close()
    after = values(server)
    name = "entrepot_fetch_latency_seconds_count", "kafka"
    assert after[name] > before[name]
    assert after["entrepot_group_lag", "readers", "0", "read"] == 0
    assert after["entrepot_group_committed_offset", "readers", "0", "read"] == 1


def test_the_process_itself(server: Broker) -> None:
    found = values(server)
    assert found["entrepot_event_loop_lag_seconds_count",] > 0
    assert 0 < found["entrepot_disk_free_bytes",] < found["entrepot_disk_size_bytes",]
    assert found["entrepot_alarm", "memory"] == 0
    assert found["python_gc_collections_total", "0"] > 0


def test_health_needs_no_login(server: Broker) -> None:
    for path, status in (("live", "live"), ("ready", "ready")):
        with urlopen(f"http://{server.http_address}/health/{path}", timeout=WAIT_S) as answer:
            assert (answer.status, json.load(answer)["status"]) == (200, status)


def test_a_login_is_needed(server: Broker) -> None:
    assert scrape(server, b"guest:wrong")[0] == 401
