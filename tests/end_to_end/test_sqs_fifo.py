"""FIFO queues of Amazon SQS with boto3, and what clients of other protocols see of one."""

import threading
from collections.abc import Iterator
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import attributes_of, bodies, connect, refusal

CONTENT = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


def test_twenty_groups_with_duplicates_keep_their_order(server: Broker, sqs: Any) -> None:
    """Proves H-13: three receivers, twenty groups, each message sent twice."""
    url = sqs.create_queue(QueueName="orders.fifo", Attributes=CONTENT)["QueueUrl"]
    texts = [f"{number % 20}-{number // 20}" for number in range(400)]
    for start in range(0, len(texts), 5):
        entries = [
            {"Id": f"{copy}-{text}", "MessageBody": text, "MessageGroupId": text.partition("-")[0]}
            for text in texts[start : start + 5]
            for copy in "ab"
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        by_text: dict[str, set[str]] = {}
        for each in answer["Successful"]:
            place = each["MessageId"] + each["SequenceNumber"]
            by_text.setdefault(each["Id"].partition("-")[2], set()).add(place)
        assert [len(places) for places in by_text.values()] == [1] * 5
    got: dict[str, list[int]] = {}
    lock = threading.Lock()

    def work() -> None:
        client = connect(server)
        while True:
            found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=7, WaitTimeSeconds=1)
            if not found.get("Messages"):
                return
            for message in found["Messages"]:
                group, _, number = message["Body"].partition("-")
                with lock:
                    got.setdefault(group, []).append(int(number))
                handle = message["ReceiptHandle"]
                client.delete_message(QueueUrl=url, ReceiptHandle=handle)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert got == {str(group): [*range(20)] for group in range(20)}


def test_the_attributes_of_a_fifo_queue(sqs: Any) -> None:
    high = {
        **CONTENT,
        "DeduplicationScope": "messageGroup",
        "FifoThroughputLimit": "perMessageGroupId",
    }
    url = sqs.create_queue(QueueName="high.fifo", Attributes=high)["QueueUrl"]
    told = attributes_of(sqs, url)
    assert {name: told[name] for name in high} == high
    assert sqs.create_queue(QueueName="high.fifo", Attributes=high)["QueueUrl"] == url
    other = {**high, "ContentBasedDeduplication": "false"}
    said = refusal(sqs.create_queue, QueueName="high.fifo", Attributes=other)
    assert said == ("QueueAlreadyExists", 400)
    assert refusal(sqs.send_message, QueueUrl=url, MessageBody="x") == ("MissingParameter", 400)


def test_amqp_writes_and_reads_a_fifo_queue(server: Broker, sqs: Any) -> None:
    """What AMQP publishes has no group: all of it is one."""
    url = sqs.create_queue(QueueName="crossing.fifo", Attributes=CONTENT)["QueueUrl"]
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    for body in ("one", "two"):
        channel.basic_publish("", "crossing.fifo", body)
    sqs.send_message(QueueUrl=url, MessageBody="three", MessageGroupId="g")
    method, _, body = channel.basic_get("crossing.fifo")
    assert body == b"one"
    assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["three"]
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    channel.basic_ack(method.delivery_tag)
    found = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=10)
    assert bodies(found) == ["two"]
    connection.close()
