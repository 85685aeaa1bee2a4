"""Queues of type quorum and stream."""

import time

import pika
from stage import Inbox, Stage, until


def quorum(stage: Stage) -> None:
    """quorum: publish, consume, acknowledge, give back"""
    queue = stage.queue("q", {"x-queue-type": "quorum"}, durable=True)
    stage.publish(queue, *"abc", delivery_mode=2)
    stage.see("count", stage.await_count(queue, 3))
    channel = stage.open()
    channel.basic_qos(prefetch_count=10)
    inbox = Inbox(channel, queue)
    stage.see("given", inbox.wait(3))
    channel.basic_ack(0, multiple=True)
    channel.close()
    stage.see("left", stage.await_count(queue, 0))


def quorum_declared(stage: Stage) -> None:
    """quorum: what it cannot be"""
    quorum = {"x-queue-type": "quorum"}
    for number, (what, facts, arguments) in enumerate(
        (
            ("not durable", {}, {}),
            ("exclusive", {"durable": True, "exclusive": True}, {}),
            ("auto-delete", {"durable": True, "auto_delete": True}, {}),
            ("priorities", {"durable": True}, {"x-max-priority": 3}),
            ("delivery limit", {"durable": True}, {"x-delivery-limit": 3}),
            ("delivery limit below 0", {"durable": True}, {"x-delivery-limit": -1}),
            ("max length", {"durable": True}, {"x-max-length": 3}),
        )
    ):
        name = stage.name(f"q{number}")
        stage._queues.append(name)
        stage.see_refusal(
            what,
            lambda channel, name=name, facts=facts, arguments=arguments: channel.queue_declare(
                name, arguments={**quorum, **arguments}, **facts
            ),
        )


def delivery_limit(stage: Stage) -> None:
    """quorum: a delivery limit, and the count of deliveries"""
    graves = stage.queue("graves")
    queue = stage.queue(
        "q",
        {
            "x-queue-type": "quorum",
            "x-delivery-limit": 2,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": graves,
        },
        durable=True,
    )
    stage.publish(queue, "m", delivery_mode=2)
    channel = stage.open()
    channel.basic_qos(prefetch_count=1)
    inbox = Inbox(channel, queue)
    for count in (1, 2, 3):
        inbox.wait(count)
        channel.basic_nack(list(inbox.tags())[-1], requeue=True)
    inbox.rest(0.3)
    counts = [(p.headers or {}).get("x-delivery-count") for _, p, _ in inbox.messages]
    stage.see("deliveries", counts)
    stage.see("count", stage.await_count(graves, 1))
    _, properties, body = stage.get(graves)
    death = properties.headers["x-death"][0]
    stage.see("death", (body, death["reason"], death["count"], death["queue"]))


def classic_by_name(stage: Stage) -> None:
    """classic: said or not said is the same"""
    queue = stage.queue("q", {"x-queue-type": "classic"})
    stage.see_refusal("not said", lambda c: c.queue_declare(queue))
    stage.see_refusal(
        "stream", lambda c: c.queue_declare(queue, arguments={"x-queue-type": "stream"})
    )


def stream(stage: Stage) -> None:
    """stream: read from the beginning, again and again, and from an offset"""
    queue = stage.queue("s", {"x-queue-type": "stream"}, durable=True)
    channel = stage.open()
    channel.confirm_delivery()
    for body in "abcde":
        channel.basic_publish("", queue, body.encode())
    for spec, count in (("first", 5), ("first", 5), (2, 3), (0, 5), (4, 1)):
        reader = stage.open()
        reader.basic_qos(prefetch_count=10)
        inbox = Inbox(reader, queue, arguments={"x-stream-offset": spec})
        inbox.wait(count)
        offsets = [p.headers["x-stream-offset"] for _, p, _ in inbox.messages]
        stage.see(f"from {spec}", (inbox.bodies, offsets))
        reader.basic_ack(0, multiple=True)
        reader.close()


def stream_next(stage: Stage) -> None:
    """stream: from what comes next"""
    queue = stage.queue("s", {"x-queue-type": "stream"}, durable=True)
    channel = stage.open()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"before")
    reader = stage.open()
    reader.basic_qos(prefetch_count=2)
    inbox = Inbox(reader, queue, arguments={"x-stream-offset": "next"})
    time.sleep(0.2)
    for body in "abcd":
        channel.basic_publish("", queue, body.encode())
    stage.see("two at a time", inbox.wait(2))
    reader.basic_ack(0, multiple=True)
    stage.see("then", inbox.wait(4))


SINCE_4 = {
    "channel 406 PRECONDITION_FAILED - consumer prefetch count is not set for "
    "'queue 'P-s' in vhost '/''": "channel 406 PRECONDITION_FAILED - consumer prefetch count is "
    "not set for stream queue 'P-s' in vhost '/'",
    "connection 540 NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues "
    "queue 'P-s' in vhost '/'": "connection 540 NOT_IMPLEMENTED - automatic acknowledgement not "
    "supported by stream queue 'P-s' in vhost '/'",
    "connection 541 INTERNAL_ERROR": "channel 406 PRECONDITION_FAILED - failed consuming from "
    "stream queue 'P-s' in vhost '/': {invalid_offset_arg,'here'}",
    "channel 406 PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'P-s' in vhost "
    "'/': received none but current is the value 'stream' of type 'longstr'": "channel 406 "
    "PRECONDITION_FAILED - inequivalent arg 'x-queue-type' for queue 'P-s' in vhost '/': received "
    "'classic' but current is 'stream'",
}


def stream_mistakes(stage: Stage) -> None:
    """stream: what it cannot do"""
    arguments = {"x-queue-type": "stream"}
    queue = stage.queue("s", arguments, durable=True)

    def with_prefetch(ask: object) -> object:
        def asked(channel: object) -> object:
            channel.basic_qos(prefetch_count=5)
            return ask(channel)

        return asked

    for what, ask in {
        "consume without prefetch": lambda c: c.basic_consume(queue, print),
        "consume with automatic ack": with_prefetch(
            lambda c: c.basic_consume(queue, print, auto_ack=True)
        ),
        "offset that is no word": with_prefetch(
            lambda c: c.basic_consume(queue, print, arguments={"x-stream-offset": "here"})
        ),
        "get": lambda c: c.basic_get(queue),
        "purge": lambda c: c.queue_purge(queue),
        "not durable": lambda c: c.queue_declare(queue + "1", arguments=arguments),
        "exclusive": lambda c: c.queue_declare(
            queue + "2", durable=True, exclusive=True, arguments=arguments
        ),
        "auto-delete": lambda c: c.queue_declare(
            queue + "3", durable=True, auto_delete=True, arguments=arguments
        ),
        "as a classic one": lambda c: c.queue_declare(queue, durable=True),
    }.items():
        stage.see_refusal(what, ask, SINCE_4)


def stream_keeps_properties(stage: Stage) -> None:
    """stream: properties come through"""
    queue = stage.queue("s", {"x-queue-type": "stream"}, durable=True)
    channel = stage.open()
    channel.confirm_delivery()
    made = pika.BasicProperties(
        content_type="text/plain", correlation_id="c", headers={"a": "b"}, message_id="m"
    )
    channel.basic_publish("", queue, b"body", made)
    reader = stage.open()
    reader.basic_qos(prefetch_count=1)
    inbox = Inbox(reader, queue, arguments={"x-stream-offset": "first"})
    inbox.wait(1)
    stage.see_message("message", inbox.messages[0])
    stage.see("is there", until(lambda: stage.exists(queue)))
