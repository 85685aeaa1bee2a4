"""A worker that dies between its work and the acknowledgement, and the next one."""

import sqlite3
from pathlib import Path

import pika

from entrepot.once import Once
from entrepot.testing import Broker


def test_what_is_redelivered_is_done_once(server: Broker, tmp_path: Path) -> None:
    parameters = pika.URLParameters(server.amqp_url)
    database = sqlite3.connect(tmp_path / "shop.db")
    database.execute("create table payments (euros integer)")
    database.commit()

    @Once(database)
    def pay(message_id: str, euros: int) -> None:
        database.execute("insert into payments values (?)", [euros])

    def work(*, dies: bool) -> tuple[bool, bool]:
        """Whether the message came again, and whether there was something to do."""
        connection = pika.BlockingConnection(parameters)
        channel = connection.channel()
        method, properties, body = channel.basic_get("payments")
        done = pay(properties.message_id, int(body))
        if not dies:
            channel.basic_ack(method.delivery_tag)
        connection.close()
        return method.redelivered, done

    connection = pika.BlockingConnection(parameters)
    channel = connection.channel()
    channel.queue_declare("payments", durable=True)
    channel.confirm_delivery()
    named = pika.BasicProperties(message_id="p-1", delivery_mode=2)
    channel.basic_publish("", "payments", b"20", named)
    assert work(dies=True) == (False, True)
    assert work(dies=False) == (True, False)
    assert channel.basic_get("payments") == (None, None, None)
    channel.queue_delete("payments")
    connection.close()
    assert database.execute("select count(*), sum(euros) from payments").fetchone() == (1, 20)
