"""Publish with pika and confirms for twenty seconds, and note what was confirmed; or look for it.

python publish.py HOST:PORT FILE
python publish.py --drain HOST:PORT FILE...
"""

import sys
import time
from pathlib import Path

import pika

QUEUE = "work"
SECONDS = 20.0
PERSISTENT = pika.BasicProperties(delivery_mode=2)


def connect(address: str) -> pika.BlockingConnection:
    url = f"amqp://guest:guest@{address}/?socket_timeout=5&blocked_connection_timeout=30"
    return pika.BlockingConnection(pika.URLParameters(url))


def publish(address: str, file: Path) -> None:
    until_s, number = time.monotonic() + SECONDS, 0
    with file.open("w") as confirmed:
        while time.monotonic() < until_s:
            try:
                with connect(address) as connection:
                    channel = connection.channel()
                    channel.queue_declare(QUEUE, durable=True)
                    channel.confirm_delivery()
                    while time.monotonic() < until_s:
                        number += 1
                        body = f"{file.name}:{number}"
                        channel.basic_publish("", QUEUE, body.encode(), PERSISTENT, mandatory=True)
                        print(body, file=confirmed, flush=True)
            except (pika.exceptions.AMQPError, OSError) as error:
                print(repr(error), flush=True)
                time.sleep(0.2)


def drain(address: str, files: list[Path]) -> None:
    confirmed = {line for file in files for line in file.read_text().split()}
    found = set()
    with connect(address) as connection:
        channel = connection.channel()
        for method, _, body in channel.consume(QUEUE, auto_ack=True, inactivity_timeout=3.0):
            if method is None:
                break
            found.add(body.decode())
        channel.cancel()
    lost = confirmed - found
    print(f"{len(confirmed)} confirmed, {len(found)} in the queue, {len(lost)} lost")
    assert confirmed, "nothing was confirmed"
    assert not lost, sorted(lost)[:10]


if __name__ == "__main__":
    if sys.argv[1] == "--drain":
        drain(sys.argv[2], [Path(each) for each in sys.argv[3:]])
    else:
        publish(sys.argv[1], Path(sys.argv[2]))
