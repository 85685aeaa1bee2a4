"""Messages on their way out: pushed, pulled, acknowledged, given back."""

import time

from stage import Inbox, Stage, until


def get(stage: Stage) -> None:
    """get: from an empty queue, and what is told of a message"""
    queue = stage.queue()
    stage.see("empty", stage.get(queue))
    stage.publish(queue, "a", "b", "c")
    method, _, body = stage.get(queue, auto_ack=False)
    stage.see("first", (method.delivery_tag, method.message_count, method.redelivered, body))
    method, _, body = stage.get(queue)
    stage.see("second", (method.delivery_tag, method.message_count, method.redelivered, body))


def unknown_tags(stage: Stage) -> None:
    """acknowledgements of tags that are not out"""
    queue = stage.queue()
    stage.publish(queue, *"abcdefghij")

    def twice(channel: object) -> None:
        channel.basic_get(queue)
        channel.basic_ack(1)
        channel.basic_ack(1)

    def automatic(channel: object) -> None:
        channel.basic_get(queue, auto_ack=True)
        channel.basic_ack(1)

    def many(channel: object) -> None:
        channel.basic_get(queue)
        channel.basic_ack(5, multiple=True)

    def again(channel: object) -> None:
        channel.basic_get(queue)
        channel.basic_ack(1, multiple=True)
        channel.basic_ack(1, multiple=True)

    for what, ask in {
        "ack": lambda c: c.basic_ack(99),
        "nack": lambda c: c.basic_nack(99),
        "reject": lambda c: c.basic_reject(99),
        "ack 0": lambda c: c.basic_ack(0),
        "ack 0 multiple of nothing": lambda c: c.basic_ack(0, multiple=True),
        "ack multiple of nothing": lambda c: c.basic_ack(3, multiple=True),
        "twice": twice,
        "with automatic ones": automatic,
        "multiple beyond the last": many,
        "multiple twice": again,
    }.items():
        stage.see_refusal(what, ask)
    stage.see("what was not acknowledged is back", until(lambda: stage.count(queue) >= 7))
    stage.see("left", stage.drain(queue))


def ack_multiple(stage: Stage) -> None:
    """acknowledgements of many at once"""
    queue = stage.queue()
    stage.publish(queue, *"abcdef")
    channel = stage.open()
    for _ in range(6):
        channel.basic_get(queue)
    channel.basic_ack(2)
    channel.basic_ack(4, multiple=True)
    channel.close()
    stage.see("up to four", stage.await_count(queue, 2))
    channel = stage.open()
    for _ in range(2):
        channel.basic_get(queue)
    channel.basic_ack(0, multiple=True)
    channel.close()
    stage.see("all", stage.await_count(queue, 0))


def requeue_order(stage: Stage) -> None:
    """what is given back goes to its place"""
    queue = stage.queue()
    stage.publish(queue, *"abcdefgh")
    out = [stage.get(queue, auto_ack=False) for _ in range(6)]
    tags = {body: method.delivery_tag for method, _, body in out}
    stage.channel.basic_nack(tags["e"], requeue=True)
    stage.channel.basic_reject(tags["b"], requeue=True)
    stage.channel.basic_nack(tags["d"], requeue=True)
    stage.channel.basic_ack(tags["a"])
    again = [stage.get(queue, auto_ack=True) for _ in range(5)]
    stage.see("order", [(body, method.redelivered) for method, _, body in again])
    stage.channel.basic_nack(0, multiple=True, requeue=True)
    stage.see("the rest", stage.drain(queue))


def requeued_by_closing(stage: Stage) -> None:
    """what a channel had out goes back when it closes, in order and marked"""
    queue = stage.queue()
    stage.publish(queue, *"abcde")
    channel = stage.open()
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, queue)
    stage.see("given", inbox.wait(3))
    channel.basic_ack(2)
    stage.see("given then", inbox.wait(4))
    channel.close()
    stage.see("count", stage.await_count(queue, 4))
    left = [stage.get(queue) for _ in range(4)]
    stage.see("left", [(body, method.redelivered) for method, _, body in left])


def requeued_by_dying(stage: Stage) -> None:
    """what a connection had out goes back when it is cut"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    raw = stage.raw().connect()
    stage.see("given", raw.consume(queue, 3))
    raw.close()
    stage.see("count", stage.await_count(queue, 3))
    left = [stage.get(queue) for _ in range(3)]
    stage.see("left", [(body, method.redelivered) for method, _, body in left])


def automatic_loses(stage: Stage) -> None:
    """automatic acknowledgement: what was sent is gone"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    raw = stage.raw().connect()
    stage.see("given", raw.consume(queue, 3, auto_ack=True))
    raw.close()
    time.sleep(0.2)
    stage.see("count", stage.count(queue))


