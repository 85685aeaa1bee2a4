"""What is not to last costs no disk."""

from __future__ import annotations

from pathlib import Path

import pika

from entrepot.testing import broker

COUNT, SIZE = 200, 500
TRANSIENT, PERSISTENT = 1, 2


def written(pid: int) -> int:
    """Return how many bytes a process has written, confirms included."""
    facts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(facts["wchar"])


def test_transient_messages_are_cheaper() -> None:
    """Proves A-05: a queue that is to last is written and synced, another is neither."""
    costs = {}
    with (
        broker() as server,
        pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection,
    ):
        channel = connection.channel()
        channel.confirm_delivery()
        for mode in (TRANSIENT, PERSISTENT):
            queue = f"work-{mode}"
            channel.queue_declare(queue, durable=mode == PERSISTENT)
            before = written(server.pid)
            for _ in range(COUNT):
                properties = pika.BasicProperties(delivery_mode=mode)
                channel.basic_publish("", queue, bytes(SIZE), properties)
            costs[mode] = written(server.pid) - before
            assert channel.queue_declare(queue, passive=True).method.message_count == COUNT
    assert costs[PERSISTENT] > COUNT * SIZE
    assert costs[TRANSIENT] < costs[PERSISTENT] / 4, costs
