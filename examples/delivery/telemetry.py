"""Telemetry, at most once: the next reading is as good as a lost one, but none counts twice.

The sensor sends and does not wait (acks=0, no retries). The worker saves how far it is, then
works: what it was working on when it died is lost.
"""

import tempfile
from pathlib import Path

from entrepot.testing import broker
from examples.delivery import crash

TOPIC = "telemetry"
READINGS = [f"reading {number}" for number in range(crash.COUNT)]


def work(bootstrap: str, results: Path, crash_at: int | None) -> None:
    consumer = crash.subscribed(bootstrap, TOPIC)
    for message in crash.messages(consumer):
        consumer.commit(message, asynchronous=False)
        if message.offset() == crash_at:
            crash.die()
        with results.open("a") as file:
            print(message.value().decode(), file=file)


def main() -> None:
    with broker() as server, tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "readings"
        crash.send(server.bootstrap, TOPIC, READINGS, acks=0, retries=0)
        crash.twice(work, server.bootstrap, results)
        crash.report("readings recorded", READINGS, results.read_text().splitlines())


if __name__ == "__main__":
    main()
