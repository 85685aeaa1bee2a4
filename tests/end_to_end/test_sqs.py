"""Messages of Amazon SQS with boto3: sent, received, hidden, deleted; and where each call ends."""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import OLD, WAIT_S, arn, attributes_of, bodies, connect, new, refusal

KIB = 1024


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


# --- messages


def test_a_message_comes_as_it_was_sent(sqs: Any) -> None:
    """Proves H-05 and H-12."""
    url = new(sqs)
    body = 'é "quoted" \U0001f600\r\n\t<&>'
    attributes = {
        "text": {"DataType": "String", "StringValue": "é"},
        "content-type": {"DataType": "String", "StringValue": "text/plain"},
        "custom": {"DataType": "String.mine", "StringValue": "x"},
        "whole": {"DataType": "Number", "StringValue": "-12"},
        "exact": {"DataType": "Number", "StringValue": "1.50"},
        "long": {"DataType": "Number.java.lang.Long", "StringValue": "1493147359900"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
        "image": {"DataType": "Binary.png", "BinaryValue": b"png"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-2"}}
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody=body,
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
        MessageGroupId="customer-1",
    )
    assert sent["MD5OfMessageBody"] == hashlib.md5(body.encode()).hexdigest()
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert message["Body"] == body
    assert message["MessageAttributes"] == attributes
    for name in ("MessageId", "MD5OfMessageAttributes"):
        assert message[name] == sent[name]
    system = message["Attributes"]
    assert {name: system[name] for name in ("AWSTraceHeader", "MessageGroupId")} == {
        "AWSTraceHeader": "Root=1-2",
        "MessageGroupId": "customer-1",
    }
    assert (system["ApproximateReceiveCount"], system["SenderId"]) == ("1", "000000000000")
    assert abs(int(system["SentTimestamp"]) / 1000 - time.time()) < 60
    assert int(system["ApproximateFirstReceiveTimestamp"]) >= int(system["SentTimestamp"])


def test_the_attributes_that_are_asked_for(sqs: Any) -> None:
    url = new(sqs, VisibilityTimeout="0")
    value = {"DataType": "String", "StringValue": "x"}
    names = ("a.one", "a.two", "b")
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=dict.fromkeys(names, value))
    for asked, found in (([], []), (["b"], ["b"]), (["a.*"], ["a.one", "a.two"]), (["no"], [])):
        (message,) = sqs.receive_message(
            QueueUrl=url, MessageAttributeNames=asked, WaitTimeSeconds=WAIT_S
        )["Messages"]
        assert sorted(message.get("MessageAttributes", {})) == found
        assert "Attributes" not in message
    said = refusal(sqs.receive_message, QueueUrl=url, AttributeNames=["NoSuch"])
    assert said == ("InvalidAttributeName", 400)


def test_the_size_of_a_message_has_an_end(sqs: Any) -> None:
    """Proves H-02."""
    url, large = new(sqs), new(sqs, MaximumMessageSize=str(KIB * KIB))
    most = 256 * KIB
    sqs.send_message(QueueUrl=url, MessageBody="x" * most)
    too_much = refusal(sqs.send_message, QueueUrl=url, MessageBody="x" * (most + 1))
    assert too_much == ("InvalidParameterValue", 400)
    assert refusal(sqs.send_message, QueueUrl=url, MessageBody="é" * most) == too_much
    attribute = {"name": {"DataType": "String", "StringValue": "value"}}
    sqs.send_message(QueueUrl=url, MessageBody="x" * (most - 15), MessageAttributes=attribute)
    over = {"MessageBody": "x" * (most - 14), "MessageAttributes": attribute}
    assert refusal(sqs.send_message, QueueUrl=url, **over) == too_much
    sqs.send_message(QueueUrl=large, MessageBody="x" * KIB * KIB)
    (message,) = sqs.receive_message(QueueUrl=large)["Messages"]
    assert len(message["Body"]) == KIB * KIB
    body = "x" * (KIB * KIB + 1)
    assert refusal(sqs.send_message, QueueUrl=large, MessageBody=body) == too_much


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"MessageBody": ""}, "MissingParameter"),
        ({"MessageBody": "\0"}, "InvalidMessageContents"),
        ({"MessageBody": "\uffff"}, "InvalidMessageContents"),
        ({"DelaySeconds": 901}, "InvalidParameterValue"),
        ({"DelaySeconds": -1}, "InvalidParameterValue"),
        ({"MessageDeduplicationId": "x"}, "InvalidParameterValue"),
        ({"MessageGroupId": "x" * 129}, "InvalidParameterValue"),
        *(
            ({"MessageAttributes": {name: attribute}}, code)
            for name, attribute, code in (
                ("AWS.x", {"DataType": "String", "StringValue": "x"}, "InvalidParameterValue"),
                ("a b", {"DataType": "String", "StringValue": "x"}, "InvalidParameterValue"),
                ("a..b", {"DataType": "String", "StringValue": "x"}, "InvalidParameterValue"),
                ("a", {"DataType": "Text", "StringValue": "x"}, "InvalidParameterValue"),
                ("a", {"DataType": "Number", "StringValue": "x"}, "InvalidParameterValue"),
                ("a", {"DataType": "String", "StringValue": ""}, "InvalidParameterValue"),
                ("a", {"DataType": "Binary", "StringValue": "x"}, "InvalidParameterValue"),
                ("a", {"DataType": "String", "BinaryValue": b"x"}, "InvalidParameterValue"),
            )
        ),
        (
            {
                "MessageAttributes": {
                    str(number): {"DataType": "String", "StringValue": "x"} for number in range(11)
                }
            },
            "InvalidParameterValue",
        ),
    ],
)
def test_messages_that_are_refused(sqs: Any, parameters: dict[str, Any], code: str) -> None:
    url = sqs.create_queue(QueueName="refusing")["QueueUrl"]
    whole = {"QueueUrl": url, "MessageBody": "x", **parameters}
    assert refusal(sqs.send_message, **whole) == (code, 400)
    entry = {name: value for name, value in whole.items() if name != "QueueUrl"}
    answer = sqs.send_message_batch(
        QueueUrl=url, Entries=[{"Id": "a", "MessageBody": "good"}, {"Id": "b", **entry}]
    )
    assert [each["Id"] for each in answer["Successful"]] == ["a"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("b", code, True)


@pytest.mark.parametrize(
    ("parameters", "code"),
    [
        ({"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
        ({"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
        ({"VisibilityTimeout": 43201}, "InvalidParameterValue"),
        ({"VisibilityTimeout": -1}, "InvalidParameterValue"),
        ({"WaitTimeSeconds": 21}, "InvalidParameterValue"),
        ({"QueueUrl": "http://localhost/000000000000/no-such"}, f"{OLD}NonExistentQueue"),
        ({"QueueUrl": ""}, "MissingParameter"),
    ],
)
def test_receives_that_are_refused(sqs: Any, parameters: dict[str, Any], code: str) -> None:
    url = sqs.create_queue(QueueName="refusing")["QueueUrl"]
    assert refusal(sqs.receive_message, **{"QueueUrl": url, **parameters}) == (code, 400)


def test_batches(sqs: Any) -> None:
    """Proves H-04."""
    url = new(sqs)
    entries = [{"Id": str(number), "MessageBody": f"m{number}"} for number in range(10)]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in sent["Successful"]] == [each["Id"] for each in entries]
    received = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [each["Body"] for each in received] == [each["MessageBody"] for each in entries]
    handles = [
        {"Id": str(number), "ReceiptHandle": each["ReceiptHandle"]}
        for number, each in enumerate(received)
    ]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**handles[0], "VisibilityTimeout": 0}]
    )
    assert [each["Id"] for each in changed["Successful"]] == ["0"]
    wrong = {"Id": "wrong", "ReceiptHandle": "wrong"}
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=[*handles[1:], wrong])
    assert [each["Id"] for each in deleted["Successful"]] == [each["Id"] for each in handles[1:]]
    assert [(each["Id"], each["Code"]) for each in deleted["Failed"]] == [
        ("wrong", "ReceiptHandleIsInvalid")
    ]
    assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["m0"]


