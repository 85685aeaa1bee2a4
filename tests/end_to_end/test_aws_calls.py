"""Every call of SQS and SNS that boto3 knows: served, by boto3 and by the AWS command line, or
refused; as docs/protocols/aws-calls.md says."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import botocore.session
import pytest
from botocore import xform_name

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import REGION, arn, connect
from tests.end_to_end.test_sns import connect_sns
from tests.end_to_end.test_sns_endpoints import Hook, hook

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "aws-calls.md"
VERSIONS = {"sqs": "2012-11-05", "sns": "2010-03-31"}

# The AWS command line, many commands in one process: it takes a second to start.
SHELL = """
import contextlib, io, json, sys
from awscli.clidriver import create_clidriver
for line in sys.stdin:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        status = create_clidriver().main(json.loads(line))
    print(json.dumps([status, output.getvalue()]), flush=True)
"""

Ask = Callable[..., dict[str, Any]]


def states(service: str) -> dict[str, str]:
    """What the page says of each call of a service."""
    part = PAGE.read_text("utf-8").partition(f"## {service.upper()}\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (\w+)", part, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Hook]:
    with hook() as made:
        yield made


@pytest.fixture(scope="module")
def server(endpoint: Hook) -> Iterator[Broker]:
    settings = {"ports.sqs": 0, "sns.endpoints": [endpoint.url("/")]}
    with broker(settings=settings) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.mark.parametrize("service", VERSIONS)
def test_the_page_names_every_call(service: str) -> None:
    known = botocore.session.get_session().get_service_model(service).operation_names
    assert sorted(states(service)) == sorted(known)


@pytest.mark.parametrize("service", VERSIONS)
def test_what_is_not_served_is_refused(server: Broker, service: str) -> None:
    for name, state in states(service).items():
        assert state in ("served", "refused"), name
        if state == "refused":
            form = f"Action={name}&Version={VERSIONS[service]}"
            with pytest.raises(HTTPError) as caught:
                urlopen(server.sqs_url, form.encode())
            assert b"<Code>InvalidAction</Code>" in caught.value.read(), name


def every_call(ask: Ask, endpoint: Hook, mark: str) -> None:
    """Make every call that is served, and look at what it answers."""
    _queues(ask, mark)
    _messages(ask, mark)
    _topics(ask, endpoint, mark)


def _queues(ask: Ask, mark: str) -> None:
    name = f"calls-{mark}"
    url = ask("sqs", "CreateQueue", QueueName=name, Attributes={"VisibilityTimeout": "60"})
    here = {"QueueUrl": url["QueueUrl"]}
    dead = ask("sqs", "CreateQueue", QueueName=f"{name}-dead")["QueueUrl"]
    assert ask("sqs", "GetQueueUrl", QueueName=name) == here
    assert ask("sqs", "ListQueues", QueueNamePrefix=name)["QueueUrls"] == [url["QueueUrl"], dead]
    redrive = {"deadLetterTargetArn": arn(f"{name}-dead"), "maxReceiveCount": 1}
    ask("sqs", "SetQueueAttributes", **here, Attributes={"RedrivePolicy": json.dumps(redrive)})
    told = ask("sqs", "GetQueueAttributes", **here, AttributeNames=["All"])["Attributes"]
    assert (told["VisibilityTimeout"], json.loads(told["RedrivePolicy"])) == ("60", redrive)
    sources = ask("sqs", "ListDeadLetterSourceQueues", QueueUrl=dead)
    assert sources["queueUrls"] == [url["QueueUrl"]]
    ask("sqs", "TagQueue", **here, Tags={"a": "b", "c": "d"})
    ask("sqs", "UntagQueue", **here, TagKeys=["a"])
    assert ask("sqs", "ListQueueTags", **here)["Tags"] == {"c": "d"}
    permission = {"Label": "all", "AWSAccountIds": ["ana"], "Actions": ["*"]}
    ask("sqs", "AddPermission", **here, **permission)
    told = ask("sqs", "GetQueueAttributes", **here, AttributeNames=["Policy"])["Attributes"]
    (statement,) = json.loads(told["Policy"])["Statement"]
    assert (statement["Sid"], statement["Principal"]) == ("all", {"AWS": ["ana"]})
    ask("sqs", "RemovePermission", **here, Label="all")
    told = ask("sqs", "GetQueueAttributes", **here, AttributeNames=["All"])["Attributes"]
    assert "Policy" not in told
    ask("sqs", "SendMessage", **here, MessageBody="to die")
    (message,) = ask("sqs", "ReceiveMessage", **here)["Messages"]
    handle = {"ReceiptHandle": message["ReceiptHandle"]}
    ask("sqs", "ChangeMessageVisibility", **here, **handle, VisibilityTimeout=0)
    source = {"SourceArn": arn(f"{name}-dead")}
    task = ask("sqs", "StartMessageMoveTask", **source, MaxNumberOfMessagesPerSecond=1)
    # It is running or done: a task that is done cannot be cancelled.
    tasks = ask("sqs", "ListMessageMoveTasks", **source)["Results"]
    assert tasks[0]["Status"] in ("RUNNING", "COMPLETED")
    ask("sqs", "CancelMessageMoveTask", TaskHandle=task["TaskHandle"], is_refusal_fine=True)
    ask("sqs", "PurgeQueue", QueueUrl=dead)
    ask("sqs", "DeleteQueue", QueueUrl=dead)


def _messages(ask: Ask, mark: str) -> None:
    here = {"QueueUrl": ask("sqs", "CreateQueue", QueueName=f"batch-{mark}")["QueueUrl"]}
    entries = [{"Id": each, "MessageBody": each} for each in "abc"]
    sent = ask("sqs", "SendMessageBatch", **here, Entries=entries)
    assert [each["Id"] for each in sent["Successful"]] == ["a", "b", "c"]
    came = ask("sqs", "ReceiveMessage", **here, MaxNumberOfMessages=10)["Messages"]
    handles = [{"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"]} for each in came]
    longer = [{**each, "VisibilityTimeout": 60} for each in handles]
    changed = ask("sqs", "ChangeMessageVisibilityBatch", **here, Entries=longer)
    assert len(changed["Successful"]) == 3
    ask("sqs", "DeleteMessage", **here, ReceiptHandle=handles.pop()["ReceiptHandle"])
    assert len(ask("sqs", "DeleteMessageBatch", **here, Entries=handles)["Successful"]) == 2


def _topics(ask: Ask, endpoint: Hook, mark: str) -> None:
    topic = ask("sns", "CreateTopic", Name=f"calls-topic-{mark}")
    name = topic["TopicArn"]
    assert topic in ask("sns", "ListTopics")["Topics"]
    ask("sns", "SetTopicAttributes", **topic, AttributeName="DisplayName", AttributeValue="News")
    assert ask("sns", "GetTopicAttributes", **topic)["Attributes"]["DisplayName"] == "News"
    ask("sns", "TagResource", ResourceArn=name, Tags=[{"Key": "a", "Value": "b"}])
    ask("sns", "UntagResource", ResourceArn=name, TagKeys=["b"])
    assert ask("sns", "ListTagsForResource", ResourceArn=name)["Tags"][0]["Key"] == "a"
    number = len(endpoint.got)
    ask("sns", "Subscribe", **topic, Protocol="http", Endpoint=endpoint.url(f"/{mark}"))
    token = json.loads(endpoint.wait(number)[1])["Token"]
    mine = ask("sns", "ConfirmSubscription", **topic, Token=token)
    rows = ask("sns", "ListSubscriptionsByTopic", **topic)["Subscriptions"]
    assert rows[0]["SubscriptionArn"] == mine["SubscriptionArn"]
    assert rows[0] in ask("sns", "ListSubscriptions")["Subscriptions"]
    raw = {"AttributeName": "RawMessageDelivery", "AttributeValue": "true"}
    ask("sns", "SetSubscriptionAttributes", **mine, **raw)
    told = ask("sns", "GetSubscriptionAttributes", **mine)["Attributes"]
    assert told["RawMessageDelivery"] == "true"
    ask("sns", "Publish", **topic, Message="one")
    batch = [{"Id": each, "Message": each} for each in ("two", "three")]
    ask("sns", "PublishBatch", **topic, PublishBatchRequestEntries=batch)
    endpoint.wait(number + 3)
    assert {body for _, body in endpoint.got[number + 1 :]} == {"one", "two", "three"}
    ask("sns", "Unsubscribe", **mine)
    ask("sns", "DeleteTopic", **topic)


def served() -> set[tuple[str, str]]:
    return {
        (service, name)
        for service in VERSIONS
        for name, state in states(service).items()
        if state == "served"
    }


def test_every_call_by_boto3(server: Broker, endpoint: Hook) -> None:
    clients = {"sqs": connect(server), "sns": connect_sns(server)}
    asked = set()

    def ask(service: str, name: str, is_refusal_fine: bool = False, **given: Any) -> dict[str, Any]:
        asked.add((service, name))
        client = clients[service]
        try:
            answer = getattr(client, xform_name(name))(**given)
        except client.exceptions.ClientError:
            assert is_refusal_fine
            return {}
        del answer["ResponseMetadata"]
        return dict(answer)

    every_call(ask, endpoint, "boto3")
    assert asked == served()


@pytest.mark.slow
def test_every_call_by_the_command_line_of_aws(server: Broker, endpoint: Hook) -> None:
    variables = {
        "AWS_ACCESS_KEY_ID": "any",
        "AWS_SECRET_ACCESS_KEY": "any",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    asked = set()
    shell = subprocess.Popen(
        [sys.executable, "-c", SHELL],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert shell.stdin is not None
    assert shell.stdout is not None

    def ask(service: str, name: str, is_refusal_fine: bool = False, **given: Any) -> dict[str, Any]:
        assert shell.stdin is not None
        assert shell.stdout is not None
        asked.add((service, name))
        command = xform_name(name, "-")
        words = ["--endpoint-url", server.sqs_url, service, command]
        shell.stdin.write(json.dumps([*words, "--cli-input-json", json.dumps(given)]) + "\n")
        shell.stdin.flush()
        status, said = json.loads(shell.stdout.readline())
        assert status == 0 or is_refusal_fine, (words, said)
        return json.loads(said) if said.strip() else {}

    try:
        every_call(ask, endpoint, "shell")
    finally:
        shell.stdin.close()
        shell.wait()
        shell.stdout.close()
    assert asked == served()
