"""Claim check: a payload that is too large for a message is stored, and a reference is sent.

The store is a directory here; it may be any place that both sides reach. The payload is stored
before the reference is sent, and deleted after the message was: so whoever receives a reference
finds what it means. The reference has the SHA-256 of the payload, so that a wrong one is noticed.
"""

import json
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from entrepot.testing import broker
from examples.sqs.client import connect

MIB = 1024 * 1024
INLINE_MAX = 256 * 1024  # What a message may have.


class ClaimCheck:
    """A queue for payloads of any size."""

    def __init__(self, sqs: Any, queue_url: str, store: Path) -> None:
        self._sqs, self._url, self._store = sqs, queue_url, store

    def send(self, payload: bytes) -> None:
        name = sha256(payload).hexdigest()
        (self._store / name).write_bytes(payload)
        reference = json.dumps({"name": name, "size": len(payload)})
        self._sqs.send_message(QueueUrl=self._url, MessageBody=reference)

    def receive(self) -> bytes:
        """Receive one payload, and delete it."""
        (message,) = self._sqs.receive_message(QueueUrl=self._url, WaitTimeSeconds=10)["Messages"]
        name = json.loads(message["Body"])["name"]
        payload = (self._store / name).read_bytes()
        if sha256(payload).hexdigest() != name:
            raise ValueError(f"{name} is not what was sent")
        self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        (self._store / name).unlink()
        return payload


def main() -> None:
    with broker(settings={"ports.sqs": 0}) as server, tempfile.TemporaryDirectory() as name:
        sqs, store = connect(server.sqs_url), Path(name)
        url = sqs.create_queue(QueueName="large")["QueueUrl"]
        try:
            sqs.send_message(QueueUrl=url, MessageBody="x" * (INLINE_MAX + 1))
        except ClientError as refused:
            print(f"{INLINE_MAX + 1} bytes in a message: {refused.response['Error']['Code']}")
        queue = ClaimCheck(sqs, url, store)
        sent = bytes(range(256)) * (20 * MIB // 256)
        queue.send(sent)
        print(f"{len(sent)} bytes stored, a reference sent")
        received = queue.receive()
        print(f"{len(received)} bytes received, {'the same' if received == sent else 'others'}")
        print(f"{len([*store.iterdir()])} payloads are left in the store")


if __name__ == "__main__":
    main()
