"""Some load for the broker that Prometheus scrapes: load.py KAFKA AMQP MQTT SECONDS.

Kafka's, RabbitMQ's and MQTT's clients produce and consume, a few hundred messages a second, on a
thousand topics and queues.
"""

from __future__ import annotations

import sys
import threading
import time

import paho.mqtt.client as paho
import pika
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

COUNT = 1_000  # Topics, and queues.
PAUSE_S = 0.01


def produce(address: str, end_s: float) -> None:
    settings = {"bootstrap.servers": address}
    names = [f"topic-{number}" for number in range(COUNT)]
    admin = AdminClient(settings)  # It ends what it has begun when it goes.
    for done in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        done.result()
    producer = Producer(settings)
    number = 0
    while time.monotonic() < end_s:
        producer.produce(names[number % 10], b"x" * 100)
        producer.poll(0)
        number += 1
        time.sleep(PAUSE_S)
    producer.flush(10)


def consume(address: str, end_s: float) -> None:
    settings = {
        "bootstrap.servers": address,
        "group.id": "readers",
        "auto.offset.reset": "earliest",
        "auto.commit.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 1_000,  # The topics come later.
    }
    consumer = Consumer(settings)
    consumer.subscribe(["^topic-[0-9]$"])
    while time.monotonic() < end_s:
        consumer.poll(0.5)
    consumer.close()


def task(address: str, end_s: float) -> None:
    host, _, port = address.partition(":")
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
    channel = connection.channel()
    for number in range(COUNT):
        channel.queue_declare(f"queue-{number}", durable=True)
    channel.confirm_delivery()
    durable = pika.BasicProperties(delivery_mode=2)
    while time.monotonic() < end_s:
        channel.basic_publish("", "queue-0", b"x" * 100, durable)
        method, _, _ = channel.basic_get("queue-0")
        channel.basic_ack(method.delivery_tag)
        time.sleep(PAUSE_S)
    connection.close()


def sense(address: str, end_s: float) -> None:
    host, _, port = address.partition(":")
    client = paho.Client(paho.CallbackAPIVersion.VERSION2)
    client.connect(host, int(port))
    client.loop_start()
    client.subscribe("sensors/#", 1)
    while time.monotonic() < end_s:
        client.publish("sensors/kitchen", b"21", qos=1)
        time.sleep(PAUSE_S)
    client.disconnect()


def main() -> None:
    kafka, amqp, mqtt, seconds = sys.argv[1:]
    end_s = time.monotonic() + float(seconds)
    works = ((produce, kafka), (consume, kafka), (task, amqp), (sense, mqtt))
    threads = [
        threading.Thread(target=work, args=(address, end_s), daemon=True) for work, address in works
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
