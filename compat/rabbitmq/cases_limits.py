"""Queues that hold so much and no more, and queues that hold some messages dearer."""

import time

import pika
from pika.exceptions import NackError
from stage import Inbox, Stage


def max_length(stage: Stage) -> None:
    """max-length: the head is dropped"""
    queue = stage.queue(arguments={"x-max-length": 3})
    stage.publish(queue, *"abcde")
    stage.see("count", stage.count(queue))
    stage.see("left", stage.drain(queue))


def max_length_counts_what_is_ready(stage: Stage) -> None:
    """max-length: what is with consumers does not count"""
    queue = stage.queue(arguments={"x-max-length": 2})
    stage.publish(queue, "a", "b")
    first = stage.get(queue, auto_ack=False)
    second = stage.get(queue, auto_ack=False)
    stage.publish(queue, "c", "d")
    stage.see("count", stage.count(queue))
    stage.channel.basic_nack(first[0].delivery_tag, requeue=True)
    stage.channel.basic_ack(second[0].delivery_tag)
    stage.see("after the return", stage.drain(queue))


def max_length_zero(stage: Stage) -> None:
    """max-length 0: only what can be delivered at once"""
    queue = stage.queue(arguments={"x-max-length": 0})
    stage.publish(queue, "nobody is there")
    stage.see("count", stage.count(queue))
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    stage.publish(queue, "somebody is there")
    stage.see("got", inbox.wait(1))


def _confirmed(stage: Stage, queue: str, body: str) -> str:
    channel = stage.open()
    channel.confirm_delivery()
    try:
        channel.basic_publish("", queue, body.encode())
    except NackError:
        return "nack"
    finally:
        channel.close()
    return "ack"


def max_length_reject(stage: Stage) -> None:
    """max-length with reject-publish: a full queue refuses, and the publisher is told"""
    queue = stage.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    stage.see("confirms", [_confirmed(stage, queue, body) for body in "abcd"])
    stage.see("first out", stage.get(queue)[2])
    stage.see("room again", _confirmed(stage, queue, "e"))
    stage.see("left", stage.drain(queue))


