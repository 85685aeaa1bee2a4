"""The programs of RabbitMQ's tutorials, written after their descriptions, on pika and aio-pika.

    python -m tests.end_to_end.tutorials HOST:PORT PROGRAM [ARGUMENT...]

Each does what its tutorial says and prints what it does, so that a test can run several of
them as a reader of the tutorials would: in terminals of their own, some of them killed.
A consumer prints a line that begins with `waiting` when it is ready.
"""

import asyncio
import sys
import time
import uuid
from collections.abc import Callable

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

PERSISTENT = pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent)


def say(*words: object) -> None:
    print(*words, flush=True)


def connect(address: str) -> BlockingChannel:
    host, _, port = address.rpartition(":")
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port))).channel()


def consume(channel: BlockingChannel, queue: str, auto_ack: bool = True) -> None:
    """Print what comes, for ever."""

    def callback(
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        _: pika.BasicProperties,
        body: bytes,
    ) -> None:
        say("received", method.routing_key, body.decode())

    channel.basic_consume(queue, callback, auto_ack=auto_ack)
    say("waiting")
    channel.start_consuming()


# --- one: Hello World


def send(channel: BlockingChannel) -> None:
    channel.queue_declare("hello")
    channel.basic_publish("", "hello", b"Hello World!")
    say("sent Hello World!")


def receive(channel: BlockingChannel) -> None:
    channel.queue_declare("hello")
    consume(channel, "hello")


# --- two: work queues


def new_task(channel: BlockingChannel, queue: str, durable: str, *bodies: str) -> None:
    """Each dot in a body is a moment of work."""
    channel.queue_declare(queue, durable=durable == "durable")
    for body in bodies:
        channel.basic_publish(
            "", queue, body.encode(), PERSISTENT if durable == "durable" else None
        )
        say("sent", body)


def worker(
    channel: BlockingChannel,
    queue: str,
    durable: str,
    acks: str,
    prefetch: str,
    until_told: str = "",
) -> None:
    """`acks` is automatic or explicit. A dot takes a tenth of a second, or until all of them are
    told to be over, by a line on stdin."""
    channel.queue_declare(queue, durable=durable == "durable")
    if prefetch != "0":
        channel.basic_qos(prefetch_count=int(prefetch))

    def callback(
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        _: pika.BasicProperties,
        body: bytes,
    ) -> None:
        say("received", body.decode())
        if until_told and b"." in body:
            sys.stdin.readline()
        else:
            time.sleep(0.1 * body.count(b"."))
        say("done", body.decode())
        if acks == "explicit":
            channel.basic_ack(method.delivery_tag)

    channel.basic_consume(queue, callback, auto_ack=acks == "automatic")
    say("waiting")
    channel.start_consuming()


# --- three: publish and subscribe


def emit_log(channel: BlockingChannel, message: str) -> None:
    channel.exchange_declare("logs", "fanout")
    channel.basic_publish("logs", "", message.encode())
    say("sent", message)


def receive_logs(channel: BlockingChannel) -> None:
    channel.exchange_declare("logs", "fanout")
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.queue_bind(queue, "logs")
    consume(channel, queue)


# --- four: routing


def emit_log_direct(channel: BlockingChannel, severity: str, message: str) -> None:
    channel.exchange_declare("direct_logs", "direct")
    channel.basic_publish("direct_logs", severity, message.encode())
    say("sent", severity, message)


def receive_logs_direct(channel: BlockingChannel, *severities: str) -> None:
    channel.exchange_declare("direct_logs", "direct")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for severity in severities:
        channel.queue_bind(queue, "direct_logs", severity)
    consume(channel, queue)


# --- five: topics


def emit_log_topic(channel: BlockingChannel, message: str, *keys: str) -> None:
    channel.exchange_declare("topic_logs", "topic")
    for key in keys:
        channel.basic_publish("topic_logs", key, message.encode())
        say("sent", key, message)


def receive_logs_topic(channel: BlockingChannel, *keys: str) -> None:
    channel.exchange_declare("topic_logs", "topic")
    queue = channel.queue_declare("", exclusive=True).method.queue
    for key in keys:
        channel.queue_bind(queue, "topic_logs", key)
    consume(channel, queue)


# --- six: remote procedure call


def fibonacci(number: int) -> int:
    return number if number < 2 else fibonacci(number - 1) + fibonacci(number - 2)


def rpc_server(channel: BlockingChannel) -> None:
    channel.queue_declare("rpc_queue")
    channel.basic_qos(prefetch_count=1)

    def on_request(
        channel: BlockingChannel,
        method: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        say("asked for", body.decode())
        answer = str(fibonacci(int(body))).encode()
        told = pika.BasicProperties(correlation_id=properties.correlation_id)
        channel.basic_publish("", properties.reply_to, answer, told)
        channel.basic_ack(method.delivery_tag)

    channel.basic_consume("rpc_queue", on_request)
    say("waiting")
    channel.start_consuming()


def rpc_client(channel: BlockingChannel, number: str) -> None:
    """Answers to other questions than its own are none of its business."""
    queue = channel.queue_declare("", exclusive=True).method.queue
    question = str(uuid.uuid4())
    answers: list[str] = []

    def on_response(
        _: BlockingChannel,
        __: pika.spec.Basic.Deliver,
        properties: pika.BasicProperties,
        body: bytes,
    ) -> None:
        if properties.correlation_id == question:
            answers.append(body.decode())

    channel.basic_consume(queue, on_response, auto_ack=True)
    asked = pika.BasicProperties(reply_to=queue, correlation_id=question)
    channel.basic_publish("", "rpc_queue", number.encode(), asked)
    while not answers:
        channel.connection.process_data_events(time_limit=30)
    say("got", answers[0])


# --- seven: publisher confirms


def confirm_each(channel: BlockingChannel, queue: str, count: str) -> None:
    """One at a time, each waited for; and one that reaches no queue."""
    channel.queue_declare(queue)
    channel.confirm_delivery()
    for number in range(int(count)):
        channel.basic_publish("", queue, str(number).encode())
    say("confirmed", count)
    try:
        channel.basic_publish("", queue + " that is not there", b"lost", mandatory=True)
    except UnroutableError:
        say("returned")


def confirm_together(channel: BlockingChannel, queue: str, count: str) -> None:
    """All at once; the answers come when they come."""
    parameters = channel.connection._impl.params
    asyncio.run(_confirm_together(parameters.host, parameters.port, queue, int(count)))


async def _confirm_together(host: str, port: int, queue: str, count: int) -> None:
    import aio_pika  # Here, for the other programs start sooner without it.

    connection = await aio_pika.connect(f"amqp://guest:guest@{host}:{port}/")
    async with connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.declare_queue(queue)
        exchange = channel.default_exchange
        sent = [exchange.publish(aio_pika.Message(b"%d" % each), queue) for each in range(count)]
        confirmed = await asyncio.gather(*sent)
        say("confirmed", sum(each is not None for each in confirmed))


PROGRAMS: tuple[Callable[..., None], ...] = (
    send,
    receive,
    new_task,
    worker,
    emit_log,
    receive_logs,
    emit_log_direct,
    receive_logs_direct,
    emit_log_topic,
    receive_logs_topic,
    rpc_server,
    rpc_client,
    confirm_each,
    confirm_together,
)


def main() -> None:
    address, name, *arguments = sys.argv[1:]
    [program] = [each for each in PROGRAMS if each.__name__ == name]
    channel = connect(address)
    program(channel, *arguments)
    channel.connection.close()


if __name__ == "__main__":
    main()
