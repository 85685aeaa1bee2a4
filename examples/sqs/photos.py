"""Photos: the web server stores a photo and queues a link to it, and workers process them.

The pool of workers grows with the queue: one for ten links that wait, and at least one. One worker
is killed while it has a photo. It has not deleted the message, so that is visible again after the
visibility timeout, and another worker does the photo.
"""

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path

from entrepot.testing import broker
from examples.sqs.client import connect

PHOTOS = 30
SIDE = 32  # Pixels.
LINKS_PER_WORKER = 10
VISIBILITY_S = 2
VICTIM = 7  # The photo at which a worker dies.


def upload(directory: Path, number: int) -> Path:
    """Store a photo: a portable graymap, each of another gray."""
    path = directory / f"photo-{number:02}.pgm"
    path.write_bytes(b"P5 %d %d 255\n" % (SIDE, SIDE) + bytes([number] * SIDE * SIDE))
    return path


def process(path: Path) -> None:
    """Make a negative beside the photo. Written under another name first: it is whole, or not
    there."""
    head, _, pixels = path.read_bytes().partition(b"\n")
    unfinished = path.with_suffix(f".{os.getpid()}")
    unfinished.write_bytes(head + b"\n" + bytes(255 - each for each in pixels))
    unfinished.rename(path.with_suffix(".negative"))


def work(sqs_url: str, queue_url: str, morgue: Path) -> None:
    """Process photos until none has come for a while."""
    sqs = connect(sqs_url)
    while True:
        answer = sqs.receive_message(QueueUrl=queue_url, WaitTimeSeconds=VISIBILITY_S + 1)
        for message in answer.get("Messages", ()):
            path = Path(message["Body"])
            if path.stem == f"photo-{VICTIM:02}" and not morgue.exists():
                morgue.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            process(path)
            sqs.delete_message(QueueUrl=queue_url, ReceiptHandle=message["ReceiptHandle"])
        if not answer.get("Messages"):
            return


def main() -> None:
    context = multiprocessing.get_context("spawn")
    with broker(settings={"ports.sqs": 0}) as server, tempfile.TemporaryDirectory() as name:
        directory, sqs = Path(name), connect(server.sqs_url)
        queue = {"QueueName": "photos", "Attributes": {"VisibilityTimeout": str(VISIBILITY_S)}}
        url = sqs.create_queue(**queue)["QueueUrl"]
        photos = [upload(directory, number) for number in range(PHOTOS)]
        for start in range(0, PHOTOS, 10):
            links = [
                {"Id": path.stem, "MessageBody": str(path)} for path in photos[start : start + 10]
            ]
            sqs.send_message_batch(QueueUrl=url, Entries=links)
        count = "ApproximateNumberOfMessages"
        asked = {"QueueUrl": url, "AttributeNames": [count]}
        waiting = int(sqs.get_queue_attributes(**asked)["Attributes"][count])
        print(f"{waiting} links wait")
        pool = []
        for _ in range(max(1, -(-waiting // LINKS_PER_WORKER))):
            arguments = (server.sqs_url, url, directory / "morgue")
            pool.append(context.Process(target=work, args=arguments))
            pool[-1].start()
        print(f"{len(pool)} workers")
        deadline = time.monotonic() + 60
        while any(each.is_alive() for each in pool) and time.monotonic() < deadline:
            time.sleep(0.1)
        killed = sum(each.exitcode == -signal.SIGKILL for each in pool)
        done = sum(path.with_suffix(".negative").exists() for path in photos)
        print(f"{killed} worker was killed with a photo in its hands")
        print(f"{done} photos are done, that one too")


if __name__ == "__main__":
    main()
