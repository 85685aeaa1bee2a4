"""What becomes of messages that are rejected, expire, or do not fit."""

import time

from stage import Inbox, Stage


def _pair(stage: Stage, **arguments: object) -> tuple[str, str]:
    """A queue, and the one its dead letters go to by way of an exchange."""
    exchange = stage.exchange("dead", "fanout")
    graves = stage.queue("graves")
    stage.channel.queue_bind(graves, exchange)
    options = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    queue = stage.queue("q", {"x-dead-letter-exchange": exchange, **options})
    return queue, graves


def rejected(stage: Stage) -> None:
    """dead letters: rejected"""
    queue, graves = _pair(stage)
    stage.publish(queue, "m", headers={"kept": [1, "two"]}, content_type="text/plain", priority=3)
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.await_count(graves, 1)
    stage.see_message("in the grave", stage.get(graves))
    stage.see("left", stage.drain(queue))


def several_rejected(stage: Stage) -> None:
    """dead letters: many at once keep their order"""
    queue, graves = _pair(stage)
    stage.publish(queue, *"abcdef")
    for _ in range(5):
        method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
    stage.see("count", stage.await_count(graves, 5))
    stage.see("in the grave", stage.drain(graves))
    stage.see("left", stage.drain(queue))


def expired_by_queue(stage: Stage) -> None:
    """dead letters: expired by the queue"""
    queue, graves = _pair(stage, message_ttl=100)
    stage.publish(queue, *"abc")
    stage.see("count", stage.await_count(graves, 3))
    stage.see_message("in the grave", stage.get(graves))
    stage.see("order", stage.drain(graves))


def expired_by_message(stage: Stage) -> None:
    """dead letters: expired by the message, which then loses its expiration"""
    queue, graves = _pair(stage)
    stage.publish(queue, "m", expiration="100")
    stage.see("count", stage.await_count(graves, 1))
    stage.see_message("in the grave", stage.get(graves))


def expired_without_consumer(stage: Stage) -> None:
    """dead letters: TTL 0 and nobody there"""
    queue, graves = _pair(stage, message_ttl=0)
    stage.publish(queue, "m")
    stage.see("count", stage.await_count(graves, 1))
    stage.see_message("in the grave", stage.get(graves))


def too_many(stage: Stage) -> None:
    """dead letters: maxlen, the head"""
    queue, graves = _pair(stage, max_length=2)
    stage.publish(queue, *"abcd")
    stage.see("count", stage.await_count(graves, 2))
    stage.see_message("in the grave", stage.get(graves))
    stage.see("rest", stage.drain(graves))
    stage.see("left", stage.drain(queue))


def reject_publish_dlx(stage: Stage) -> None:
    """dead letters: reject-publish-dlx, the newest"""
    queue, graves = _pair(stage, max_length=2, overflow="reject-publish-dlx")
    stage.publish(queue, *"abcd")
    stage.see("count", stage.await_count(graves, 2))
    stage.see_message("in the grave", stage.get(graves))
    stage.see("rest", stage.drain(graves))
    stage.see("left", stage.drain(queue))


def reject_publish_has_none(stage: Stage) -> None:
    """dead letters: none of what reject-publish refuses"""
    queue, graves = _pair(stage, max_length=1, overflow="reject-publish")
    stage.publish(queue, *"abcd")
    time.sleep(0.2)
    stage.see("in the grave", stage.drain(graves))


def other_key(stage: Stage) -> None:
    """dead letters: under another routing key"""
    exchange = stage.exchange("dead", "direct")
    queue = stage.queue(
        "q", {"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": "late"}
    )
    graves = {}
    for key in (queue, "late"):
        graves[key] = stage.queue(f"graves-{'own' if key == queue else key}")
        stage.channel.queue_bind(graves[key], exchange, key)
    stage.publish(queue, "m", headers={"CC": ["elsewhere"]})
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.see("count", stage.await_count(graves["late"], 1))
    stage.see_message("late", stage.get(graves["late"]))
    stage.see("own", stage.drain(graves[queue]))


def copies(stage: Stage) -> None:
    """dead letters: under all their keys when they had copies (CC)"""
    exchange = stage.exchange("dead", "direct")
    queue = stage.queue("q", {"x-dead-letter-exchange": exchange})
    graves = {}
    for key in (queue, "cc", "bcc"):
        graves[key] = stage.queue(f"graves-{key[-3:]}")
        stage.channel.queue_bind(graves[key], exchange, key)
    stage.publish(queue, "m", headers={"CC": ["cc"], "BCC": ["bcc"]})
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.await_count(graves[queue], 1)
    for key in (queue, "cc"):
        stage.see_message(key[-3:], stage.get(graves[key]))
    stage.see("blind copies", stage.count(graves["bcc"]), {1: 0})


