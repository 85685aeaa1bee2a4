"""kill -9 under FIFO queues: what is sent again after a crash is there once, and in its place.

A client sends numbered messages in several groups. When the broker is killed, it does not know
which of the last ones were stored, and sends them again under the same ids; also ten that were.
"""

import contextlib
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError, ClientError

from entrepot import testing
from tests.end_to_end.sqs import connect

GROUPS, ROUNDS = 4, 5
ATTRIBUTES = {"FifoQueue": "true", "VisibilityTimeout": "2"}


class Sender:
    """Sends numbers in order, ten at a time; what was not answered is sent again."""

    def __init__(self) -> None:
        self.next = 0  # All below it were answered.

    def send(self, sqs: Any, url: str) -> None:
        entries = [
            {
                "Id": str(number),
                "MessageBody": str(number),
                "MessageGroupId": f"group-{number % GROUPS}",
                "MessageDeduplicationId": f"id-{number}",
            }
            for number in range(self.next, self.next + 10)
        ]
        answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        assert len(answer["Successful"]) == 10
        self.next += 10


class Receiver:
    """Notes what it gets, and in which places of the queue."""

    def __init__(self) -> None:
        self.got: dict[int, list[int]] = {group: [] for group in range(GROUPS)}
        self.places: dict[int, set[str]] = {}

    def receive(self, sqs: Any, url: str, **parameters: Any) -> bool:
        answer = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=5,
            MessageSystemAttributeNames=["SequenceNumber"],
            **parameters,
        )
        for message in answer.get("Messages", []):
            number = int(message["Body"])
            self.places.setdefault(number, set()).add(message["Attributes"]["SequenceNumber"])
            if len(self.places[number]) == 1 and number not in self.got[number % GROUPS]:
                self.got[number % GROUPS].append(number)
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return "Messages" in answer


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_each_message_is_there_once_and_in_order(tmp_path: Path) -> None:
    """Proves H-13 after a crash."""
    random, sender, receiver = Random(3), Sender(), Receiver()
    with testing.broker(tmp_path / "data", settings={"ports.sqs": 0}) as server:
        connect(server).create_queue(QueueName="work.fifo", Attributes=ATTRIBUTES)
        for _ in range(ROUNDS):
            sqs, url = connect(server), f"{server.sqs_url}/000000000000/work.fifo"
            for _ in range(2):  # However slow the machine is, something is sent in each life.
                sender.send(sqs, url)
            killer = threading.Timer(random.uniform(0.1, 0.5), server.kill)
            killer.start()
            with contextlib.suppress(BotoCoreError, ClientError, OSError):
                while True:
                    sender.send(sqs, url)
                    receiver.receive(sqs, url)
            killer.join()
            sender.next = max(0, sender.next - 10)  # As if the last answer had been lost, too.
            server.start()
        sqs, url = connect(server), f"{server.sqs_url}/000000000000/work.fifo"
        sender.send(sqs, url)
        while receiver.receive(sqs, url, WaitTimeSeconds=3):
            pass
    twice = {number: places for number, places in receiver.places.items() if len(places) > 1}
    assert twice == {}, "stored twice"
    expected = {group: [*range(group, sender.next, GROUPS)] for group in range(GROUPS)}
    assert receiver.got == expected
    assert sender.next > 10
