"""Messages and queues that live for a while."""

import time

import pika
from stage import Inbox, Stage, until

LONG = "60000"


def message_ttl(stage: Stage) -> None:
    """TTL of a message"""
    queue = stage.queue()
    stage.publish(queue, "short", expiration="500")
    stage.see("waits", stage.count(queue))
    stage.see("is gone", stage.await_count(queue, 0))
    stage.publish(queue, "long", expiration=LONG)
    stage.see_message("keeps its expiration", stage.get(queue))


def queue_ttl(stage: Stage) -> None:
    """TTL of a queue"""
    queue = stage.queue(arguments={"x-message-ttl": 500})
    stage.publish(queue, "one", "two")
    stage.see("there", stage.count(queue))
    stage.see("left", stage.await_count(queue, 0))
    stage.see("got", stage.get(queue))


def both_ttls(stage: Stage) -> None:
    """TTL of both: the shorter one counts"""
    short = stage.queue("short", {"x-message-ttl": 100})
    long = stage.queue("long", {"x-message-ttl": 60000})
    stage.publish(short, "of the queue", expiration=LONG)
    stage.publish(long, "of the message", expiration="100")
    stage.see("short", stage.await_count(short, 0))
    stage.see("long", stage.await_count(long, 0))


def queue_ttl_zero(stage: Stage) -> None:
    """TTL 0 of a queue: only what can be delivered at once"""
    queue = stage.queue(arguments={"x-message-ttl": 0})
    stage.publish(queue, "nobody is there")
    stage.see("count", stage.await_count(queue, 0))
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    stage.publish(queue, "somebody is there")
    stage.see("got", inbox.wait(1))


def message_ttl_zero(stage: Stage) -> None:
    """TTL 0 of a message"""
    queue = stage.queue()
    stage.publish(queue, "nobody is there", expiration="0")
    stage.see("count", stage.await_count(queue, 0))
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    stage.publish(queue, "somebody is there", expiration="0")
    stage.see("got", inbox.wait(1))


def ttl_behind_another(stage: Stage) -> None:
    """TTL is looked at when a message comes to the head"""
    queue = stage.queue()
    stage.publish(queue, "head")
    stage.publish(queue, "behind", expiration="50")
    time.sleep(0.4)
    stage.see("count", stage.count(queue))
    stage.see("got", stage.drain(queue))
    stage.see("count at the end", stage.await_count(queue, 0))


def ttl_and_requeue(stage: Stage) -> None:
    """TTL goes on while a message is out, and is looked at when it comes back"""
    queue = stage.queue()
    stage.publish(queue, "m", expiration="150")
    method, _, _ = stage.get(queue, auto_ack=False)
    time.sleep(0.5)
    stage.channel.basic_nack(method.delivery_tag, requeue=True)
    stage.see("count", stage.await_count(queue, 0))


def ttl_does_not_take_what_is_out(stage: Stage) -> None:
    """TTL does not take what is with a consumer"""
    queue = stage.queue(arguments={"x-message-ttl": 100})
    inbox = Inbox(stage.channel, queue)
    stage.publish(queue, "m")
    inbox.wait(1)
    inbox.rest(0.4)
    stage.see_refusal("can still be acknowledged", lambda _: stage.channel.basic_ack(1))
    stage.see("got", inbox.bodies)


def bad_expirations(stage: Stage) -> None:
    """an expiration that is no number"""
    queue = stage.queue()
    for text in ("abc", "-1", "", "1.5", " 5", "5 ", "99999999999999"):
        properties = pika.BasicProperties(expiration=text)
        stage.see_refusal(
            repr(text),
            lambda channel, properties=properties: channel.basic_publish(
                "", queue, b"", properties
            ),
        )


def queue_expires(stage: Stage) -> None:
    """x-expires takes an unused queue"""
    queue = stage.queue(arguments={"x-expires": 200})
    stage.publish(queue, "does not help")
    stage.see("there", stage.exists(queue))
    # Looking at it is using it, so look seldom.
    time.sleep(1.0)
    stage.see("there later", stage.exists(queue))


def queue_expires_not_in_use(stage: Stage) -> None:
    """x-expires spares a queue with a consumer, and one that is asked for messages"""
    consumed = stage.queue("consumed", {"x-expires": 400})
    asked = stage.queue("asked", {"x-expires": 400})
    inbox = Inbox(stage.channel, consumed)
    for _ in range(10):
        stage.get(asked)
        inbox.rest(0.1)
    stage.see("both there", [stage.exists(consumed), stage.exists(asked)])
    stage.channel.basic_cancel(inbox.tag)
    time.sleep(1.5)
    stage.see("both gone", [stage.exists(consumed), stage.exists(asked)])


def delayed_retry(stage: Stage) -> None:
    """a retry queue: TTL and dead letters bring a message back after a while"""
    retry = stage.name("retry")
    work = stage.queue("work", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": retry})
    stage.queue(
        "retry",
        {
            "x-message-ttl": 200,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": work,
        },
    )
    stage.publish(work, "task", headers={"a": 1}, message_id="m-1")
    for attempt in range(3):
        until(lambda: stage.count(work) == 1)
        got = stage.get(work, auto_ack=False)
        stage.see_message(f"attempt {attempt}", got)
        stage.channel.basic_reject(got[0].delivery_tag, requeue=False)
    until(lambda: stage.count(work) == 1)
    stage.see("at the end", stage.drain(work))