def recover(stage: Stage) -> None:
    """recover: what is out comes again"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    channel = stage.open()
    inbox = Inbox(channel, queue)
    inbox.wait(3)
    channel.basic_ack(2)
    channel.basic_recover(requeue=True)
    inbox.wait(5)
    stage.see("came", [(b, m.delivery_tag, m.redelivered) for m, _, b in inbox.messages])
    stage.see_refusal("without requeue", lambda c: c.basic_recover(requeue=False))


def prefetch(stage: Stage) -> None:
    """prefetch: no more than so many are out, for each consumer"""
    queue = stage.queue()
    stage.publish(queue, *[str(i) for i in range(12)])
    channel = stage.open()
    channel.basic_qos(prefetch_count=2)
    first = Inbox(channel, queue)
    stage.see("first", first.wait(2))
    channel.basic_qos(prefetch_count=3)
    second = Inbox(channel, queue)
    stage.see("second", second.wait(3))
    stage.see("first has no more", first.bodies)
    channel.basic_ack(1)
    stage.see("one acknowledged, one comes", first.wait(3))
    channel.basic_nack(2, requeue=False)
    stage.see("rejected counts too", first.wait(4))
    channel.basic_ack(0, multiple=True)
    stage.see("all", len(first.wait(6)) + len(second.wait(6)))


def prefetch_global(stage: Stage) -> None:
    """prefetch: global means the channel"""
    queue = stage.queue()
    stage.publish(queue, *[str(i) for i in range(10)])
    channel = stage.open()
    channel.basic_qos(prefetch_count=3, global_qos=True)
    inboxes = [Inbox(channel, queue) for _ in range(2)]
    inboxes[0].wait(3)
    inboxes[1].rest()
    stage.see("together", sorted(inboxes[0].bodies + inboxes[1].bodies))
    channel.basic_ack(0, multiple=True)
    inboxes[0].rest(0.5)
    stage.see("together then", sorted(inboxes[0].bodies + inboxes[1].bodies))


def prefetch_both(stage: Stage) -> None:
    """prefetch: of the channel and of a consumer together"""
    queue = stage.queue()
    stage.publish(queue, *[str(i) for i in range(10)])
    channel = stage.open()
    channel.basic_qos(prefetch_count=3)
    channel.basic_qos(prefetch_count=5, global_qos=True)
    one = Inbox(channel, queue)
    stage.see("one", one.wait(3))
    two = Inbox(channel, queue)
    stage.see("two", two.wait(2))


def prefetch_later(stage: Stage) -> None:
    """prefetch: set later it holds for later consumers; global for all at once"""
    queue = stage.queue()
    channel = stage.open()
    inbox = Inbox(channel, queue)
    channel.basic_qos(prefetch_count=1)
    stage.publish(queue, *"abc")
    stage.see("not for the earlier", inbox.wait(3))
    channel.basic_ack(0, multiple=True)
    channel.basic_qos(prefetch_count=1, global_qos=True)
    stage.publish(queue, *"def")
    stage.see("for all", inbox.wait(4))


def prefetch_size(stage: Stage) -> None:
    """prefetch in bytes is not there"""
    stage.see_refusal("said", lambda c: c.basic_qos(prefetch_size=100))


def prefetch_and_get(stage: Stage) -> None:
    """prefetch does not count what was got"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    channel = stage.open()
    channel.basic_qos(prefetch_count=1)
    channel.basic_get(queue)
    stage.see("consumed", Inbox(channel, queue).wait(1))


def prefetch_automatic(stage: Stage) -> None:
    """prefetch means nothing with automatic acknowledgement"""
    queue = stage.queue()
    stage.publish(queue, *"abcdef")
    channel = stage.open()
    channel.basic_qos(prefetch_count=1)
    stage.see("all", Inbox(channel, queue, auto_ack=True).wait(6))


def round_robin(stage: Stage) -> None:
    """consumers take turns"""
    queue = stage.queue()
    channels = [stage.open() for _ in range(3)]
    inboxes = [Inbox(channel, queue, auto_ack=True) for channel in channels]
    for body in "abcdefghi":
        stage.publish(queue, body)
        until(lambda: stage.count(queue) == 0)
    inboxes[0].rest(0.5)
    stage.see("each", sorted(len(inbox.bodies) for inbox in inboxes))
    stage.see("turns", sorted(inbox.bodies for inbox in inboxes))


def fair(stage: Stage) -> None:
    """consumers with prefetch 1: a busy one gets nothing new"""
    queue = stage.queue()
    channels = [stage.open() for _ in range(2)]
    for channel in channels:
        channel.basic_qos(prefetch_count=1)
    busy, quick = (Inbox(channel, queue) for channel in channels)
    stage.publish(queue, *"abcdef")
    busy.wait(1)
    for _ in range(5):
        quick.wait(1)
        channels[1].basic_ack(list(quick.tags())[-1])
        quick.rest(0.05)
    stage.see("both", sorted((len(busy.bodies), len(quick.bodies))))


