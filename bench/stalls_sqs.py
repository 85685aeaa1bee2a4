"""Rows of `stalls` about SQS. A row prepares what it needs."""

from __future__ import annotations

import http.client
import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.stalls_clients import MANY, Stomp, stomp_frame
from bench.wire import Refused

if TYPE_CHECKING:
    from bench.stalls import Rows, Stage, Work

_WAIT_S = 120


class Sqs:
    def __init__(self, stage: Stage) -> None:
        self._connection = http.client.HTTPConnection(
            "127.0.0.1", stage.ports["sqs"], timeout=_WAIT_S
        )

    def begin(self, action: str, **parameters: Any) -> None:
        headers = {"X-Amz-Target": f"AmazonSQS.{action}"}
        self._connection.request("POST", "/", json.dumps(parameters).encode(), headers)

    def end(self) -> Any:
        response = self._connection.getresponse()
        data = response.read()
        if response.status != 200:
            raise Refused(f"{response.status} {data[:200]!r}")
        return json.loads(data) if data else None

    def __call__(self, action: str, **parameters: Any) -> Any:
        self.begin(action, **parameters)
        return self.end()

    def queue(self, name: str) -> str:
        return str(self("CreateQueue", QueueName=name)["QueueUrl"])

    def close(self) -> None:
        self._connection.close()


def rows() -> Rows:
    yield "ListQueues, 20,000", _list_queues
    yield "ListDeadLetterSourceQueues, 20,000", _list_sources
    yield "SendMessageBatch, 7 MiB of text", partial(_send_batch, 1_048_500)
    yield "ReceiveMessage, 16 MiB of text", partial(_receive_large, b"x")
    yield "ReceiveMessage, 16 MiB of bytes", partial(_receive_large, b"\xff")
    yield "SendMessage to 2,000 who wait", _awaited
    yield "DeleteQueue with 2,000 who wait", _deleted
    yield "PurgeQueue of 1,000,000, one delayed", _purge
    yield "PurgeQueue of 100,000 delayed", _purge_delayed
    yield "end of 50,000 visibility timeouts", _visibility


def _list_queues(stage: Stage) -> Work:
    stage.declare(stage.queues, 0, stage.amqp)
    sqs = Sqs(stage)
    return lambda: [sqs("ListQueues"), sqs("ListQueues", MaxResults=1_000)]


def _list_sources(stage: Stage) -> Work:
    stage.declare(stage.queues, 0, stage.amqp)
    sqs = Sqs(stage)
    url = sqs.queue("graves")
    return lambda: sqs("ListDeadLetterSourceQueues", QueueUrl=url)


def _send_batch(size: int, stage: Stage) -> Work:
    sqs = Sqs(stage)
    sqs("CreateQueue", QueueName="batches")
    url = sqs.queue("batches")
    sqs("SetQueueAttributes", QueueUrl=url, Attributes={"MaximumMessageSize": "1048576"})
    entries = [{"Id": str(each), "MessageBody": size * "x"} for each in range(7)]

    def work() -> None:
        try:
            sqs("SendMessageBatch", QueueUrl=url, Entries=entries)
        except Refused:
            return
        raise AssertionError("it was not refused: a batch has at most a MiB")

    return work


def _receive_large(byte: bytes, stage: Stage) -> Work:
    name = f"large-{byte.hex()}"
    sqs = Sqs(stage)
    url = sqs.queue(name)
    sender = Stomp(stage)
    length = 16 << 20
    headers = (f"destination:/queue/{name}", f"content-length:{length}", "receipt:sent")
    sender.socket.sendall(stomp_frame("SEND", *headers, body=length * byte))
    sender.expect(b"RECEIPT")
    return lambda: sqs("ReceiveMessage", QueueUrl=url)


def _waiting_ones(stage: Stage, url: str) -> list[Sqs]:
    waiting = [Sqs(stage) for _ in range(2_000)]
    for each in waiting:
        each.begin("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20)
    return waiting


def _awaited(stage: Stage) -> Work:
    sqs = Sqs(stage)
    url = sqs.queue("awaited")
    waiting = _waiting_ones(stage, url)

    def work() -> None:
        Stomp(stage).send("awaited", len(waiting))
        for each in waiting:
            each.end()
            each.close()

    return work


def _deleted(stage: Stage) -> Work:
    sqs = Sqs(stage)
    url = sqs.queue("deleted")
    waiting = _waiting_ones(stage, url)

    def work() -> None:
        sqs("DeleteQueue", QueueUrl=url)
        time.sleep(1)
        for each in waiting:
            each.close()

    return work


def _filled(stage: Stage, name: str, count: int, **attributes: str) -> tuple[Sqs, str]:
    sqs = Sqs(stage)
    url = sqs.queue(name)
    if attributes:
        sqs("SetQueueAttributes", QueueUrl=url, Attributes=attributes)
    Stomp(stage).send(name, count - 1)
    return sqs, url


def _purge(stage: Stage) -> Work:
    sqs, url = _filled(stage, "purged", 1_000_000)
    sqs("SendMessage", QueueUrl=url, MessageBody="later", DelaySeconds=900)
    return lambda: sqs("PurgeQueue", QueueUrl=url)


def _purge_delayed(stage: Stage) -> Work:
    sqs, url = _filled(stage, "delayed", MANY, DelaySeconds="900")
    return lambda: sqs("PurgeQueue", QueueUrl=url)


def _visibility(stage: Stage) -> Work:
    sqs, url = _filled(stage, "visible", MANY // 2)
    until = time.monotonic() + 25
    for _ in range(MANY // 20):
        lasts = max(1, round(until - time.monotonic()))
        sqs("ReceiveMessage", QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=lasts)

    def work() -> None:
        time.sleep(max(0.0, until - time.monotonic()) + 2)

    return work
