"""E-mail, at least once: every one is sent, and a second copy does no harm.

The sender asks for an acknowledgement and repeats what got none (acks=all, retries as by
default). The worker works, then saves how far it is: what it had done but not saved when it
died is done again.
"""

import tempfile
from pathlib import Path

from entrepot.testing import broker
from examples.delivery import crash

TOPIC = "email"
LETTERS = [f"letter {number}" for number in range(crash.COUNT)]


def work(bootstrap: str, results: Path, crash_at: int | None) -> None:
    consumer = crash.subscribed(bootstrap, TOPIC)
    for message in crash.messages(consumer):
        with results.open("a") as file:
            print(message.value().decode(), file=file)
        if message.offset() == crash_at:
            crash.die()
        consumer.commit(message, asynchronous=False)


def main() -> None:
    with broker() as server, tempfile.TemporaryDirectory() as directory:
        results = Path(directory) / "outbox"
        crash.send(server.bootstrap, TOPIC, LETTERS, acks="all")
        crash.twice(work, server.bootstrap, results)
        crash.report("letters sent", LETTERS, results.read_text().splitlines())


if __name__ == "__main__":
    main()
