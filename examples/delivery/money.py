"""Money, exactly once: no order is lost, and none is paid twice.

The result of the work is a record, too, and goes into one transaction with the offset: who
reads committed records sees both or neither. What the worker was doing when it died is
aborted, and done by its successor.
"""

import tempfile
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from entrepot.testing import broker
from examples.delivery import crash

TOPIC, PAYMENTS = "orders", "payments"
ORDERS = [f"order {number}" for number in range(crash.COUNT)]


def work(bootstrap: str, _: Path, crash_at: int | None) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "cashier"})
    producer.init_transactions(crash.WAIT_S)
    consumer = crash.subscribed(bootstrap, TOPIC)
    for message in crash.messages(consumer):
        producer.begin_transaction()
        producer.produce(PAYMENTS, message.value())
        producer.flush(crash.WAIT_S)
        if message.offset() == crash_at:
            crash.die()
        following = TopicPartition(TOPIC, message.partition(), message.offset() + 1)
        producer.send_offsets_to_transaction([following], consumer.consumer_group_metadata())
        producer.commit_transaction(crash.WAIT_S)


def payments(bootstrap: str, isolation: str) -> list[str]:
    """All there are, to the end of the partition, which comes as an error."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "auditor",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(PAYMENTS, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(crash.WAIT_S)) is not None and message.error() is None:
        found.append(message.value().decode())
    consumer.close()
    return found


def main() -> None:
    with broker() as server, tempfile.TemporaryDirectory() as directory:
        crash.send(server.bootstrap, TOPIC, ORDERS, acks="all")
        crash.twice(work, server.bootstrap, Path(directory))
        crash.report("orders paid", ORDERS, payments(server.bootstrap, "read_committed"))
        everything = payments(server.bootstrap, "read_uncommitted")
        print(f"who reads uncommitted records sees {len(everything)}")


if __name__ == "__main__":
    main()
