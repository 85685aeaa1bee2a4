"""kill -9 under SQS and AMQP: both consume one queue; nothing is lost, nothing deleted comes back.

A client sends over SQS and notes what was answered. One consumer receives and deletes over SQS,
another consumes and acknowledges over AMQP. Then the broker is killed and started, several times.
"""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pika
import pytest
from botocore.exceptions import BotoCoreError, ClientError
from pika.exceptions import AMQPError

from entrepot import testing
from entrepot.log.disk import FileDisk
from entrepot.log.verify import Verdict, verify
from tests.end_to_end.sqs import connect

QUEUE = "work"
PROGRESS_S_MAX = 30.0


class Account:
    """What the clients know. Each set has one writer."""

    def __init__(self) -> None:
        self.next = 0
        self.promised: set[int] = set()  # Their sending was answered.
        self.received: set[int] = set()  # Over SQS,
        self.deleted: set[int] = set()  # and their deletion was answered.
        self.consumed: set[int] = set()  # Over AMQP: the acknowledgement was sent.

    def progress(self) -> list[int]:
        return [len(self.promised), len(self.deleted), len(self.consumed)]


def url_of(server: testing.Broker) -> str:
    return f"{server.sqs_url}/000000000000/{QUEUE}"


def send(server: testing.Broker, account: Account) -> None:
    sqs, url = connect(server), url_of(server)
    while True:
        numbers = range(account.next, account.next + 10)
        account.next = numbers.stop
        entries = [{"Id": str(number), "MessageBody": str(number)} for number in numbers]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        account.promised |= {int(each["Id"]) for each in answer["Successful"]}


def receive(server: testing.Broker, account: Account) -> None:
    sqs, url = connect(server), url_of(server)
    while True:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
        for message in answer.get("Messages", []):
            number = int(message["Body"])
            assert number not in account.deleted, f"{number} was deleted and came again"
            account.received.add(number)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            account.deleted.add(number)


def consume(server: testing.Broker, account: Account) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    for method, _, body in channel.consume(QUEUE):
        assert int(body) not in account.deleted, f"{body!r} was deleted and came again"
        account.consumed.add(int(body))
        channel.basic_ack(method.delivery_tag)


def until_killed(
    work: Callable[[testing.Broker, Account], None], server: testing.Broker, account: Account
) -> None:
    with contextlib.suppress(BotoCoreError, ClientError, AMQPError, OSError):
        work(server, account)


def live(server: testing.Broker, account: Account, seconds: float) -> None:
    before = now = account.progress()
    with ThreadPoolExecutor() as pool:
        working = [
            pool.submit(until_killed, work, server, account) for work in (send, receive, consume)
        ]
        time.sleep(seconds)
        deadline = time.monotonic() + PROGRESS_S_MAX
        while time.monotonic() < deadline:
            now = account.progress()
            if all(more > less for more, less in zip(now, before, strict=True)):
                break
            time.sleep(0.01)
        server.kill()
        for each in working:
            each.result()
    assert all(more > less for more, less in zip(now, before, strict=True)), (before, now)


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_protocols_compete_and_the_broker_is_killed(tmp_path: Path) -> None:
    random, account = Random(1), Account()
    with testing.broker(tmp_path / "data", settings={"ports.sqs": 0}) as server:
        connect(server).create_queue(QueueName=QUEUE)
        for _ in range(5):
            live(server, account, random.uniform(0.05, 0.5))
            server.start()
        sqs, url, left = connect(server), url_of(server), set()
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            left |= {int(message["Body"]) for message in found}
    assert account.deleted & left == set(), "deleted, and here again"
    assert account.promised - left - account.received - account.consumed == set(), "lost"
    assert Verdict.CORRUPT not in [report.verdict for report in verify(FileDisk(tmp_path / "data"))]
