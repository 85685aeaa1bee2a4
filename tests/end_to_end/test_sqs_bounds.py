"""Where SQS ends, as one table: a call, and the code of its refusal; signed, with boto3."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.testing import broker
from tests.end_to_end.sqs import OLD, REGION, refusal


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One that signs as it should, and one that has another secret."""
    data_dir = str(tmp_path_factory.mktemp("broker") / "data")
    add = ["users", "add", "ana", "--data-dir", data_dir, "--password-stdin"]
    assert CliRunner().invoke(main, add, input="ana's password\n").exit_code == 0
    made = CliRunner().invoke(main, ["users", "add-key", "ana", "--data-dir", data_dir, "--json"])
    key = json.loads(made.output)
    settings = {"ports.sqs": 0, "security.authentication": "sasl"}
    with broker(Path(data_dir), settings=settings) as server:

        def client(secret: str) -> Any:
            return boto3.client(
                "sqs",
                endpoint_url=server.sqs_url,
                region_name=REGION,
                aws_access_key_id=key["id"],
                aws_secret_access_key=secret,
                # What botocore would refuse is sent all the same.
                config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
            )

        yield {"right": client(key["secret"]), "wrong": client("x" * 40)}
        assert "Traceback" not in server.log_path.read_text()


def batch(*ids: str) -> dict[str, Any]:
    return {"Entries": [{"Id": each, "MessageBody": "x"} for each in ids]}


FINE = ""
# The call, its parameters, the code of the refusal.
TABLE: list[tuple[str, dict[str, Any], str]] = [
    ("send_message", {"MessageBody": "x" * 262_144}, FINE),
    ("send_message", {"MessageBody": "x" * 262_145}, "InvalidParameterValue"),
    ("send_message", {"MessageBody": ""}, "MissingParameter"),
    ("send_message", {"MessageBody": "x", "DelaySeconds": 900}, FINE),
    ("send_message", {"MessageBody": "x", "DelaySeconds": 901}, "InvalidParameterValue"),
    ("receive_message", {"MaxNumberOfMessages": 0}, "InvalidParameterValue"),
    ("receive_message", {"MaxNumberOfMessages": 10, "VisibilityTimeout": 0}, FINE),
    ("receive_message", {"MaxNumberOfMessages": 11}, "InvalidParameterValue"),
    ("receive_message", {"VisibilityTimeout": 43_201}, "InvalidParameterValue"),
    ("receive_message", {"WaitTimeSeconds": 21}, "InvalidParameterValue"),
    ("receive_message", {"AttributeNames": ["NoSuch"]}, "InvalidAttributeName"),
    ("send_message_batch", batch(*map(str, range(10))), FINE),
    ("send_message_batch", batch(*map(str, range(11))), f"{OLD}TooManyEntriesInBatchRequest"),
    ("send_message_batch", batch(), f"{OLD}EmptyBatchRequest"),
    ("send_message_batch", batch("a", "a"), f"{OLD}BatchEntryIdsNotDistinct"),
    ("send_message_batch", batch("a b"), f"{OLD}InvalidBatchEntryId"),
    ("get_queue_attributes", {"AttributeNames": ["NoSuch"]}, "InvalidAttributeName"),
    ("set_queue_attributes", {"Attributes": {"NoSuch": "1"}}, "InvalidAttributeName"),
    ("set_queue_attributes", {"Attributes": {"VisibilityTimeout": "43200"}}, FINE),
    (
        "set_queue_attributes",
        {"Attributes": {"VisibilityTimeout": "43201"}},
        "InvalidAttributeValue",
    ),
    (
        "set_queue_attributes",
        {"Attributes": {"MessageRetentionPeriod": "1209601"}},
        "InvalidAttributeValue",
    ),
    ("delete_message", {"ReceiptHandle": "no handle"}, "ReceiptHandleIsInvalid"),
    ("delete_message", {"ReceiptHandle": "stale"}, FINE),
    (
        "change_message_visibility",
        {"ReceiptHandle": "stale", "VisibilityTimeout": 1},
        f"{OLD}MessageNotInflight",
    ),
    (
        "change_message_visibility",
        {"ReceiptHandle": "fresh", "VisibilityTimeout": 43_201},
        "InvalidParameterValue",
    ),
    ("get_queue_attributes", {"QueueUrl": "http://localhost/0/none"}, f"{OLD}NonExistentQueue"),
]


@pytest.fixture(scope="module")
def url(clients: dict[str, Any]) -> str:
    return str(clients["right"].create_queue(QueueName="bounds")["QueueUrl"])


@pytest.fixture(scope="module")
def handles(clients: dict[str, Any]) -> dict[str, str]:
    """Of a message that was received twice: the first handle is stale."""
    sqs = clients["right"]
    url = sqs.create_queue(QueueName="handles")["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x")
    found = {}
    for name, lasts_s in (("stale", 0), ("fresh", 600)):
        asked = {"QueueUrl": url, "VisibilityTimeout": lasts_s, "WaitTimeSeconds": 10}
        (message,) = sqs.receive_message(**asked)["Messages"]
        found[name] = message["ReceiptHandle"]
    return {**found, "url": url}


@pytest.mark.parametrize(("call", "parameters", "code"), TABLE)
def test_where_a_call_ends(
    clients: dict[str, Any],
    url: str,
    handles: dict[str, str],
    call: str,
    parameters: dict[str, Any],
    code: str,
) -> None:
    """Proves H-02, H-04 and ZZ-6."""
    given = {"QueueUrl": url, **parameters}
    handle = given.get("ReceiptHandle")
    if handle in handles:
        given |= {"ReceiptHandle": handles[handle], "QueueUrl": handles["url"]}
    act = getattr(clients["right"], call)
    if code == FINE:
        assert not act(**given).get("Failed")
    else:
        assert refusal(act, **given) == (code, 400)


def test_a_wrong_signature(clients: dict[str, Any], url: str) -> None:
    said = refusal(clients["wrong"].send_message, QueueUrl=url, MessageBody="x")
    assert said == ("SignatureDoesNotMatch", 403)
