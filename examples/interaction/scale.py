"""What others published of their clusters, for one of their brokers, beside what is seen here.

LinkedIn: 2,100 brokers, 60,000 topics, 1.2 million partitions, 4.5 trillion messages a day.
Netflix: 4,000 brokers, a trillion a day; at its peak 2.2 trillion and 6 PB. Divided by their
brokers, and by the seconds of a day, that is what one broker does.
"""

from __future__ import annotations

import sys
import time

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from entrepot.testing import broker
from examples.interaction.room import table

DAY_S = 86_400
# Name, brokers, partitions, messages a day, bytes of a message.
ROWS = (
    ("LinkedIn", 2_100, 1_200_000, 4.5e12, 100),
    ("Netflix", 4_000, 0, 1.0e12, 100),
    ("Netflix, at its peak", 4_000, 0, 2.2e12, 2_700),
)


def measured(partitions: int, size: int, count: int) -> float:
    """Return how many messages a second were acknowledged as on disk."""
    with broker() as server:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic("scale", partitions)])["scale"].result(60)
        producer = Producer({"bootstrap.servers": server.bootstrap, "acks": "all", "linger.ms": 50})
        body = bytes(size)
        done = [0]

        def delivered(error: object, _: object) -> None:
            assert error is None, error
            done[0] += 1

        begin = time.monotonic()
        for number in range(count):
            while True:
                try:
                    producer.produce(
                        "scale", body, partition=number % partitions, on_delivery=delivered
                    )
                except BufferError:
                    producer.poll(0.1)
                    continue
                break
        producer.flush(120)
        assert done[0] == count
        return count / (time.monotonic() - begin)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    rows = []
    for name, brokers, partitions, messages, size in ROWS:
        each = max(partitions // brokers, 1)
        target = messages / DAY_S / brokers
        seen = measured(each, size, count)
        rows.append(
            (
                name,
                f"{each:,}",
                f"{size:,}",
                f"{target:,.0f}",
                f"{seen:,.0f}",
                f"{seen / target:.1f}",
            )
        )
    table(("of one broker", "partitions", "bytes", "messages/s", "seen here", "times"), rows)


if __name__ == "__main__":
    main()
