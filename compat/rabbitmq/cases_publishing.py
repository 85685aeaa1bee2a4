"""Messages on their way in: where they go, what comes back, and transactions."""

from datetime import UTC, datetime
from decimal import Decimal

import pika
from pika import spec
from pika.exceptions import NackError, UnroutableError
from raw import header_frame, publish_frame
from stage import Inbox, Stage, until

EVERYTHING = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {
        "text": "grüße",
        "bytes": b"\x00\xff",
        "small": 1,
        "large": 2**40,
        "negative": -5,
        "yes": True,
        "nothing": None,
        "list": [1, "two", [3, {"four": 4}]],
        "table": {"in": {"side": {"of": "it"}}},
        "decimal": Decimal("1.25"),
        "time": datetime(2020, 2, 29, 12, 30, tzinfo=UTC),
    },
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "60000",
    "message_id": "m-1",
    "timestamp": 1_600_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "a-1",
    "cluster_id": "k-1",
}


def properties(stage: Stage) -> None:
    """all fourteen properties and nested tables come through"""
    queue = stage.queue()
    stage.publish(queue, "m", **EVERYTHING)
    stage.see_message("all", stage.get(queue))
    stage.publish(queue, "m")
    stage.see_message("none", stage.get(queue))
    stage.publish(queue, "m", headers={})
    stage.see_message("an empty table", stage.get(queue))


def bodies(stage: Stage) -> None:
    """bodies: empty, of one frame, of several"""
    queue = stage.queue()
    sizes = (0, 1, 131_063, 131_064, 131_065, 300_000, 1_000_000)
    for size in sizes:
        stage.publish(queue, "x" * size)
    stage.see("sizes", [len(body) for body in stage.drain(queue)])
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    for size in sizes:
        stage.publish(queue, "y" * size)
    stage.see("pushed", [len(body) for body in inbox.wait(len(sizes))])


def mandatory(stage: Stage) -> None:
    """mandatory: what reaches no queue comes back, before its confirm"""
    queue = stage.queue()
    channel = stage.open()
    channel.confirm_delivery()
    try:
        channel.basic_publish(
            "amq.direct", "nobody", b"m", pika.BasicProperties(type="t"), mandatory=True
        )
        stage.see("returned", None)
    except UnroutableError as error:
        [back] = error.messages
        method = back.method
        facts = method.reply_code, method.reply_text, method.exchange, method.routing_key
        stage.see("returned", (*facts, back.properties.type, back.body.decode()))
    channel.basic_publish("", queue, b"m", mandatory=True)
    stage.see("arrived", stage.drain(queue))
    channel.basic_publish("amq.direct", "nobody", b"m", mandatory=False)
    stage.see("not mandatory", "confirmed")


def mandatory_in_order(stage: Stage) -> None:
    """mandatory: a message comes back before it is confirmed"""
    raw = stage.raw().connect()
    raw.confirm()
    raw.publish_many("", "nobody-at-all", 2, pika.BasicProperties(), flags=1)
    returns = confirmed = 0
    is_late = False
    while confirmed < 2:
        said = raw.read()
        assert not isinstance(said, str), said
        if isinstance(said, spec.Basic.Return):
            returns += 1
        elif isinstance(said, spec.Basic.Ack):
            confirmed = said.delivery_tag if said.multiple else confirmed + 1
            is_late = is_late or confirmed > returns
    stage.see("returned, too late", (returns, is_late))


def immediate(stage: Stage) -> None:
    """immediate is not there any more"""
    queue = stage.queue()
    raw = stage.raw().connect()
    raw.send(publish_frame(1, "", queue, 2), header_frame(1, 0))
    stage.see("said", raw.answer())