def test_batches_that_are_refused(sqs: Any) -> None:
    url = new(sqs, MaximumMessageSize=str(KIB * KIB))
    calls: list[tuple[Any, dict[str, Any]]] = [
        (sqs.send_message_batch, {"MessageBody": "x"}),
        (sqs.delete_message_batch, {"ReceiptHandle": "x"}),
        (sqs.change_message_visibility_batch, {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
    ]
    for call, fields in calls:
        for ids, code in (
            ([], "EmptyBatchRequest"),
            (["a", "a"], "BatchEntryIdsNotDistinct"),
            ([str(number) for number in range(11)], "TooManyEntriesInBatchRequest"),
            (["a b"], "InvalidBatchEntryId"),
            (["x" * 81], "InvalidBatchEntryId"),
        ):
            entries = [{"Id": each, **fields} for each in ids]
            assert refusal(call, QueueUrl=url, Entries=entries) == (f"{OLD}{code}", 400)
    half = "x" * (KIB * KIB // 2)
    entries = [{"Id": "a", "MessageBody": half}, {"Id": "b", "MessageBody": half}]
    assert not sqs.send_message_batch(QueueUrl=url, Entries=entries)["Failed"]
    entries[1]["MessageBody"] += "x"
    said = refusal(sqs.send_message_batch, QueueUrl=url, Entries=entries)
    assert said == (f"{OLD}BatchRequestTooLong", 400)


# --- time


def test_what_is_not_deleted_comes_to_another(server: Broker, sqs: Any) -> None:
    """Proves H-06 and H-10."""
    url, other = new(sqs, VisibilityTimeout="1"), connect(server)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (first,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert bodies(other.receive_message(QueueUrl=url)) == []
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "1"
    (second,) = other.receive_message(
        QueueUrl=url, WaitTimeSeconds=WAIT_S, VisibilityTimeout=60, AttributeNames=["All"]
    )["Messages"]
    assert second["MessageId"] == first["MessageId"]
    assert second["ReceiptHandle"] != first["ReceiptHandle"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])  # Has no effect.
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesNotVisible"] == "1"
    other.delete_message(QueueUrl=url, ReceiptHandle=second["ReceiptHandle"])
    counts = attributes_of(sqs, url)
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"


@pytest.mark.slow
def test_visibility_is_lengthened_and_shortened(sqs: Any) -> None:
    """Proves H-07."""
    url = new(sqs)
    assert attributes_of(sqs, url)["VisibilityTimeout"] == "30"
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=3)["Messages"]
    handle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    sqs.change_message_visibility(**handle, VisibilityTimeout=20)
    assert bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=4)) == []
    sqs.change_message_visibility(**handle, VisibilityTimeout=0)
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    stale = refusal(sqs.change_message_visibility, **handle, VisibilityTimeout=1)
    assert stale == (f"{OLD}MessageNotInflight", 400)
    handle["ReceiptHandle"] = message["ReceiptHandle"]
    for seconds in (43201, -1):
        said = refusal(sqs.change_message_visibility, **handle, VisibilityTimeout=seconds)
        assert said == ("InvalidParameterValue", 400)
    time.sleep(1.1)
    said = refusal(sqs.change_message_visibility, **handle, VisibilityTimeout=43200)
    assert said == ("InvalidParameterValue", 400)  # Twelve hours since it was received.
    handle["ReceiptHandle"] = "nonsense"
    for call, more in (
        (sqs.delete_message, {}),
        (sqs.change_message_visibility, {"VisibilityTimeout": 1}),
    ):
        assert refusal(call, **handle, **more) == ("ReceiptHandleIsInvalid", 400)


