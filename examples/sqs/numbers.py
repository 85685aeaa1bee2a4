"""The numbers of Amazon SQS, read off a running broker; and what a message costs in requests.

Amazon charges for requests, whatever they return. So the bill is decided by how messages are sent
(one, or ten in a request) and how they are waited for: whoever asks again and again pays for empty
answers, whoever waits up to twenty seconds pays for one. A receiver here gets a message in every
half second. The price is that of Amazon's page: 0.40 dollars for a million requests.
"""

import threading
import time
from statistics import median
from typing import Any

from botocore.exceptions import ClientError

from entrepot.testing import broker
from examples.sqs.client import connect

MESSAGES = 10
PAUSE_S = 0.5
DOLLARS_OF_A_MILLION = 0.40
MILLION = 1_000_000


def boundaries(sqs: Any) -> list[tuple[str, str]]:
    """Return what the broker says of itself, and where it begins to refuse."""
    url = sqs.create_queue(QueueName="numbers")["QueueUrl"]
    facts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]

    def refuses(call: str, **parameters: Any) -> bool:
        try:
            getattr(sqs, call)(QueueUrl=url, **parameters)
        except ClientError:
            return True
        return False

    def last(call: str, name: str, value: int, **more: Any) -> str:
        """Return the value if it is the last one that is taken."""
        taken = [not refuses(call, **more, **{name: each}) for each in (value, value + 1)]
        return f"{value:,}" if taken == [True, False] else f"not {value:,}"

    days_14 = 14 * 24 * 3_600
    kept = [
        refuses("set_queue_attributes", Attributes={"MessageRetentionPeriod": str(seconds)})
        for seconds in (days_14, days_14 + 1)
    ]
    sizes = [refuses("send_message", MessageBody="x" * size) for size in (262_144, 262_145)]
    return [
        ("visibility timeout", f"{facts['VisibilityTimeout']} s"),
        ("messages of a receive, at most", last("receive_message", "MaxNumberOfMessages", 10)),
        ("bytes of a message, at most", "262,144" if sizes == [False, True] else "others"),
        ("days that messages are kept, at most", "14" if kept == [False, True] else "others"),
    ]


def requests_of(sqs: Any, name: str, wait_s: int) -> tuple[int, float]:
    """Receive messages that come one by one. Return how many requests that took, and the median
    of how long a message was under way."""
    url = sqs.create_queue(QueueName=name)["QueueUrl"]

    def send() -> None:
        for _ in range(MESSAGES):
            time.sleep(PAUSE_S)
            sqs.send_message(QueueUrl=url, MessageBody=repr(time.time()))

    sender = threading.Thread(target=send)
    sender.start()
    requests = 0
    took: list[float] = []
    while len(took) < MESSAGES:
        answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=wait_s)
        requests += 1
        for message in answer.get("Messages", []):
            took.append(time.time() - float(message["Body"]))
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        if not wait_s:
            time.sleep(0.05)  # Twenty times a second.
    sender.join()
    return requests, median(took)


def main() -> None:
    with broker(settings={"ports.sqs": 0}) as server:
        sqs = connect(server.sqs_url)
        for what, found in boundaries(sqs):
            print(f"{what:45}{found:>10}")
        print(f"\n{'receiving a million messages':35}{'requests':>12}{'dollars':>10}{'median':>10}")
        for label, wait_s in (("asking 20 times a second", 0), ("waiting up to 20 s", 20)):
            requests, took = requests_of(sqs, f"wait-{wait_s}", wait_s)
            count = requests * MILLION // MESSAGES
            dollars = count / MILLION * DOLLARS_OF_A_MILLION
            print(f"{label:35}{count:12,}{dollars:10.2f}{took * 1_000:7.0f} ms")
        for label, size in (("sending one by one", 1), ("sending ten at once", 10)):
            count = MILLION // size
            print(f"{label:35}{count:12,}{count / MILLION * DOLLARS_OF_A_MILLION:10.2f}")


if __name__ == "__main__":
    main()
