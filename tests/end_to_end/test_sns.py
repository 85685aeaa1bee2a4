"""Amazon SNS with boto3: topics, queues that subscribe, filters, FIFO; and readers of the topic."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import confluent_kafka
import pika
import pytest
from botocore.config import Config
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import REGION, arn, bodies, connect, refusal

_numbers = count()
TEXT = {"DataType": "String", "StringValue": "x"}


def connect_sns(server: Broker, user: str = "any", secret: str = "any") -> Any:
    return boto3.client(
        "sns",
        endpoint_url=server.sqs_url,
        region_name=REGION,
        aws_access_key_id=user,
        aws_secret_access_key=secret,
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


@pytest.fixture(scope="module")
def sns(server: Broker) -> Any:
    return connect_sns(server)


def new_topic(sns: Any, suffix: str = "", **attributes: str) -> str:
    name = f"topic-{next(_numbers)}{suffix}"
    return str(sns.create_topic(Name=name, Attributes=attributes)["TopicArn"])


def subscribe(sqs: Any, sns: Any, topic: str, suffix: str = "", **attributes: str) -> str:
    """The URL of a new queue that subscribes."""
    name = f"queue-{next(_numbers)}{suffix}"
    fifo = {"FifoQueue": "true"} if suffix else {}
    url = sqs.create_queue(QueueName=name, Attributes=fifo)["QueueUrl"]
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn(name), Attributes=attributes)
    return str(url)


def test_a_message_goes_to_all_queues_that_subscribe(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns)
    told, raw = subscribe(sqs, sns, topic), subscribe(sqs, sns, topic, RawMessageDelivery="true")
    attributes = {"kind": TEXT, "size": {"DataType": "Number", "StringValue": "12"}}
    sent = sns.publish(
        TopicArn=topic, Message="héllo", Subject="Greeting", MessageAttributes=attributes
    )
    (message,) = sqs.receive_message(QueueUrl=told)["Messages"]
    notice = json.loads(message["Body"])
    assert {name: notice[name] for name in ("Type", "MessageId", "TopicArn", "Message")} == {
        "Type": "Notification",
        "MessageId": sent["MessageId"],
        "TopicArn": topic,
        "Message": "héllo",
    }
    assert notice["Subject"] == "Greeting"
    assert notice["MessageAttributes"]["size"] == {"Type": "Number", "Value": "12"}
    (message,) = sqs.receive_message(QueueUrl=raw, MessageAttributeNames=["All"])["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == ("héllo", attributes)


def test_topics_are_made_described_tagged_and_deleted(sns: Any) -> None:
    topic = new_topic(sns)
    name = topic.rpartition(":")[2]
    assert sns.create_topic(Name=name)["TopicArn"] == topic
    different = {"Name": name, "Attributes": {"DisplayName": "Other"}}
    assert refusal(sns.create_topic, **different) == ("InvalidParameter", 400)
    listed = [each["TopicArn"] for each in sns.list_topics()["Topics"]]
    assert topic in listed
    sns.set_topic_attributes(TopicArn=topic, AttributeName="DisplayName", AttributeValue="News")
    told = sns.get_topic_attributes(TopicArn=topic)["Attributes"]
    assert (told["DisplayName"], told["SubscriptionsConfirmed"]) == ("News", "0")
    tags = [{"Key": "team", "Value": "a"}, {"Key": "stage", "Value": "b"}]
    sns.tag_resource(ResourceArn=topic, Tags=tags)
    sns.untag_resource(ResourceArn=topic, TagKeys=["stage"])
    assert sns.list_tags_for_resource(ResourceArn=topic)["Tags"] == tags[:1]
    sns.delete_topic(TopicArn=topic)
    sns.delete_topic(TopicArn=topic)
    assert refusal(sns.get_topic_attributes, TopicArn=topic) == ("NotFound", 404)
    assert refusal(sns.publish, TopicArn=topic, Message="x") == ("NotFound", 404)


def test_subscriptions_are_listed_changed_and_ended(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns)
    url = subscribe(sqs, sns, topic)
    (row,) = sns.list_subscriptions_by_topic(TopicArn=topic)["Subscriptions"]
    assert (row["Protocol"], row["TopicArn"]) == ("sqs", topic)
    mine = {"SubscriptionArn": row["SubscriptionArn"]}
    assert row in sns.list_subscriptions()["Subscriptions"]
    again = sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=row["Endpoint"])
    assert again["SubscriptionArn"] == row["SubscriptionArn"]
    for name, value in (("RawMessageDelivery", "true"), ("FilterPolicy", '{"kind": ["x"]}')):
        change = {"AttributeName": name, "AttributeValue": value}
        sns.set_subscription_attributes(**mine, **change)
    told = sns.get_subscription_attributes(**mine)["Attributes"]
    assert (told["RawMessageDelivery"], told["FilterPolicy"]) == ("true", '{"kind": ["x"]}')
    sns.publish(TopicArn=topic, Message="no")
    sns.publish(TopicArn=topic, Message="yes", MessageAttributes={"kind": TEXT})
    assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["yes"]
    token = {"TopicArn": topic, "Token": "x"}
    assert refusal(sns.confirm_subscription, **token) == ("InvalidParameter", 400)
    sns.unsubscribe(**mine)
    sns.publish(TopicArn=topic, Message="late", MessageAttributes={"kind": TEXT})
    assert bodies(sqs.receive_message(QueueUrl=url)) == []
    assert refusal(sns.get_subscription_attributes, **mine) == ("NotFound", 404)


def test_filters_on_the_body(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns)
    policy = json.dumps({"order": {"total": [{"numeric": [">=", 100]}]}})
    scope = {"FilterPolicyScope": "MessageBody", "RawMessageDelivery": "true"}
    url = subscribe(sqs, sns, topic, FilterPolicy=policy, **scope)
    wanted = json.dumps({"order": {"total": 100}})
    for text in ("no JSON", json.dumps({"order": {"total": 99}}), wanted):
        sns.publish(TopicArn=topic, Message=text)
    assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == [wanted]


def test_a_fifo_topic_keeps_the_order_and_drops_duplicates(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns, ".fifo", FifoTopic="true", ContentBasedDeduplication="true")
    url = subscribe(sqs, sns, topic, ".fifo", RawMessageDelivery="true")
    entries = [
        {"Id": f"{number}-{copy}", "Message": f"{number}", "MessageGroupId": "g"}
        for number in range(5)
        for copy in "ab"
    ]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    assert len(answer["Successful"]) == 10
    numbers = [int(each["SequenceNumber"]) for each in answer["Successful"]]
    assert numbers == sorted(set(numbers))
    (message, *rest) = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert [message["Body"], *(each["Body"] for each in rest)] == [*"01234"]
    system = message["Attributes"]
    assert system["MessageGroupId"] == "g"
    assert system["MessageDeduplicationId"] == hashlib.sha256(b"0").hexdigest()


def test_a_batch(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns)
    url = subscribe(sqs, sns, topic, RawMessageDelivery="true")
    entries = [{"Id": "a", "Message": "one"}, {"Id": "b", "Message": "two", "Subject": "\n"}]
    answer = sns.publish_batch(TopicArn=topic, PublishBatchRequestEntries=entries)
    assert [each["Id"] for each in answer["Successful"]] == ["a"]
    (failed,) = answer["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("b", "InvalidParameter", True)
    assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["one"]
    for wrong, code in (
        ([], "EmptyBatchRequest"),
        ([entries[0]] * 2, "BatchEntryIdsNotDistinct"),
        ([{"Id": str(n), "Message": "x"} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a b", "Message": "x"}], "InvalidBatchEntryId"),
        ([{"Id": n, "Message": "x" * 140_000} for n in "ab"], "BatchRequestTooLong"),
    ):
        given = {"TopicArn": topic, "PublishBatchRequestEntries": wrong}
        assert refusal(sns.publish_batch, **given) == (code, 400)


def test_a_message_for_each_protocol(sqs: Any, sns: Any) -> None:
    topic = new_topic(sns)
    url = subscribe(sqs, sns, topic, RawMessageDelivery="true")
    text = json.dumps({"default": "d", "sqs": "for queues", "email": "no"})
    sns.publish(TopicArn=topic, Message=text, MessageStructure="json")
    sns.publish(TopicArn=topic, Message='{"default": "d"}', MessageStructure="json")
    found = bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10))
    assert found == ["for queues", "d"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"Message": ""},
        {"Message": "x" * 262_145},
        {"Message": "x", "Subject": "x" * 101},
        {"Message": "x", "MessageDeduplicationId": "x"},
        {"Message": "x", "MessageStructure": "json"},
        {"Message": '{"sqs": "x"}', "MessageStructure": "json"},
    ],
)
def test_what_cannot_be_published(sns: Any, parameters: dict[str, Any]) -> None:
    said = refusal(sns.publish, TopicArn=new_topic(sns), **parameters)
    assert said == ("InvalidParameter", 400)


def test_what_cannot_be_made(sqs: Any, sns: Any) -> None:
    wrong = ("InvalidParameter", 400)
    for name, attributes in (
        ("a b", {}),
        ("x" * 257, {}),
        ("a.fifo", {}),
        ("a", {"FifoTopic": "true"}),
        ("a", {"ContentBasedDeduplication": "true"}),
        ("a", {"KmsMasterKeyId": "x"}),
    ):
        assert refusal(sns.create_topic, Name=name, Attributes=attributes) == wrong
    topic, fifo = new_topic(sns), {"FifoQueue": "true"}
    sqs.create_queue(QueueName="target")
    sqs.create_queue(QueueName="target.fifo", Attributes=fifo)
    assert refusal(sns.create_topic, Name="target") == wrong
    for protocol, endpoint, attributes in (
        ("http", "http://localhost/", {}),
        ("sqs", "target", {}),
        ("sqs", arn("none"), {}),
        ("sqs", arn("target.fifo"), {}),
        ("sqs", arn("target"), {"FilterPolicy": "x"}),
        ("sqs", arn("target"), {"RawMessageDelivery": "yes"}),
        ("sqs", arn("target"), {"NoSuch": "x"}),
    ):
        given = {"Protocol": protocol, "Endpoint": endpoint, "Attributes": attributes}
        assert refusal(sns.subscribe, TopicArn=topic, **given) == wrong
    missing = {"Protocol": "sqs", "Endpoint": arn("target")}
    absent = topic.replace("topic-", "none-")
    assert refusal(sns.subscribe, TopicArn=absent, **missing) == ("NotFound", 404)


def test_a_topic_of_sns_is_a_topic(server: Broker, sns: Any) -> None:
    """Kafka and AMQP read what is published through SNS."""
    topic = new_topic(sns)
    name = topic.rpartition(":")[2]
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "amq.topic", name)
    sns.publish(TopicArn=topic, Message="for all", MessageAttributes={"kind": TEXT})
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    record = consumer.poll(20)
    assert record is not None
    assert record.value() == b"for all"
    assert ("kind", b"x") in (record.headers() or [])
    consumer.close()
    for _, properties, body in channel.consume(queue, inactivity_timeout=10):
        assert (body, properties.headers["kind"]) == (b"for all", "x")
        break
    connection.close()


@pytest.mark.usefixtures("every_durability")
def test_topics_and_subscriptions_survive(tmp_path: Path) -> None:
    with broker(tmp_path / "data", settings={"ports.sqs": 0}) as server:
        sns, sqs = connect_sns(server), connect(server)
        topic = new_topic(sns)
        url = subscribe(sqs, sns, topic, FilterPolicy='{"kind": ["x"]}', RawMessageDelivery="true")
        queue = url.rpartition("/")[2]
        server.kill()
        server.start()
        sns, sqs = connect_sns(server), connect(server)
        for attributes in ({}, {"kind": TEXT}):
            sns.publish(TopicArn=topic, Message="x", MessageAttributes=attributes)
        url = f"{server.sqs_url}/000000000000/{queue}"
        assert bodies(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)) == ["x"]


def test_rights(tmp_path: Path) -> None:
    """A topic's rights are its ACLs; to subscribe a queue needs the permission to write to it."""
    data_dir = str(tmp_path / "data")
    keys = {}
    for user in ("root", "ana"):
        add = ["users", "add", user, "--data-dir", data_dir, "--password-stdin"]
        assert CliRunner().invoke(main, add, input=f"{user}'s password\n").exit_code == 0
        made = ["users", "add-key", user, "--data-dir", data_dir, "--json"]
        keys[user] = json.loads(CliRunner().invoke(main, made).output)
    settings = {
        "ports.sqs": 0,
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with broker(data_dir, settings=settings) as server:
        root, ana = (connect_sns(server, key["id"], key["secret"]) for key in keys.values())
        topic = root.create_topic(Name="theirs")["TopicArn"]
        denied = ("AuthorizationError", 403)
        assert refusal(ana.create_topic, Name="another") == denied
        assert ana.list_topics()["Topics"] == []
        for call, more in (
            (ana.publish, {"Message": "x"}),
            (ana.delete_topic, {}),
            (ana.get_topic_attributes, {}),
            (ana.list_subscriptions_by_topic, {}),
            (ana.subscribe, {"Protocol": "sqs", "Endpoint": arn("x")}),
        ):
            assert refusal(call, TopicArn=topic, **more) == denied
        root.publish(TopicArn=topic, Message="x")
        wrong = connect_sns(server, keys["root"]["id"], "x" * 40)
        assert refusal(wrong.list_topics) == ("SignatureDoesNotMatch", 403)


@pytest.mark.slow
def test_the_command_line_of_aws(server: Broker) -> None:
    """SNS to a FIFO queue, from a shell."""
    variables = {
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def aws(*arguments: str) -> Any:
        said = subprocess.run(
            [sys.executable, "-m", "awscli", "--endpoint-url", server.sqs_url, *arguments],
            env={**os.environ, **variables},
            capture_output=True,
            check=True,
        ).stdout
        return json.loads(said) if said.strip() else None

    fifo = ["--attributes", "FifoQueue=true"]
    url = aws("sqs", "create-queue", "--queue-name", "shell.fifo", *fifo)["QueueUrl"]
    content = ["--attributes", "FifoTopic=true,ContentBasedDeduplication=true"]
    topic = aws("sns", "create-topic", "--name", "bell.fifo", *content)["TopicArn"]
    to = ["--topic-arn", topic]
    endpoint = ["--protocol", "sqs", "--notification-endpoint", arn("shell.fifo")]
    aws("sns", "subscribe", *to, *endpoint, "--attributes", "RawMessageDelivery=true")
    for text in ("one", "one", "two"):
        aws("sns", "publish", *to, "--message", text, "--message-group-id", "g")
    found = aws("sqs", "receive-message", "--queue-url", url, "--max-number-of-messages", "10")
    assert bodies(found) == ["one", "two"]
