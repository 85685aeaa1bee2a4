"""The protocol of SNS: forms with members and entries, and answers in XML."""

import pytest

from entrepot.core.steps import finish
from entrepot.wire.sqs import sns
from entrepot.wire.sqs.errors import SqsError

BATCH = "PublishBatchRequestEntries"


def test_members_are_lists_and_entries_maps() -> None:
    found = sns.structure(
        {
            "TopicArn": "arn",
            "TagKeys.member.2": "b",
            "TagKeys.member.1": "a",
            "Attributes.entry.1.key": "FifoTopic",
            "Attributes.entry.1.value": "true",
            "PublishBatchRequestEntries.member.1.Id": "1",
            f"{BATCH}.member.1.MessageAttributes.entry.1.Name": "kind",
            f"{BATCH}.member.1.MessageAttributes.entry.1.Value.DataType": "String",
        }
    )
    assert found == {
        "TopicArn": "arn",
        "TagKeys": ["a", "b"],
        "Attributes": {"FifoTopic": "true"},
        "PublishBatchRequestEntries": [
            {"Id": "1", "MessageAttributes": {"kind": {"DataType": "String"}}}
        ],
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"a.entry.1.other": "x"},
        {"a.entry.1": "x"},
        {"a.entry.x.key": "x"},
        {"a.member.-1": "x"},
        {"a.member.99999": "x"},
        {"a": "x", "a.member.1": "y"},
    ],
)
def test_forms_that_are_wrong(fields: dict[str, str]) -> None:
    with pytest.raises(SqsError):
        sns.structure(fields)


def test_an_answer() -> None:
    result = {"Topics": [{"TopicArn": "a<b"}], "Attributes": {"k": "v&"}, "Is": True}
    assert bytes(finish(sns.answer("X", result, "id"))) == (
        b'<?xml version="1.0"?><XResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/">'
        b"<XResult><Topics><member><TopicArn>a&lt;b</TopicArn></member></Topics>"
        b"<Attributes><entry><key>k</key><value>v&amp;</value></entry></Attributes>"
        b"<Is>true</Is></XResult>"
        b"<ResponseMetadata><RequestId>id</RequestId></ResponseMetadata></XResponse>"
    )


def test_errors_have_the_names_of_sns() -> None:
    error = SqsError("EmptyBatchRequest", "none")
    assert b"<Code>EmptyBatchRequest</Code>" in sns.failure(error, "id")
    assert sns.code_of(SqsError("AccessDenied", "no")) == "AuthorizationError"
    assert sns.code_of(SqsError("MissingParameter", "no")) == "InvalidParameter"
