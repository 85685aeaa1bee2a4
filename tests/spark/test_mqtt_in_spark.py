"""What a device publishes over MQTT is a stream of Spark, and everybody else's as well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
from confluent_kafka import Consumer

from entrepot.testing import Broker
from tests.end_to_end.mqtt_peers import Client
from tests.spark.producing import create
from tests.spark.test_source import run

WAIT_S = 30


def test_a_publish_is_read_by_all(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic("sensors"))
    readings = [b"%d" % number for number in range(100)]
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(f"{topic}-queue", durable=True)
        channel.queue_bind(f"{topic}-queue", "amq.topic", topic)
        with Client(server.mqtt_address, f"{topic}-session", expiry_s=60) as session:
            session.subscribe(topic, qos=1)
        with Client(server.mqtt_address, f"{topic}-device") as device:
            for reading in readings:
                device.publish(topic, reading, 1, UserProperty=("unit", "C"))

        taken = run(spark, server, tmp_path, subscribe=topic, startingOffsets="earliest")
        assert taken.values == sorted(reading.decode() for reading in readings)
        reader = spark.read.format("entrepot").options(
            **{"kafka.bootstrap.servers": server.bootstrap},
            subscribe=topic,
            includeHeaders="true",
        )
        for row in reader.load().collect():
            assert row.key.decode() == topic
            assert ("unit", b"C") in [(pair.key, pair.value) for pair in row.headers]

        settings = {"bootstrap.servers": server.bootstrap, "auto.offset.reset": "earliest"}
        consumer = Consumer(settings | {"group.id": topic})
        consumer.subscribe([topic])
        assert [each.value() for each in consumer.consume(100, WAIT_S)] == readings
        consumer.close()
        queued = channel.consume(f"{topic}-queue", auto_ack=True, inactivity_timeout=WAIT_S)
        assert [next(queued)[2] for _ in readings] == readings
    with Client(server.mqtt_address, f"{topic}-session", clean=False, expiry_s=60) as session:
        assert session.wait_for(100) == readings
