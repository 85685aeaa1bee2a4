"""The older protocol: forms and XML have the structure that JSON has."""

from xml.etree import ElementTree

import pytest

from entrepot.core.steps import finish
from entrepot.wire.sqs import query
from entrepot.wire.sqs.errors import SqsError

NAMESPACE = f"{{{query.NAMESPACE}}}"


def parsed(form: bytes) -> object:
    return query.structure(finish(query.read_form(form)))


def test_forms_have_the_structure_of_json() -> None:
    form = (
        b"QueueUrl=http%3A%2F%2Fx%2Fq&MaxNumberOfMessages=3&AttributeName.2=B&AttributeName.1=A"
        b"&Attribute.1.Name=DelaySeconds&Attribute.1.Value=5&Tag.1.Key=k&Tag.1.Value="
        b"&SendMessageBatchRequestEntry.1.Id=one"
        b"&SendMessageBatchRequestEntry.1.MessageBody=a+b%2B%C3%A9"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.DataType=String"
        b"&SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue=v"
    )
    assert parsed(form) == {
        "QueueUrl": "http://x/q",
        "MaxNumberOfMessages": "3",
        "AttributeNames": ["A", "B"],
        "Attributes": {"DelaySeconds": "5"},
        "Tags": {"k": ""},
        "Entries": [
            {
                "Id": "one",
                "MessageBody": "a b+é",
                "MessageAttributes": {"n": {"DataType": "String", "StringValue": "v"}},
            }
        ],
    }


def test_long_values_are_decoded_in_steps_and_never_cut_within_an_escape() -> None:
    for shift in range(3):
        text = "x" * shift + "é€" * 50_000
        escaped = "".join(f"%{byte:02X}" for byte in text.encode())
        steps = query.read_form(f"Body={escaped}".encode())
        assert len(list(steps)) > 10
        assert finish(query.read_form(f"Body={escaped}".encode())) == {"Body": text}


@pytest.mark.parametrize(
    "form",
    [
        b"a=%ff",
        b"&".join(b"a%d=1" % number for number in range(1_001)),
        b"a=1&a.b=2",
        b"Tag.x.Key=1",
        b"Tag.1.Value=1",
        b"Tag.1=x",
        b"Tag.1.Key.a=x",
        b"AttributeName.-1=x",
    ],
)
def test_what_is_no_request(form: bytes) -> None:
    with pytest.raises(SqsError):
        parsed(form)


def test_answers() -> None:
    result = {
        "Messages": [{"Body": "<a>&\r\né", "Attributes": {"SenderId": "x"}}, {"Body": "b"}],
        "NextToken": "t",
    }
    data = finish(query.answer("ReceiveMessage", result, "id"))
    root = ElementTree.fromstring(bytes(data))
    assert root.tag == f"{NAMESPACE}ReceiveMessageResponse"
    assert [each.text for each in root.iter(f"{NAMESPACE}Body")] == ["<a>&\r\né", "b"]
    assert [each.text for each in root.iter(f"{NAMESPACE}Value")] == ["x"]
    assert root.findtext(f"{NAMESPACE}ResponseMetadata/{NAMESPACE}RequestId") == "id"
    entries = {"Successful": [{"Id": "a"}], "Failed": [{"Id": "b", "SenderFault": True}]}
    root = ElementTree.fromstring(bytes(finish(query.answer("DeleteMessageBatch", entries, "id"))))
    (result_element, _) = root
    tags = [each.tag.removeprefix(NAMESPACE) for each in result_element]
    assert tags == ["DeleteMessageBatchResultEntry", "BatchResultErrorEntry"]
    assert root.findtext(f".//{NAMESPACE}SenderFault") == "true"


def test_an_answer_without_a_result() -> None:
    root = ElementTree.fromstring(bytes(finish(query.answer("DeleteQueue", None, "id"))))
    assert [each.tag.removeprefix(NAMESPACE) for each in root] == ["ResponseMetadata"]


def test_failures() -> None:
    error = SqsError("QueueDoesNotExist", "no <queue> \ud800")
    root = ElementTree.fromstring(query.failure(error, "id"))
    code = root.findtext(f"{NAMESPACE}Error/{NAMESPACE}Code")
    assert code == "AWS.SimpleQueueService.NonExistentQueue"