@pytest.mark.slow
def test_messages_are_delayed(sqs: Any) -> None:
    url = new(sqs, DelaySeconds="6")
    sqs.send_message(QueueUrl=url, MessageBody="later")
    sqs.send_message(QueueUrl=url, MessageBody="at once", DelaySeconds=0)
    sqs.send_message(QueueUrl=url, MessageBody="sooner", DelaySeconds=3)
    assert attributes_of(sqs, url)["ApproximateNumberOfMessagesDelayed"] == "2"
    received: list[str] = []
    while len(received) < 3:
        received += bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S))
    assert received == ["at once", "sooner", "later"]


def test_a_receiver_that_waits_is_woken(server: Broker, sqs: Any) -> None:
    """Proves H-11, in part."""
    url = new(sqs)
    started = time.monotonic()
    assert bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)) == []
    assert time.monotonic() - started >= 1
    with ThreadPoolExecutor(3) as pool:
        waiting = [
            pool.submit(connect(server).receive_message, QueueUrl=url, WaitTimeSeconds=WAIT_S)
            for _ in range(3)
        ]
        for number in range(3):
            time.sleep(0.2)
            sqs.send_message(QueueUrl=url, MessageBody=str(number))
        assert sorted(bodies(each.result())[0] for each in waiting) == ["0", "1", "2"]


