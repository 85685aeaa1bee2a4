"""python put.py QUEUE BODY...: declares the queue and puts messages there, each confirmed."""

import os
import sys

import pika

connection = pika.BlockingConnection(pika.URLParameters(os.environ["AMQP_URL"]))
channel = connection.channel()
channel.confirm_delivery()
queue, *bodies = sys.argv[1:]
channel.queue_declare(queue, durable=True)
for body in bodies:
    channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2))
connection.close()
