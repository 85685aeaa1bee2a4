"""Amazon SQS in its older protocol, a form and XML, beside a client of today."""

from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import WAIT_S, connect

XML = "{http://queue.amazonaws.com/doc/2012-11-05/}"


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


class OldClient:
    """The older protocol: a form, and XML."""

    def __init__(self, server: Broker) -> None:
        self._connection = HTTPConnection(*server.endpoints["sqs"], timeout=WAIT_S)

    def __call__(
        self, action: str, path: str = "/", **fields: str
    ) -> tuple[int, ElementTree.Element]:
        named = {name.replace("_", "."): value for name, value in fields.items()}
        form = urlencode({"Action": action, "Version": "2012-11-05", **named})
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        self._connection.request("POST", path, form, kind)
        response = self._connection.getresponse()
        return response.status, ElementTree.fromstring(response.read())


def text(found: ElementTree.Element, path: str) -> str | None:
    return found.findtext("/".join(XML + part for part in path.split("/")))


def test_the_older_protocol(server: Broker, sqs: Any) -> None:
    ask = OldClient(server)
    status, made = ask(
        "CreateQueue",
        QueueName="older",
        Attribute_1_Name="VisibilityTimeout",
        Attribute_1_Value="5",
        Tag_1_Key="a",
        Tag_1_Value="b",
    )
    url = text(made, "CreateQueueResult/QueueUrl")
    assert (status, url) == (200, sqs.get_queue_url(QueueName="older")["QueueUrl"])
    assert url is not None
    body = "<é> & \r\n " + "%" * 100
    _, sent = ask(
        "SendMessage",
        QueueUrl=url,
        MessageBody=body,
        DelaySeconds="0",
        MessageAttribute_1_Name="n",
        MessageAttribute_1_Value_DataType="Number",
        MessageAttribute_1_Value_StringValue="1.0",
    )
    (message,) = sqs.receive_message(
        QueueUrl=url, VisibilityTimeout=0, MessageAttributeNames=["All"]
    )["Messages"]
    assert message["Body"] == body
    assert message["MessageAttributes"] == {"n": {"DataType": "Number", "StringValue": "1.0"}}
    md5 = text(sent, "SendMessageResult/MD5OfMessageAttributes")
    assert md5 == message["MD5OfMessageAttributes"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_receiving_and_deleting_in_the_older_protocol(server: Broker, sqs: Any) -> None:
    ask, body = OldClient(server), "<é> & \r\n "
    attribute = {"n": {"DataType": "Number", "StringValue": "1.0"}}
    url = sqs.create_queue(QueueName="older-receiving")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attribute)
    _, received = ask(
        "ReceiveMessage",
        "/000000000000/older-receiving",  # The queue may be in the path.
        WaitTimeSeconds="20",
        MaxNumberOfMessages="10",
        AttributeName_1="All",
        MessageAttributeName_1="All",
    )
    found = received.find(f"{XML}ReceiveMessageResult/{XML}Message")
    assert found is not None
    assert (text(found, "Body"), text(found, "MessageAttribute/Name")) == (body, "n")
    assert text(found, "MessageAttribute/Value/StringValue") == "1.0"
    names = [each.text for each in found.iter(f"{XML}Name")]
    assert "SentTimestamp" in names
    handle = text(found, "ReceiptHandle")
    assert handle is not None
    _, deleted = ask(
        "DeleteMessageBatch",
        QueueUrl=url,
        DeleteMessageBatchRequestEntry_1_Id="one",
        DeleteMessageBatchRequestEntry_1_ReceiptHandle=handle,
        DeleteMessageBatchRequestEntry_2_Id="two",
        DeleteMessageBatchRequestEntry_2_ReceiptHandle="wrong",
    )
    where = "DeleteMessageBatchResult/"
    assert text(deleted, f"{where}DeleteMessageBatchResultEntry/Id") == "one"
    assert text(deleted, f"{where}BatchResultErrorEntry/Code") == "ReceiptHandleIsInvalid"


def test_queues_in_the_older_protocol(server: Broker, sqs: Any) -> None:
    ask = OldClient(server)
    given = {"VisibilityTimeout": "5"}
    made = sqs.create_queue(QueueName="older-queue", Attributes=given, tags={"a": "b"})
    url = made["QueueUrl"]
    _, told = ask("GetQueueAttributes", QueueUrl=url, AttributeName_1="VisibilityTimeout")
    assert text(told, "GetQueueAttributesResult/Attribute/Value") == "5"
    _, listed = ask("ListQueues", QueueNamePrefix="older-queue")
    assert text(listed, "ListQueuesResult/QueueUrl") == url
    _, tags = ask("ListQueueTags", QueueUrl=url)
    assert text(tags, "ListQueueTagsResult/Tag/Key") == "a"
    status, wrong = ask("GetQueueUrl", QueueName="no-such")
    code = "AWS.SimpleQueueService.NonExistentQueue"
    assert (status, text(wrong, "Error/Code"), text(wrong, "Error/Type")) == (400, code, "Sender")
    status, wrong = ask("Nonsense")
    assert (status, text(wrong, "Error/Code")) == (400, "InvalidAction")
    assert ask("DeleteQueue", QueueUrl=url)[0] == 200