def test_a_queue_may_let_all_receivers_wait(sqs: Any) -> None:
    url = new(sqs, ReceiveMessageWaitTimeSeconds="20")
    timer = threading.Timer(0.5, sqs.send_message, kwargs={"QueueUrl": url, "MessageBody": "x"})
    timer.start()
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["x"]
    assert bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=0)) == []
    timer.join()


def test_a_receiver_that_left_takes_nothing_with_it(server: Broker, sqs: Any) -> None:
    url = new(sqs)
    _leave_early(server, url)
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S, AttributeNames=["All"])[
        "Messages"
    ]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"


def _leave_early(server: Broker, url: str) -> None:
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    host, port = server.endpoints["sqs"]
    head = f"POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    with socket.create_connection((host, port)) as peer:
        peer.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        time.sleep(0.3)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_what_is_older_than_the_shortest_retention_is_gone(sqs: Any) -> None:
    """Proves H-09."""
    target = new(sqs)
    policy = {"deadLetterTargetArn": arn(target.rpartition("/")[2]), "maxReceiveCount": 1}
    url = new(sqs, MessageRetentionPeriod="60", RedrivePolicy=json.dumps(policy))
    sqs.send_message(QueueUrl=url, MessageBody="x")
    time.sleep(50)
    assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "1"
    time.sleep(15)
    assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "0"
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    assert bodies(sqs.receive_message(QueueUrl=target)) == []


# --- dead letters and purges


def test_what_is_received_too_often_is_a_dead_letter(sqs: Any) -> None:
    target, url = new(sqs), new(sqs)
    source = url.rpartition("/")[2]
    policy = {"deadLetterTargetArn": arn(target.rpartition("/")[2]), "maxReceiveCount": 2}
    text = json.dumps(policy)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": text})
    assert json.loads(attributes_of(sqs, url)["RedrivePolicy"]) == policy
    assert sqs.list_dead_letter_source_queues(QueueUrl=target)["queueUrls"] == [url]
    attribute = {"a": {"DataType": "Number", "StringValue": "1.0"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="x", MessageAttributes=attribute)
    for number in (1, 2):
        (message,) = sqs.receive_message(
            QueueUrl=url, VisibilityTimeout=1, WaitTimeSeconds=WAIT_S, AttributeNames=["All"]
        )["Messages"]
        assert message["Attributes"]["ApproximateReceiveCount"] == str(number)
    (letter,) = sqs.receive_message(
        QueueUrl=target,
        WaitTimeSeconds=WAIT_S,
        AttributeNames=["All"],
        MessageAttributeNames=["All"],
    )["Messages"]
    assert (letter["Body"], letter["MessageId"]) == ("x", sent["MessageId"])
    assert letter["MessageAttributes"] == attribute
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(source)
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes_of(sqs, url)
    assert sqs.list_dead_letter_source_queues(QueueUrl=target)["queueUrls"] == []
    nowhere = json.dumps({**policy, "deadLetterTargetArn": arn("no-such-queue")})
    said = refusal(sqs.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": nowhere})
    assert said == ("InvalidParameterValue", 400)


def test_purges(sqs: Any) -> None:
    url = new(sqs)
    for body, delay_s in (("in flight", 0), ("ready", 0), ("delayed", 60)):
        sqs.send_message(QueueUrl=url, MessageBody=body, DelaySeconds=delay_s)
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["in flight"]
    sqs.purge_queue(QueueUrl=url)
    found = attributes_of(sqs, url)
    assert [found[name] for name in found if name.startswith("Approximate")] == ["0", "0", "0"]
    assert refusal(sqs.purge_queue, QueueUrl=url) == (f"{OLD}PurgeQueueInProgress", 403)
    sqs.send_message(QueueUrl=url, MessageBody="new")
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["new"]


# --- many


@pytest.mark.slow
def test_fifty_clients_with_one_message_at_a_time(server: Broker, sqs: Any) -> None:
    url = new(sqs)
    each_count = 10

    def work(number: int) -> list[str]:
        own, found = connect(server), []
        for place in range(each_count):
            own.send_message(QueueUrl=url, MessageBody=f"{number}-{place}")
            for message in own.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S)["Messages"]:
                found.append(message["Body"])
                own.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return found

    with ThreadPoolExecutor(50) as pool:
        found = [body for part in pool.map(work, range(50)) for body in part]
    everything = [f"{number}-{place}" for number in range(50) for place in range(each_count)]
    assert sorted(found) == sorted(everything)
    assert attributes_of(sqs, url)["ApproximateNumberOfMessages"] == "0"
