"""What the examples share: a client of Amazon SQS for a broker on this machine."""

from typing import Any

import boto3


def connect(url: str) -> Any:
    """A client. Without users a broker takes any key."""
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
