"""Clients of Amazon SQS for tests."""

from collections.abc import Callable
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from entrepot.testing import Broker

REGION = "eu-central-1"
WAIT_S = 20
OLD = "AWS.SimpleQueueService."  # What many codes begin with.
_numbers = count()


def connect(
    server: Broker, *, user: str = "any", password: str | None = None, secret: str = "any"
) -> Any:
    """A client that tries once: what a test sees is what the broker said."""
    return boto3.client(
        "sqs",
        endpoint_url=server.sqs_url,
        region_name=REGION,
        aws_access_key_id=user,
        aws_secret_access_key=secret,
        aws_session_token=password,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=60),
    )


def refusal(call: Callable[..., object], **parameters: Any) -> tuple[str, int]:
    """The code and the status with which a call is refused."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    answer = caught.value.response
    return answer["Error"]["Code"], answer["ResponseMetadata"]["HTTPStatusCode"]


def bodies(answer: dict[str, Any]) -> list[str]:
    return [message["Body"] for message in answer.get("Messages", [])]


def arn(name: str) -> str:
    return f"arn:aws:sqs:{REGION}:000000000000:{name}"


def new(sqs: Any, **attributes: str) -> str:
    """The URL of a new queue."""
    name = f"queue-{next(_numbers)}"
    return sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]


def attributes_of(sqs: Any, url: str, *names: str) -> dict[str, str]:
    asked = list(names) or ["All"]
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=asked).get("Attributes", {})
