"""A queue of SQS is the same in other protocols, keeps what it promised, and knows its users."""

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import confluent_kafka
import pika
import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import REGION, WAIT_S, arn, bodies, connect, refusal


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    yield connection.channel()
    connection.close()


# --- other protocols


def test_what_sqs_sends_amqp_and_kafka_read(server: Broker, sqs: Any, channel: Any) -> None:
    url = sqs.create_queue(QueueName="crossing")["QueueUrl"]
    channel.queue_declare("crossing", durable=True)  # The same queue.
    attributes = {
        "content-type": {"DataType": "String", "StringValue": "text/plain"},
        "text": {"DataType": "String", "StringValue": "é"},
        "number": {"DataType": "Number", "StringValue": "12"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody="hellö", MessageAttributes=attributes)
    method, properties, body = channel.basic_get("crossing")
    assert (body.decode(), method.routing_key) == ("hellö", "crossing")
    assert (properties.content_type, properties.delivery_mode) == ("text/plain", 2)
    assert properties.message_id == sent["MessageId"]
    assert properties.headers == {"text": "é", "number": 12, "bytes": b"\0\xff"}
    channel.basic_nack(method.delivery_tag)  # Back into the queue.
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    reader.assign([confluent_kafka.TopicPartition("crossing", 0, 0)])
    record = reader.poll(WAIT_S)
    reader.close()
    assert record is not None
    assert record.value() == "hellö".encode()
    headers = dict(record.headers())
    assert (headers["content-type"], headers["number"]) == (b"text/plain", b"12")
    (message,) = sqs.receive_message(
        QueueUrl=url,
        WaitTimeSeconds=WAIT_S,
        MessageAttributeNames=["All"],
        AttributeNames=["All"],
    )["Messages"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert channel.queue_declare("crossing", passive=True).method.message_count == 0


def test_what_amqp_publishes_sqs_receives(sqs: Any, channel: Any) -> None:
    channel.queue_declare("tasks", durable=True)
    url = sqs.get_queue_url(QueueName="tasks")["QueueUrl"]
    headers = {"text": "x", "number": 7, "yes": True, "bytes": b"\xff", "none": None, "a b": "-"}
    properties = pika.BasicProperties(
        content_type="text/plain", correlation_id="c1", priority=3, headers=headers
    )
    channel.basic_publish("", "tasks", "hellö".encode(), properties)
    (message,) = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=WAIT_S, MessageAttributeNames=["All"]
    )["Messages"]
    assert message["Body"] == "hellö"
    assert message["MessageAttributes"] == {
        "content-type": {"DataType": "String", "StringValue": "text/plain"},
        "correlation-id": {"DataType": "String", "StringValue": "c1"},
        "priority": {"DataType": "Number", "StringValue": "3"},
        "text": {"DataType": "String", "StringValue": "x"},
        "number": {"DataType": "Number", "StringValue": "7"},
        "yes": {"DataType": "String", "StringValue": "true"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\xff"},
    }
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


@pytest.mark.parametrize("body", [b"\xff\x00", b"a\0b", b"\xed\xa0\x80"])
def test_a_body_that_is_no_text_comes_as_base64(sqs: Any, channel: Any, body: bytes) -> None:
    channel.queue_declare("binary", durable=True)
    url = sqs.get_queue_url(QueueName="binary")["QueueUrl"]
    channel.basic_publish("", "binary", body)
    (message,) = sqs.receive_message(
        QueueUrl=url, WaitTimeSeconds=WAIT_S, MessageAttributeNames=["body-encoding"]
    )["Messages"]
    assert base64.b64decode(message["Body"]) == body
    assert message["MessageAttributes"]["body-encoding"]["StringValue"] == "base64"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_kafka_reads_a_queue_that_sqs_empties(server: Broker, sqs: Any) -> None:
    """Whoever reads by offset sees every message once and in order, consumed or not."""
    url = sqs.create_queue(QueueName="emptied")["QueueUrl"]
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    reader.assign([confluent_kafka.TopicPartition("emptied", 0, 0)])
    sent, taken, read = [f"message {number}" for number in range(100)], [], []
    for start in range(0, 100, 10):
        some = sent[start : start + 10]
        entries = [{"Id": str(at), "MessageBody": text} for at, text in enumerate(some)]
        assert len(sqs.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        taken += bodies(answer)
        for message in answer["Messages"]:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        while len(read) < start + 5:  # It lags behind.
            record = reader.poll(WAIT_S)
            assert record is not None
            read.append(record.value().decode())
    while len(read) < 100:
        record = reader.poll(WAIT_S)
        assert record is not None
        read.append(record.value().decode())
    reader.close()
    assert taken == read == sent
    assert bodies(sqs.receive_message(QueueUrl=url)) == []


def test_a_large_message_of_another_protocol(sqs: Any, channel: Any) -> None:
    channel.queue_declare("large", durable=True)
    url = sqs.get_queue_url(QueueName="large")["QueueUrl"]
    large = b"x" * 5_000_000
    for body in (large, large, b"small"):
        channel.basic_publish("", "large", body)
    received: list[str] = []
    while len(received) < 3:
        answer = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=WAIT_S, MaxNumberOfMessages=10)
        received += bodies(answer)
    assert received == [large.decode(), large.decode(), "small"]


def test_dead_letters_cross_too(sqs: Any, channel: Any) -> None:
    sqs.create_queue(QueueName="graves")
    policy = json.dumps({"deadLetterTargetArn": arn("graves"), "maxReceiveCount": 1})
    url = sqs.create_queue(QueueName="mortal", Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    method, _, _ = channel.basic_get("mortal")
    channel.basic_nack(method.delivery_tag, requeue=True)
    graves = sqs.get_queue_url(QueueName="graves")["QueueUrl"]
    answer = sqs.receive_message(QueueUrl=graves, WaitTimeSeconds=WAIT_S)
    assert bodies(answer) == ["x"]


def test_queues_that_sqs_does_not_find(sqs: Any, channel: Any) -> None:
    channel.queue_declare("private", exclusive=True)
    assert refusal(sqs.get_queue_url, QueueName="private")[1] == 400
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="private")
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="private")
    channel.queue_declare("with space/and slash", durable=True)
    url = sqs.get_queue_url(QueueName="with space/and slash")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    assert bodies(sqs.receive_message(QueueUrl=url)) == ["x"]


# --- a crash


@pytest.mark.usefixtures("every_durability")
def test_what_was_answered_survives(tmp_path: Path) -> None:
    with broker(tmp_path / "data", settings={"ports.sqs": 0}) as server:
        sqs = connect(server)
        sqs.create_queue(QueueName="graves")
        policy = json.dumps({"deadLetterTargetArn": arn("graves"), "maxReceiveCount": 3})
        given = {"VisibilityTimeout": "9", "MaximumMessageSize": "2048", "RedrivePolicy": policy}
        url = sqs.create_queue(QueueName="work", Attributes=given, tags={"a": "b"})["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
        sqs.tag_queue(QueueUrl=url, Tags={"c": "d"})
        before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        for body in ("deleted", "in flight", "ready"):
            sqs.send_message(QueueUrl=url, MessageBody=body)
        sqs.send_message(QueueUrl=url, MessageBody="delayed", DelaySeconds=900)
        first, _ = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=2)["Messages"]
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        server.kill()
        server.start()
        sqs = connect(server)
        after = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        counts = {"ApproximateNumberOfMessages": "2", "ApproximateNumberOfMessagesDelayed": "1"}
        assert after == {**before, **counts}
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b", "c": "d"}
        # A receipt from before does nothing, and is no mistake.
        sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)
        assert bodies(answer) == ["in flight", "ready"]