def max_length_reject_without_confirms(stage: Stage) -> None:
    """max-length with reject-publish, without confirms: dropped silently"""
    queue = stage.queue(arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    stage.publish(queue, *"abcd")
    stage.see("left", stage.drain(queue))


def max_length_reject_one_of_two(stage: Stage) -> None:
    """max-length with reject-publish: one of two queues is full"""
    full = stage.queue("full", {"x-max-length": 0, "x-overflow": "reject-publish"})
    other = stage.queue("other")
    exchange = stage.exchange(kind="fanout")
    for queue in (full, other):
        stage.channel.queue_bind(queue, exchange)
    channel = stage.open()
    channel.confirm_delivery()
    try:
        channel.basic_publish(exchange, "", b"m")
        stage.see("told", "ack")
    except NackError:
        stage.see("told", "nack")
    stage.see("the other has it", stage.drain(other))


def max_length_bytes(stage: Stage) -> None:
    """max-length-bytes: bodies count, the head is dropped"""
    queue = stage.queue(arguments={"x-max-length-bytes": 10})
    stage.publish(queue, "aaaa", "bbbb", "cccc", headers={"much": "more than ten bytes"})
    stage.see("left", stage.drain(queue))
    stage.publish(queue, "dddd", "eleven bytes")
    stage.see("one too large takes all with it", stage.drain(queue))


def max_length_bytes_reject(stage: Stage) -> None:
    """max-length-bytes with reject-publish"""
    queue = stage.queue(arguments={"x-max-length-bytes": 10, "x-overflow": "reject-publish"})
    stage.see("confirms", [_confirmed(stage, queue, body * 4) for body in "abcde"])
    stage.see("left", stage.drain(queue))


def both_limits(stage: Stage) -> None:
    """max-length and max-length-bytes together: whichever is reached first"""
    queue = stage.queue(arguments={"x-max-length": 3, "x-max-length-bytes": 6})
    stage.publish(queue, *"abcd")
    stage.see("by count", stage.count(queue))
    stage.publish(queue, "eeeee")
    stage.see("by bytes", stage.drain(queue))


def priorities(stage: Stage) -> None:
    """priorities: high first, in order among equals, none is 0, too high is the highest"""
    queue = stage.queue(arguments={"x-max-priority": 5})
    for number, priority in enumerate((None, 0, 3, 5, 9, 255, 1, 3, None)):
        stage.publish(queue, f"{number}:{priority}", priority=priority)
    stage.see("order", stage.drain(queue))


def priorities_and_requeue(stage: Stage) -> None:
    """priorities: what comes back goes to its place"""
    queue = stage.queue(arguments={"x-max-priority": 5})
    for body, priority in (("a1", 1), ("b5", 5), ("c1", 1), ("d5", 5)):
        stage.publish(queue, body, priority=priority)
    out = [stage.get(queue, auto_ack=False) for _ in range(3)]
    stage.see("out", [body for _, _, body in out])
    for method, _, _ in reversed(out):
        stage.channel.basic_nack(method.delivery_tag, requeue=True)
    stage.see_message("first", stage.get(queue))
    stage.see("rest", stage.drain(queue))


def priorities_and_max_length(stage: Stage) -> None:
    """priorities with max-length: what is dropped"""
    queue = stage.queue(arguments={"x-max-priority": 5, "x-max-length": 3})
    for body, priority in (("a1", 1), ("b5", 5), ("c0", 0), ("d3", 3), ("e1", 1)):
        stage.publish(queue, body, priority=priority)
    stage.see("left", stage.drain(queue))


def priorities_and_ttl(stage: Stage) -> None:
    """priorities: what has expired is not delivered"""
    queue = stage.queue(arguments={"x-max-priority": 2})
    stage.publish(queue, "high", priority=2)
    stage.publish(queue, "low", priority=0, expiration="50")
    time.sleep(0.4)
    stage.see("count", stage.count(queue), {2: 1})
    stage.see("left", stage.drain(queue))


def no_priorities(stage: Stage) -> None:
    """priorities of messages mean nothing to a queue without them"""
    queue = stage.queue()
    for body, priority in (("a", 1), ("b", 5)):
        stage.publish(queue, body, priority=priority)
    stage.see_message("first", stage.get(queue))


# Since 4 nobody looks at it.
NO_SUCH_MODE = (
    "channel 406 PRECONDITION_FAILED - invalid arg 'x-queue-mode' for queue 'P-q{}' in vhost '/': "
    "\"unsupported queue mode 'fast'\""
)


def bad_arguments(stage: Stage) -> None:
    """arguments of queues that make no sense"""
    numbers = ("x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes",
               "x-max-priority")  # fmt: skip
    wrong = [(name, value) for name in numbers for value in (-1, 0, "5", 2**40, True)]
    wrong += [
        ("x-max-priority", 255),
        ("x-max-priority", 256),
        ("x-overflow", "elsewhere"),
        ("x-overflow", 5),
        ("x-dead-letter-exchange", 5),
        ("x-dead-letter-routing-key", 5),
        ("x-dead-letter-routing-key", "without an exchange"),
        ("x-single-active-consumer", "yes"),
        ("x-queue-type", "pile"),
        ("x-queue-type", 5),
        ("x-queue-mode", "fast"),
        ("x-unknown", "x"),
        ("unknown", "x"),
    ]
    for number, (name, value) in enumerate(wrong):
        queue = stage.name(f"q{number}")
        stage._queues.append(queue)
        stage.see_refusal(
            f"{name}={value!r}",
            lambda channel, queue=queue, name=name, value=value: channel.queue_declare(
                queue, arguments={name: value}
            ),
            {NO_SUCH_MODE.format(number): "fine: DeclareOk"},
        )


def counts(stage: Stage) -> None:
    """message counts in the answer to a declaration and to a purge"""
    queue = stage.queue()
    stage.publish(queue, *"abcd")
    stage.get(queue, auto_ack=False)
    declared = stage.channel.queue_declare(queue, passive=True).method
    stage.see("declared", (declared.message_count, declared.consumer_count))
    stage.see("left after a get", stage.get(queue)[0].message_count)
    stage.see("purged", stage.channel.queue_purge(queue).method.message_count)
    stage.channel.basic_nack(1, requeue=True)
    stage.see("what was out is not purged", stage.drain(queue))
    stage.publish(queue, *"ef")
    stage.see("deleted", stage.channel.queue_delete(queue).method.message_count)


def confirms_in_order(stage: Stage) -> None:
    """confirms: one for each of a thousand messages"""
    queue = stage.queue(durable=True)
    raw = stage.raw().connect()
    raw.confirm()
    raw.publish_many("", queue, 1_000, pika.BasicProperties(delivery_mode=2))
    stage.see("confirmed", raw.confirmed(1_000) == list(range(1, 1_001)))
    stage.see("there", stage.count(queue))
