"""What a device publishes over MQTT is a stream of Spark, and everybody else's as well."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pika
from confluent_kafka import Consumer, Producer

from entrepot.testing import Broker
from tests.end_to_end.mqtt_peers import Client
from tests.spark.producing import create
from tests.spark.test_sink import write
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
        with Client(server.mqtt_address, f"{topic}-session", expiry_s=600) as session:
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
    with Client(server.mqtt_address, f"{topic}-session", clean=False, expiry_s=600) as session:
        assert session.wait_for(100) == readings


def test_what_others_write_reaches_a_device(
    spark: Any, server: Broker, new_topic: Callable[[], str]
) -> None:
    """A session that is away gets what a Kafka producer, a publisher of AMQP and Spark have
    written, with its headers."""
    topic = create(server, new_topic("commands"))
    with Client(server.mqtt_address, f"{topic}-device", expiry_s=600) as device:
        device.subscribe(f"{topic}/#", qos=1)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"by Kafka", headers={"unit": b"K"})
    assert producer.flush(WAIT_S) == 0
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(delivery_mode=2, headers={"unit": "A"})
        channel.basic_publish("amq.topic", f"{topic}.valve", b"by AMQP", properties)
    frame = spark.sql(
        "select 'by Spark' as value, array(named_struct('key', 'unit', 'value', binary('S')))"
        " as headers"
    )
    write(frame, server, topic=topic)
    with Client(server.mqtt_address, f"{topic}-device", clean=False, expiry_s=600) as device:
        assert device.wait_for(3) == [b"by Kafka", b"by AMQP", b"by Spark"]
        assert [dict(each.properties.UserProperty)["unit"] for each in device.got] == [*"KAS"]
