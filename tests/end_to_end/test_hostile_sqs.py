"""SQS from those who mean no good: an error or an end, and nobody else notices."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from random import Random
from typing import Any

import pytest

from entrepot.core import limits
from entrepot.gateway.sqs.application import ACTIONS
from entrepot.testing import Broker, broker
from entrepot.wire.sqs import limits as sqs_limits
from tests.end_to_end.bystander import Growth
from tests.end_to_end.sqs import WAIT_S, bodies, connect

PARAMETERS = (
    *("AttributeNames", "Attributes", "DelaySeconds", "Entries", "MaxNumberOfMessages"),
    *("MaxResults", "MessageAttributeNames", "MessageAttributes", "MessageBody"),
    *("MessageSystemAttributeNames", "MessageSystemAttributes", "NextToken", "QueueName"),
    *("QueueNamePrefix", "ReceiptHandle", "TagKeys", "Tags", "VisibilityTimeout", "tags"),
    *("MessageGroupId", "MessageDeduplicationId", "Id"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 2**63, 2**70, 1.5, "", "x", "a\0b", "\ud800", "1", [], {}, [[]], [{}]),
    *([None], ["All"], [1], {"a": 1}, {"a": {}}, {"a": None}, {"": ""}, {"RedrivePolicy": "[1]"}),
    {"a": {"DataType": "Binary", "BinaryValue": "%"}},
    {"a": {"DataType": 1, "StringValue": []}},
    [{"Id": "a", "MessageBody": 1}],
    [{"Id": "a", "ReceiptHandle": "1-2-3-4-5", "VisibilityTimeout": "x"}],
    {"RedrivePolicy": '{"deadLetterTargetArn": "arn:aws:sqs:::", "maxReceiveCount": 1}'},
    "eyJ9",
    "é" * 300,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


def ask(server: Broker, action: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    connection = HTTPConnection(*server.endpoints["sqs"], timeout=WAIT_S)
    head = {"X-Amz-Target": f"AmazonSQS.{action}", **headers}
    connection.request("POST", "/", body, head)
    response = connection.getresponse()
    said = response.read()
    connection.close()
    return response.status, said


def is_well(server: Broker) -> None:
    sqs = connect(server)
    url = sqs.create_queue(QueueName="well")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"[]",
        b'"x"',
        b"\xff",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"Entries":' + b"[" * 500_000,
        b'{"Entries":[' + b"{}," * 1_000_000 + b"{}]}",
        b'{"MessageAttributes":{' + b",".join(b'"%d":{}' % n for n in range(200_000)) + b"}}",
        b'{"QueueUrl":"' + b"x" * 5_000_000 + b'"}',
        b'{"QueueUrl":"' + b"\\u0041" * 1_000_000 + b'"}',
    ],
    ids=lambda body: repr(body[:20]),
)
def test_bodies_that_are_no_request(server: Broker, body: bytes) -> None:
    for action in ("SendMessage", "SendMessageBatch", "CreateQueue"):
        status, said = ask(server, action, body)
        assert status == 400
        assert "__type" in json.loads(said)
    is_well(server)


def test_a_body_that_is_too_large_is_refused(server: Broker) -> None:
    head = f"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {sqs_limits.BODY_BYTES_MAX + 1}\r\n\r\n"
    with socket.create_connection(server.endpoints["sqs"], WAIT_S) as peer:
        peer.sendall(head.encode())
        assert peer.recv(65536).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("number", range(4))
def test_parameters_of_any_type(server: Broker, number: int) -> None:
    sqs = connect(server)
    urls = [sqs.create_queue(QueueName=f"any-{number}-{each}")["QueueUrl"] for each in range(3)]
    chance = Random(number)
    connection = HTTPConnection(*server.endpoints["sqs"], timeout=WAIT_S)
    for _ in range(1_000):
        names = chance.sample(PARAMETERS, chance.randrange(1, 6))
        values = {name: chance.choice(VALUES) for name in names}
        values["QueueUrl"] = chance.choice((*urls, 1, "", None))
        action = chance.choice([*ACTIONS])
        if action == "ReceiveMessage":
            values["WaitTimeSeconds"] = 0
        head = {"X-Amz-Target": f"AmazonSQS.{action}"}
        connection.request("POST", "/", json.dumps(values), head)
        response = connection.getresponse()
        said = response.read()
        assert response.status in (200, 400, 403), (action, values, said)
    connection.close()
    is_well(server)


@pytest.mark.parametrize(
    "form",
    [
        b"Action=SendMessage&" + b"&".join(b"a.%d=1" % number for number in range(2_000)),
        b"Action=SendMessage&MessageBody=" + b"%41" * 2_000_000,
        b"Action=SendMessageBatch&SendMessageBatchRequestEntry.x.Id=1",
        b"Action=SendMessageBatch&SendMessageBatchRequestEntry.99999999.Id=1",
        b"Action=CreateQueue&QueueName=x&Attribute.1=2&Attribute.1.Name=3",
        b"Action=CreateQueue&QueueName=x&Attribute.1.Name.a.b.c.d.e.f.g.h.i.j=3",
        b"Action=CreateQueue&QueueName=%ff",
        b"Action=%ff",
        b"=&=&&&==",
    ],
    ids=lambda form: repr(form[:40]),
)
def test_forms_that_are_no_request(server: Broker, form: bytes) -> None:
    connection = HTTPConnection(*server.endpoints["sqs"], timeout=WAIT_S)
    connection.request("POST", "/000000000000/no-such", form)
    response = connection.getresponse()
    said = response.read()
    assert response.status == 400
    assert b"<ErrorResponse" in said
    connection.close()
    is_well(server)


def test_pages_of_other_sites(server: Broker) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        status, _ = ask(server, "ListQueues", b"{}", **headers)
        assert status == 403


def test_bodies_that_never_end_cost_a_bounded_amount(server: Broker) -> None:
    size = sqs_limits.BODY_BYTES_MAX
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n".encode()
    growth = Growth(server)
    peers = []
    for _ in range(48):  # Half as much again as all together may hold.
        peer = socket.create_connection(server.endpoints["sqs"], WAIT_S)
        peer.settimeout(5)
        peers.append(peer)
        with suppress(OSError):
            peer.sendall(head + bytes(size - 1))
    time.sleep(0.5)
    assert growth.peak() < limits.UNFINISHED_BYTES_MAX // limits.MIB + 100
    is_well(server)
    for peer in peers:
        peer.close()


def test_many_wait_and_leave_and_nothing_is_lost(server: Broker) -> None:
    sqs = connect(server)
    url = sqs.create_queue(QueueName="crowded")["QueueUrl"]
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}).encode()
    head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    growth = Growth(server)
    peers = []
    for _ in range(2_000):
        peer = socket.create_connection(server.endpoints["sqs"], WAIT_S)
        peer.sendall(request)
        peers.append(peer)
    is_well(server)
    assert growth.peak() < 200
    for peer in peers[10:]:
        peer.close()
    is_well(server)
    for number in range(20):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    received = [json.loads(peer.recv(65536).partition(b"\r\n\r\n")[2]) for peer in peers[:10]]
    found = [each["Messages"][0]["Body"] for each in received]
    while len(found) < 20:
        found += bodies(sqs.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S))
    assert sorted(found, key=int) == [str(number) for number in range(20)]
    for peer in peers[:10]:
        peer.close()


def test_pipelined_requests_are_answered_in_order(server: Broker) -> None:
    sqs = connect(server)
    url = sqs.create_queue(QueueName="pipelined")["QueueUrl"]
    requests = b""
    for number in range(200):
        body = json.dumps({"QueueUrl": url, "MessageBody": str(number)}).encode()
        head = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.SendMessage\r\n"
        last = "Connection: close\r\n" if number == 199 else ""
        requests += f"{head}{last}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.create_connection(server.endpoints["sqs"], WAIT_S) as peer:
        peer.sendall(requests)
        said = b"".join(iter(lambda: peer.recv(65536), b""))
    assert said.count(b"HTTP/1.1 200 OK") == 200
    found: list[str] = []
    while len(found) < 200:
        found += bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
    assert found == [str(number) for number in range(200)]