def unknown_exchange(stage: Stage) -> None:
    """publish to an exchange that is not there"""
    nothing = stage.name("nothing")
    stage.see_refusal("said", lambda c: c.basic_publish(nothing, "k", b"m"))
    queue = stage.queue()
    raw = stage.raw().connect()
    raw.confirm()
    raw.publish_many(nothing, "k", 1, pika.BasicProperties())
    raw.publish_many("", queue, 3, pika.BasicProperties())
    stage.see("with confirms", raw.answer())
    stage.see("what came after it is not heard", stage.count(queue))


def internal_exchange(stage: Stage) -> None:
    """publish to an internal exchange"""
    exchange = stage.exchange("x", "fanout", internal=True)
    stage.see_refusal("said", lambda c: c.basic_publish(exchange, "k", b"m"))


def user_id(stage: Stage) -> None:
    """user-id is checked"""
    queue = stage.queue()
    for name in ("guest", "somebody"):
        made = pika.BasicProperties(user_id=name)
        stage.see_refusal(name, lambda c, made=made: c.basic_publish("", queue, b"m", made))


def alternate_exchange(stage: Stage) -> None:
    """alternate exchange: what matches nothing goes there"""
    other = stage.exchange("other", "fanout")
    exchange = stage.exchange("x", "direct", arguments={"alternate-exchange": other})
    matched, rest = stage.queue("matched"), stage.queue("rest")
    stage.channel.queue_bind(matched, exchange, "k")
    stage.channel.queue_bind(rest, other)
    stage.publish("k", "m", exchange=exchange)
    stage.publish("l", "n", exchange=exchange)
    stage.see("matched", stage.drain(matched))
    stage.see_message("rest", stage.get(rest))
    channel = stage.open()
    channel.confirm_delivery()
    channel.basic_publish(exchange, "l", b"mandatory", mandatory=True)
    stage.see("is not returned", stage.drain(rest))


def copies(stage: Stage) -> None:
    """CC and BCC"""
    one, two, three = (stage.queue(name) for name in ("one", "two", "three"))
    stage.publish(one, "m", headers={"CC": [two, two], "BCC": [three], "other": 1})
    for queue in (one, two, three):
        stage.see_message(queue[-5:], stage.get(queue))
        stage.see("no second", stage.get(queue))
    for name in ("CC", "BCC"):
        made = pika.BasicProperties(headers={name: "a text"})
        stage.see_refusal(
            f"{name} a text", lambda c, made=made: c.basic_publish("", one, b"m", made)
        )


def reply_to(stage: Stage) -> None:
    """direct reply-to: a question and its answer"""
    pseudo = "amq.rabbitmq.reply-to"
    questions = stage.queue("questions")
    client, server = stage.connect().channel(), stage.connect().channel()
    inbox = Inbox(client, pseudo, auto_ack=True)
    made = pika.BasicProperties(reply_to=pseudo, correlation_id="7")
    client.basic_publish("", questions, b"question", made)
    until(lambda: stage.count(questions) == 1)
    _, asked, _ = server.basic_get(questions, auto_ack=True)
    stage.see("to", (asked.reply_to.startswith(pseudo + "."), asked.correlation_id))
    server.basic_publish(
        "", asked.reply_to, b"answer", pika.BasicProperties(correlation_id="7"), mandatory=True
    )
    stage.see("got", inbox.wait(1))
    method, properties, _ = inbox.messages[0]
    stage.see("facts", (method.exchange, method.redelivered, properties.correlation_id))
    stage.see("key", method.routing_key == asked.reply_to)
    client.close()
    server.confirm_delivery()
    try:
        server.basic_publish("", asked.reply_to, b"too late", mandatory=True)
        stage.see("the asker is gone", "confirmed")
    except (UnroutableError, NackError) as error:
        stage.see("the asker is gone", type(error).__name__)


