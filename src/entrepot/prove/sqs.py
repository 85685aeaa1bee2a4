"""Amazon SQS, by boto3: what was received is hidden for a while, and gone when it is deleted."""

from __future__ import annotations

from typing import Any

import boto3
from botocore.config import Config

from entrepot.prove.clients import SOURCE, Delivery, Plain, Setting
from entrepot.prove.semantics import HIDDEN_S, Semantics

_GROUP = "numbers"


def prepare(setting: Setting) -> None:
    attributes = {"VisibilityTimeout": str(HIDDEN_S)}
    if _is_fifo(setting):
        attributes["FifoQueue"] = "true"
    _client(setting).create_queue(QueueName=_name(setting), Attributes=attributes)


def sender(setting: Setting) -> SqsSender:
    return SqsSender(setting)


def receiver(setting: Setting) -> SqsReceiver:
    return SqsReceiver(setting)


def _client(setting: Setting) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=f"http://{setting.address('sqs')}",
        region_name="eu-central-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        config=Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=20),
    )


def _is_fifo(setting: Setting) -> bool:
    return setting.semantics is Semantics.EXACTLY_ONCE


def _name(setting: Setting) -> str:
    return f"{SOURCE}.fifo" if _is_fifo(setting) else SOURCE


class _Queue(Plain):
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._sqs = _client(setting)
        self._url = self._sqs.get_queue_url(QueueName=_name(setting))["QueueUrl"]

    def close(self) -> None:
        self._sqs.close()


class SqsSender(_Queue):
    def send(self, number: int) -> None:
        more = {}
        if _is_fifo(self._setting):
            more = {"MessageGroupId": _GROUP, "MessageDeduplicationId": str(number)}
        self._sqs.send_message(QueueUrl=self._url, MessageBody=str(number), **more)


class SqsReceiver(_Queue):
    def receive(self) -> Delivery | None:
        answer = self._sqs.receive_message(QueueUrl=self._url, WaitTimeSeconds=1)
        for message in answer.get("Messages", []):
            return Delivery(int(message["Body"]), message["ReceiptHandle"])
        return None

    def acknowledge(self, delivery: Delivery) -> None:
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=delivery.token)