def consumer_priority(stage: Stage) -> None:
    """consumers with priority come first while they have room"""
    queue = stage.queue()
    low, high = stage.open(), stage.open()
    for channel in (low, high):
        channel.basic_qos(prefetch_count=2)
    lower = Inbox(low, queue, arguments={"x-priority": -1})
    higher = Inbox(high, queue, arguments={"x-priority": 10})
    stage.publish(queue, *"abcde")
    higher.wait(2)
    lower.wait(2)
    stage.see("high", higher.bodies)
    stage.see("low", lower.bodies)
    stage.see_refusal(
        "a text",
        lambda c: c.basic_consume(queue, print, arguments={"x-priority": "high"}),
    )


def exclusive_consumer(stage: Stage) -> None:
    """an exclusive consumer is the only one"""
    queue = stage.queue()
    channel = stage.open()
    inbox = Inbox(channel, queue, exclusive=True)
    stage.see_refusal("another", lambda c: c.basic_consume(queue, print))
    stage.see_refusal("another exclusive", lambda c: c.basic_consume(queue, print, exclusive=True))
    channel.basic_cancel(inbox.tag)
    Inbox(channel, queue)
    stage.see_refusal("after another", lambda c: c.basic_consume(queue, print, exclusive=True))


def consumer_tags(stage: Stage) -> None:
    """consumer tags: chosen by the client, not used twice"""
    queue = stage.queue()

    def twice(channel: object) -> None:
        channel.basic_consume(queue, print, consumer_tag="mine")
        channel._impl._consumers.clear()  # pika would not ask.
        channel._consumer_infos.clear()
        channel.basic_consume(queue, print, consumer_tag="mine")

    stage.see_refusal("twice", twice)
    queue = stage.queue("other")
    one, two = stage.open(), stage.open()
    first = Inbox(one, queue, auto_ack=True, consumer_tag="mine")
    second = Inbox(two, queue, auto_ack=True, consumer_tag="mine")
    stage.publish(queue, *"abcd")
    first.wait(2)
    second.wait(2)
    stage.see("on two channels", sorted([*first.bodies, *second.bodies]))


def cancelled_by_the_broker(stage: Stage) -> None:
    """a consumer is told when its queue is deleted"""
    queue = stage.queue()
    channel = stage.open()
    told = []
    channel.add_on_cancel_callback(lambda frame: told.append(frame.method.consumer_tag))
    inbox = Inbox(channel, queue, consumer_tag="mine")
    stage.channel.queue_delete(queue)
    inbox.rest(0.5)
    stage.see("told", told)
    stage.see("the channel is open", channel.is_open)


def cancel_and_settle(stage: Stage) -> None:
    """a cancelled consumer's messages stay out, and can be acknowledged"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    raw_channel = stage.open()
    raw_channel.basic_qos(prefetch_count=2)
    inbox = Inbox(raw_channel, queue)
    inbox.wait(2)
    # pika gives back what it has not handed out; these it has.
    raw_channel.basic_cancel(inbox.tag)
    stage.see("ready", stage.count(queue))
    raw_channel.basic_ack(1)
    raw_channel.close()
    stage.see("after closing", stage.await_count(queue, 2))


def deleted_under_a_consumer(stage: Stage) -> None:
    """acknowledging what came from a queue that is gone"""
    queue = stage.queue()
    stage.publish(queue, "a")
    channel = stage.open()
    method, _, _ = channel.basic_get(queue)
    stage.channel.queue_delete(queue)
    channel.basic_ack(method.delivery_tag)
    channel.basic_qos(prefetch_count=1)
    stage.see("the channel is open", channel.is_open)


def single_active(stage: Stage) -> None:
    """single active consumer: the next one takes over"""
    queue = stage.queue("q", {"x-single-active-consumer": True})
    channels = [stage.open() for _ in range(2)]
    first, second = (Inbox(channel, queue, auto_ack=True) for channel in channels)
    stage.publish(queue, *"abc")
    stage.see("first", first.wait(3))
    stage.see("second", second.bodies)
    channels[0].basic_cancel(first.tag)
    stage.publish(queue, *"de")
    stage.see("then", second.wait(2))
    stage.see_refusal("exclusive", lambda c: c.basic_consume(queue, print, exclusive=True))


def unacked_are_not_ready(stage: Stage) -> None:
    """what is out is not counted as ready, and comes back with the channel"""
    queue = stage.queue()
    stage.publish(queue, *"abcd")
    channel = stage.open()
    channel.basic_qos(prefetch_count=3)
    Inbox(channel, queue).wait(3)
    stage.see("ready", stage.count(queue))
    channel.close()
    stage.see("ready again", stage.await_count(queue, 4))


def flow(stage: Stage) -> None:
    """channel.flow"""
    stage.see_refusal("on", lambda c: c.flow(True))
    stage.see_refusal("off", lambda c: c.flow(False))


def transient_and_persistent(stage: Stage) -> None:
    """delivery modes come through as they were said"""
    queue = stage.queue("q", durable=True)
    for mode in (None, 1, 2):
        stage.publish(queue, "m", delivery_mode=mode)
        stage.see_message(str(mode), stage.get(queue))