# --- users


def test_the_session_token_is_the_password(tmp_path: Path) -> None:
    data_dir, password = str(tmp_path / "data"), "ana's pässword"
    add = ["users", "add", "ana", "--data-dir", data_dir, "--password-stdin"]
    assert CliRunner().invoke(main, add, input=f"{password}\n").exit_code == 0
    settings = {"ports.sqs": 0, "security.authentication": "sasl"}
    with broker(data_dir, settings=settings) as server:
        ana = connect(server, user="ana", password=password)
        url = ana.create_queue(QueueName="hers")["QueueUrl"]
        ana.send_message(QueueUrl=url, MessageBody="x")
        (message,) = ana.receive_message(QueueUrl=url, AttributeNames=["SenderId"])["Messages"]
        assert message["Attributes"] == {"SenderId": "ana"}
        for user, wrong in (("ana", "wrong"), ("ana", None), ("ben", password), ("any", None)):
            stranger = connect(server, user=user, password=wrong)
            assert refusal(stranger.list_queues) == ("InvalidClientTokenId", 403)


def test_rights(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")
    for user in ("root", "ana"):
        add = ["users", "add", user, "--data-dir", data_dir, "--password-stdin"]
        assert CliRunner().invoke(main, add, input=f"{user}'s password\n").exit_code == 0
    settings = {
        "ports.sqs": 0,
        "ports.http": 0,
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with broker(data_dir, settings=settings) as server:
        root, ana = (
            connect(server, user=each, password=f"{each}'s password") for each in ("root", "ana")
        )
        theirs = root.create_queue(QueueName="theirs")["QueueUrl"]
        denied = ("AccessDenied", 403)
        assert "QueueUrls" not in ana.list_queues()
        assert refusal(ana.send_message, QueueUrl=theirs, MessageBody="x") == denied
        http = HTTPConnection(server.http_address, timeout=WAIT_S)
        permission = {"configure": "^hers$", "write": "^(hers|theirs)$", "read": "^hers$"}
        basic = base64.b64encode(b"root:root's password").decode()
        head = {"Authorization": f"Basic {basic}"}
        http.request("PUT", "/api/permissions/%2F/ana", json.dumps(permission), head)
        assert http.getresponse().status in (201, 204)
        http.close()
        hers = ana.create_queue(QueueName="hers")["QueueUrl"]
        ana.send_message(QueueUrl=theirs, MessageBody="x")
        assert bodies(ana.receive_message(QueueUrl=hers)) == []
        assert ana.list_queues()["QueueUrls"] == [hers, theirs]
        for call, more in (
            (ana.receive_message, {}),
            (ana.delete_queue, {}),
            (ana.purge_queue, {}),
            (ana.set_queue_attributes, {"Attributes": {"DelaySeconds": "1"}}),
            (ana.tag_queue, {"Tags": {"a": "b"}}),
        ):
            assert refusal(call, QueueUrl=theirs, **more) == denied
        assert refusal(ana.create_queue, QueueName="another") == denied
        permission = {"Label": "read", "AWSAccountIds": ["ana"], "Actions": ["ReceiveMessage"]}
        assert refusal(ana.add_permission, QueueUrl=theirs, **permission) == denied
        unknown = {**permission, "AWSAccountIds": ["nobody"]}
        said = refusal(root.add_permission, QueueUrl=theirs, **unknown)
        assert said == ("InvalidParameterValue", 400)
        root.add_permission(QueueUrl=theirs, **permission)
        server.kill()
        server.start()
        root, ana = (
            connect(server, user=each, password=f"{each}'s password") for each in ("root", "ana")
        )
        theirs = root.get_queue_url(QueueName="theirs")["QueueUrl"]
        (message,) = ana.receive_message(QueueUrl=theirs)["Messages"]
        handle = message["ReceiptHandle"]
        assert refusal(ana.delete_message, QueueUrl=theirs, ReceiptHandle=handle) == denied
        root.remove_permission(QueueUrl=theirs, Label="read")
        assert refusal(ana.receive_message, QueueUrl=theirs) == denied


# --- other clients


@pytest.mark.slow
def test_the_command_line_of_aws(server: Broker) -> None:
    variables = {
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def aws(*arguments: str) -> Any:
        command = [sys.executable, "-m", "awscli", "--endpoint-url", server.sqs_url, "sqs"]
        said = subprocess.run(
            [*command, *arguments], env={**os.environ, **variables}, capture_output=True, check=True
        ).stdout
        return json.loads(said) if said.strip() else None

    url = aws("create-queue", "--queue-name", "from-a-shell")["QueueUrl"]
    aws("send-message", "--queue-url", url, "--message-body", "hello")
    (message,) = aws("receive-message", "--queue-url", url)["Messages"]
    assert message["Body"] == "hello"
    handle = message["ReceiptHandle"]
    aws("delete-message", "--queue-url", url, "--receipt-handle", handle)
    aws("delete-queue", "--queue-url", url)


def test_the_endpoint_is_printed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "entrepot.cli", "serve", "--data-dir", str(tmp_path / "data")]
    for protocol in ("kafka", "amqp", "mqtt", "stomp", "http", "sqs"):
        command += [f"--{protocol}-port", "0" if protocol == "sqs" else "off"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().split() for _ in range(3)]
        process.terminate()
    assert lines[1][0] == "sqs"
    assert lines[2] == ["ready"]
    assert int(lines[1][1].rpartition(":")[2]) > 0


def test_requests_are_signed_with_an_access_key(tmp_path: Path) -> None:
    data_dir = str(tmp_path / "data")

    def run(*arguments: str, given: str = "") -> str:
        result = CliRunner().invoke(main, ["users", *arguments], input=given)
        assert result.exit_code == 0, result.output
        return result.output

    run("add", "ana", "--data-dir", data_dir, "--password-stdin", given="ana's password\n")
    key = json.loads(run("add-key", "ana", "--data-dir", data_dir, "--json"))
    settings = {"ports.sqs": 0, "ports.http": 0, "security.authentication": "sasl"}
    with broker(data_dir, settings=settings) as server:
        ana = connect(server, user=key["id"], secret=key["secret"])
        url = ana.create_queue(QueueName="work")["QueueUrl"]
        ana.send_message(QueueUrl=url, MessageBody="é" * 100_000)
        (message,) = ana.receive_message(QueueUrl=url, AttributeNames=["All"])["Messages"]
        assert message["Attributes"]["SenderId"] == "ana"
        wrong = connect(server, user=key["id"], secret="x" * 40)
        assert refusal(wrong.list_queues) == ("SignatureDoesNotMatch", 403)
        stranger = connect(server, user="ENTRSTRANGER", secret=key["secret"])
        assert refusal(stranger.list_queues) == ("InvalidClientTokenId", 403)
        connection = HTTPConnection(server.sqs_url.removeprefix("http://"))
        connection.request("GET", "/?Action=ListQueues")
        answer = connection.getresponse()
        assert answer.status == 403
        assert b"<Code>MissingAuthenticationToken</Code>" in answer.read()
        connection.close()
        server.kill()
        server.start()
        assert connect(server, user=key["id"], secret=key["secret"]).list_queues()["QueueUrls"]
        live = ["--http", server.http_address, "--user", "ana"]
        live += ["--password-stdin"]
        second = json.loads(run("add-key", "ana", "--json", *live, given="ana's password\n"))
        ids = run("list-keys", "ana", *live, given="ana's password\n")
        assert key["id"] in ids
        assert second["id"] in ids
        assert second["secret"] not in ids
        run("delete-key", "ana", key["id"], *live, given="ana's password\n")
        gone = connect(server, user=key["id"], secret=key["secret"])
        assert refusal(gone.list_queues) == ("InvalidClientTokenId", 403)
        assert connect(server, user=second["id"], secret=second["secret"]).list_queues()
        assert key["secret"] not in server.log_path.read_text()