def through_an_exchange(stage: Stage) -> None:
    """dead letters: the exchange and the keys that a message came by are told"""
    exchange = stage.exchange("x", "topic")
    queue, graves = _pair(stage)
    stage.channel.queue_bind(queue, exchange, "a.#")
    stage.publish("a.b.c", "m", exchange=exchange, headers={"CC": ["a.d"]})
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.await_count(graves, 1)
    stage.see_message("in the grave", stage.get(graves))


def twice(stage: Stage) -> None:
    """dead letters: of dead letters, and what is counted"""
    exchange = stage.exchange("dead", "fanout")
    second = stage.queue("second", {"x-dead-letter-exchange": "", "x-message-ttl": 100,
                                    "x-dead-letter-routing-key": stage.name("end")})  # fmt: skip
    stage.channel.queue_bind(second, exchange)
    end = stage.queue("end")
    first = stage.queue("first", {"x-dead-letter-exchange": exchange, "x-max-length": 1})
    stage.publish(first, "m", "n")
    stage.see("count", stage.await_count(end, 1))
    stage.see_message("at the end", stage.get(end))


def cycle(stage: Stage) -> None:
    """dead letters: a circle without a rejection in it is cut"""
    second = stage.name("second")
    first = stage.queue("first", {"x-dead-letter-exchange": "", "x-message-ttl": 100,
                                  "x-dead-letter-routing-key": second})  # fmt: skip
    stage.queue("second", {"x-dead-letter-exchange": "", "x-message-ttl": 100,
                           "x-dead-letter-routing-key": first})  # fmt: skip
    stage.publish(first, "m")
    time.sleep(1.0)
    stage.see("left", [stage.drain(first), stage.drain(second)])


def cycle_to_itself(stage: Stage) -> None:
    """dead letters: a queue that is its own grave"""
    queue = stage.name("q")
    stage.queue(
        "q",
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue, "x-message-ttl": 200},
    )
    stage.publish(queue, "rejected", "expired")
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    time.sleep(0.1)
    stage.see("soon", stage.count(queue))
    stage.see("later", stage.await_count(queue, 0))


def rejected_in_a_cycle(stage: Stage) -> None:
    """dead letters: a rejection keeps a circle going"""
    queue = stage.name("q")
    stage.queue("q", {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
    stage.publish(queue, "m")
    for _ in range(3):
        stage.await_count(queue, 1)
        method, _, _ = stage.get(queue, auto_ack=False)
        stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.see("count", stage.await_count(queue, 1))
    stage.see_message("after three", stage.get(queue))


def nowhere(stage: Stage) -> None:
    """dead letters: to an exchange that is not there, or not bound, are dropped"""
    missing = stage.queue("missing", {"x-dead-letter-exchange": stage.name("nothing")})
    unbound = stage.queue("unbound", {"x-dead-letter-exchange": stage.exchange("dead", "fanout")})
    for queue in (missing, unbound):
        stage.publish(queue, "m")
        method, _, _ = stage.get(queue, auto_ack=False)
        stage.channel.basic_reject(method.delivery_tag, requeue=False)
        stage.see("left", stage.await_count(queue, 0))


def not_when_deleted(stage: Stage) -> None:
    """dead letters: none when a queue is purged or deleted"""
    queue, graves = _pair(stage)
    stage.publish(queue, *"abc")
    stage.channel.queue_purge(queue)
    stage.publish(queue, *"def")
    stage.channel.queue_delete(queue)
    time.sleep(0.2)
    stage.see("in the grave", stage.drain(graves))


def rejected_by_consumer(stage: Stage) -> None:
    """dead letters: of a consumer, which goes on"""
    queue, graves = _pair(stage)
    stage.channel.basic_qos(prefetch_count=1)
    inbox = Inbox(stage.channel, queue)
    stage.publish(queue, *"abc")
    for count in (1, 2, 3):
        inbox.wait(count)
        stage.channel.basic_reject(list(inbox.tags())[-1], requeue=False)
    stage.see("given", inbox.bodies)
    stage.see("count", stage.await_count(graves, 3))
    stage.see("in the grave", stage.drain(graves))


def rejected_with_expiration(stage: Stage) -> None:
    """dead letters: a rejected message keeps its delivery mode and loses its expiration"""
    queue, graves = _pair(stage)
    stage.publish(queue, "m", delivery_mode=2, expiration="60000", reply_to="r", type="t")
    method, _, _ = stage.get(queue, auto_ack=False)
    stage.channel.basic_reject(method.delivery_tag, requeue=False)
    stage.await_count(graves, 1)
    stage.see_message("in the grave", stage.get(graves))
