"""Queues of Amazon SQS with boto3: made, listed, described, changed, labelled, deleted."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.sqs import OLD, arn, attributes_of, connect, new, refusal


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.sqs": 0}) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture(scope="module")
def sqs(server: Broker) -> Any:
    return connect(server)


def test_queues_are_made_found_listed_and_deleted(sqs: Any) -> None:
    """Proves H-01."""
    urls = [sqs.create_queue(QueueName=f"listed-{each}")["QueueUrl"] for each in "cab"]
    assert urls[0].endswith("/000000000000/listed-c")
    assert sqs.create_queue(QueueName="listed-a")["QueueUrl"] == urls[1]
    assert sqs.get_queue_url(QueueName="listed-b")["QueueUrl"] == urls[2]
    assert sqs.list_queues(QueueNamePrefix="listed-")["QueueUrls"] == sorted(urls)
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix="listed-", PaginationConfig={"PageSize": 2}
    )
    assert [page["QueueUrls"] for page in pages] == [sorted(urls)[:2], sorted(urls)[2:]]
    sqs.delete_queue(QueueUrl=urls[0])
    assert sqs.list_queues(QueueNamePrefix="listed-")["QueueUrls"] == sorted(urls[1:])
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nothing")
    assert refusal(sqs.delete_queue, QueueUrl=urls[0]) == (f"{OLD}NonExistentQueue", 400)
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="listed-c")


def test_names_and_queues_that_are_there_already(sqs: Any) -> None:
    for name in ("a b", "x" * 81, "a.b", "ä"):
        assert refusal(sqs.create_queue, QueueName=name)[0] == "InvalidParameterValue"
    assert refusal(sqs.create_queue, QueueName="")[0] == "MissingParameter"
    sqs.create_queue(QueueName="x" * 80, Attributes={"DelaySeconds": "5"})
    sqs.create_queue(QueueName="x" * 80)
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName="x" * 80, Attributes={"DelaySeconds": "6"})


def test_attributes_are_set_and_read(sqs: Any) -> None:
    """Proves H-08."""
    url = new(sqs, VisibilityTimeout="7")
    name = url.rpartition("/")[2]
    found = attributes_of(sqs, url)
    times = found.pop("CreatedTimestamp"), found.pop("LastModifiedTimestamp")
    assert times[0] == times[1]
    assert found == {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "DelaySeconds": "0",
        "MaximumMessageSize": "262144",
        "MessageRetentionPeriod": "345600",
        "QueueArn": arn(name),
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "false",
        "VisibilityTimeout": "7",
    }
    given = {
        "DelaySeconds": "900",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "60",
        "ReceiveMessageWaitTimeSeconds": "20",
        "VisibilityTimeout": "43200",
    }
    sqs.set_queue_attributes(QueueUrl=url, Attributes=given)
    assert attributes_of(sqs, url, *given) == given
    assert attributes_of(sqs, url, "DelaySeconds") == {"DelaySeconds": "900"}
    assert sqs.get_queue_attributes(QueueUrl=url).get("Attributes") is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "long"),
        ("DelaySeconds", "901"),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("MessageRetentionPeriod", "59"),
        ("MessageRetentionPeriod", "1209601"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("RedrivePolicy", "{"),
        ("RedrivePolicy", '{"maxReceiveCount": 3}'),
        ("RedrivePolicy", json.dumps({"maxReceiveCount": 0, "deadLetterTargetArn": arn("x")})),
        ("RedrivePolicy", json.dumps({"maxReceiveCount": 3, "deadLetterTargetArn": "arn:aws:s3"})),
    ],
)
def test_values_that_an_attribute_cannot_have(sqs: Any, name: str, value: str) -> None:
    """Proves H-09, in part."""
    url = new(sqs)
    before = attributes_of(sqs, url)
    said = refusal(sqs.set_queue_attributes, QueueUrl=url, Attributes={name: value})
    assert said == ("InvalidAttributeValue", 400)
    assert refusal(sqs.create_queue, QueueName="never", Attributes={name: value}) == said
    assert attributes_of(sqs, url) == before


def test_attributes_that_there_are_not(sqs: Any) -> None:
    url = new(sqs)
    unknown = {"NoSuch": "1"}
    for call in (sqs.set_queue_attributes,):
        assert refusal(call, QueueUrl=url, Attributes=unknown)[0] == "InvalidAttributeName"
    asked = refusal(sqs.get_queue_attributes, QueueUrl=url, AttributeNames=["NoSuch"])
    assert asked == ("InvalidAttributeName", 400)
    for name, value in (("Policy", "{}"), ("KmsMasterKeyId", "k"), ("RedriveAllowPolicy", "{}")):
        said = refusal(sqs.set_queue_attributes, QueueUrl=url, Attributes={name: value})
        assert said == (f"{OLD}UnsupportedOperation", 400)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "", "KmsMasterKeyId": ""})


def test_tags(sqs: Any) -> None:
    url = sqs.create_queue(QueueName="tagged", tags={"team": "one"})["QueueUrl"]
    sqs.tag_queue(QueueUrl=url, Tags={"stage": "test", "team": "two"})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test", "team": "two"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "nothing"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"stage": "test"}
    many = {str(number): "x" for number in range(50)}
    assert refusal(sqs.tag_queue, QueueUrl=url, Tags=many)[0] == "InvalidParameterValue"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"Label": "a b"}, "InvalidParameterValue"),
        ({"Label": "there"}, "InvalidParameterValue"),
        ({"Actions": ["DeleteQueue"]}, "InvalidParameterValue"),
        ({"Actions": ["SendMessage"] * 7}, "OverLimit"),
        ({"AWSAccountIds": []}, "MissingParameter"),
        ({"AWSAccountIds": [str(number) for number in range(100)]}, "OverLimit"),
    ],
)
def test_permissions_that_are_refused(sqs: Any, change: dict[str, Any], code: str) -> None:
    url = new(sqs)
    right = {"Label": "there", "AWSAccountIds": ["ana"], "Actions": ["SendMessage"]}
    sqs.add_permission(QueueUrl=url, **right)
    given = {**right, "Label": "another", **change}
    assert refusal(sqs.add_permission, QueueUrl=url, **given)[0] == code
    absent = refusal(sqs.remove_permission, QueueUrl=url, Label="another")
    assert absent == ("InvalidParameterValue", 400)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in attributes_of(sqs, url)