def reply_to_mistakes(stage: Stage) -> None:
    """direct reply-to: mistakes"""
    pseudo = "amq.rabbitmq.reply-to"
    questions = stage.queue("questions")
    made = pika.BasicProperties(reply_to=pseudo)

    def twice(channel: object) -> None:
        channel.basic_consume(pseudo, print, auto_ack=True)
        channel.basic_consume(pseudo, print, auto_ack=True)

    for what, ask in {
        "with acknowledgements": lambda c: c.basic_consume(pseudo, print, auto_ack=False),
        "publish without consumer": lambda c: c.basic_publish("", questions, b"m", made),
        "twice": twice,
        "declare": lambda c: c.queue_declare(pseudo),
        "declare passive": lambda c: c.queue_declare(pseudo, passive=True),
        "an address that never was": lambda c: c.queue_declare(f"{pseudo}.abc", passive=True),
    }.items():
        stage.see_refusal(what, ask)


def tx_commit(stage: Stage) -> None:
    """tx: what is published is there after the commit"""
    queue = stage.queue()
    channel = stage.open()
    channel.tx_select()
    for body in (b"a", b"b"):
        channel.basic_publish("", queue, body)
    channel.basic_qos(prefetch_count=0)
    stage.see("before", stage.count(queue))
    channel.tx_commit()
    stage.see("after", stage.drain(queue))


def tx_rollback(stage: Stage) -> None:
    """tx: what is published is gone after a rollback, and a commit begins anew"""
    queue = stage.queue()
    channel = stage.open()
    channel.tx_select()
    channel.basic_publish("", queue, b"a")
    channel.tx_rollback()
    stage.see("rolled back", stage.count(queue))
    channel.basic_publish("", queue, b"b")
    channel.tx_commit()
    channel.basic_publish("", queue, b"c")
    channel.close()
    stage.see("at the end", stage.drain(queue))


def tx_acks(stage: Stage) -> None:
    """tx: acknowledgements are taken back by a rollback"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    channel = stage.open()
    channel.tx_select()
    for _ in range(3):
        method, _, _ = channel.basic_get(queue)
    channel.basic_ack(1)
    channel.tx_rollback()
    channel.basic_ack(1)
    channel.basic_nack(2, requeue=True)
    stage.see("before", stage.count(queue))
    channel.tx_commit()
    stage.see("after", stage.await_count(queue, 1))
    channel.basic_ack(method.delivery_tag)
    channel.close()
    stage.see("not committed: back again", stage.await_count(queue, 2))
    stage.see("order", stage.drain(queue))


def tx_mistakes(stage: Stage) -> None:
    """tx: mistakes"""
    nothing, queue = stage.name("nothing"), stage.queue()

    def after_select(then: object) -> object:
        def ask(channel: object) -> object:
            channel.tx_select()
            return then(channel)

        return ask

    def both(channel: object) -> None:
        channel.confirm_delivery()
        channel.tx_select()

    def missing(channel: object) -> None:
        channel.tx_select()
        channel.basic_publish("", queue, b"m")
        channel.basic_publish(nothing, "k", b"m")
        channel.tx_commit()

    for what, ask in {
        "commit without select": lambda c: c.tx_commit(),
        "rollback without select": lambda c: c.tx_rollback(),
        "select twice": after_select(lambda c: c.tx_select()),
        "confirms in a transaction": after_select(lambda c: c.confirm_delivery()),
        "a transaction with confirms": both,
        "to a missing exchange": missing,
    }.items():
        stage.see_refusal(what, ask)
    stage.see("nothing was committed", stage.count(queue))


def confirms(stage: Stage) -> None:
    """confirms: of what is routed nowhere, and in several queues"""
    exchange = stage.exchange("x", "fanout")
    raw = stage.raw().connect()
    raw.confirm()
    raw.publish_many(exchange, "", 3, pika.BasicProperties())
    stage.see("nowhere", raw.confirmed(3))
    for short in ("a", "b"):
        stage.channel.queue_bind(stage.queue(short, durable=True), exchange)
    raw.publish_many(exchange, "", 3, pika.BasicProperties(delivery_mode=2))
    stage.see("two queues", raw.confirmed(3))
    stage.see("have it", [stage.count(stage.name(short)) for short in "ab"])
