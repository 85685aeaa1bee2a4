"""Queues and exchanges that are made, looked at, made again otherwise, and taken away."""

from pika.exceptions import ChannelClosedByBroker
from stage import Inbox, Stage, until


def redeclared(stage: Stage) -> None:
    """redeclaration of a queue with other facts and arguments"""
    arguments = {"x-max-length": 5, "x-message-ttl": 60000}
    queue = stage.queue("q", arguments)
    again = [
        ("the same", {"arguments": arguments}),
        ("passive with others", {"passive": True, "durable": True, "arguments": {}}),
        ("durable", {"durable": True, "arguments": arguments}),
        ("auto-delete", {"auto_delete": True, "arguments": arguments}),
        ("exclusive", {"exclusive": True, "arguments": arguments}),
        ("without arguments", {}),
        ("without one", {"arguments": {"x-max-length": 5}}),
        ("another value", {"arguments": {**arguments, "x-max-length": 6}}),
        ("another type", {"arguments": {**arguments, "x-max-length": "5"}}),
        ("one more", {"arguments": {**arguments, "x-expires": 60000}}),
        ("dead letters", {"arguments": {**arguments, "x-dead-letter-exchange": "x"}}),
        ("priorities", {"arguments": {**arguments, "x-max-priority": 3}}),
        ("one that means nothing", {"arguments": {**arguments, "x-mine": "m"}}),
        ("of type classic", {"arguments": {**arguments, "x-queue-type": "classic"}}),
        ("of type quorum", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
    ]
    for what, facts in again:
        stage.see_refusal(what, lambda channel, facts=facts: channel.queue_declare(queue, **facts))


def redeclared_with_texts(stage: Stage) -> None:
    """redeclaration of a queue whose arguments are texts"""
    arguments = {"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "k",
                 "x-overflow": "reject-publish", "x-max-priority": 3}  # fmt: skip
    queue = stage.queue("q", arguments, durable=True)
    stage.see_refusal("not durable", lambda c: c.queue_declare(queue, arguments=arguments))
    for name, value in (
        ("x-dead-letter-exchange", "b"),
        ("x-dead-letter-routing-key", "l"),
        ("x-overflow", "drop-head"),
        ("x-max-priority", 4),
    ):
        stage.see_refusal(
            name,
            lambda channel, name=name, value=value: channel.queue_declare(
                queue, durable=True, arguments={**arguments, name: value}
            ),
        )
        without = {key: item for key, item in arguments.items() if key != name}
        if name != "x-dead-letter-exchange":
            stage.see_refusal(
                f"without {name}",
                lambda channel, without=without: channel.queue_declare(
                    queue, durable=True, arguments=without
                ),
            )


def exchanges_redeclared(stage: Stage) -> None:
    """redeclaration of an exchange with other facts and arguments"""
    other = stage.exchange("other", "fanout")
    name = stage.exchange("x", "topic", arguments={"alternate-exchange": other})
    arguments = {"alternate-exchange": other}
    again = [
        ("the same", "topic", {"arguments": arguments}),
        ("another type", "direct", {"arguments": arguments}),
        ("durable", "topic", {"durable": True, "arguments": arguments}),
        ("auto-delete", "topic", {"auto_delete": True, "arguments": arguments}),
        ("internal", "topic", {"internal": True, "arguments": arguments}),
        ("without arguments", "topic", {}),
        ("another alternate", "topic", {"arguments": {"alternate-exchange": "amq.fanout"}}),
        ("passive", "direct", {"passive": True}),
    ]
    for what, kind, facts in again:
        stage.see_refusal(
            what,
            lambda channel, kind=kind, facts=facts: channel.exchange_declare(name, kind, **facts),
        )


def names_of_the_broker(stage: Stage) -> None:
    """names that begin with amq. are the broker's"""
    asks = {
        "queue": lambda c: c.queue_declare("amq.mine"),
        "queue like a made-up one": lambda c: c.queue_declare("amq.gen-mine"),
        "passive": lambda c: c.queue_declare("amq.mine", passive=True),
        "exchange": lambda c: c.exchange_declare("amq.mine", "direct"),
        "one that is there": lambda c: c.exchange_declare("amq.direct", "direct", durable=True),
        "one otherwise": lambda c: c.exchange_declare("amq.direct", "fanout", durable=True),
        "delete": lambda c: c.exchange_delete("amq.direct"),
        "the default one": lambda c: c.exchange_declare("", "direct"),
        "delete the default one": lambda c: c.exchange_delete(""),
        "bind to the default one": lambda c: c.queue_bind(stage.queue(), "", "k"),
        "unbind from the default one": lambda c: c.queue_unbind(stage.queue(), "", "k"),
    }
    for what, ask in asks.items():
        stage.see_refusal(what, ask)


def names_made_up(stage: Stage) -> None:
    """a queue without a name gets one, and is meant when none is said"""
    queue = stage.channel.queue_declare("", exclusive=True).method.queue
    stage.see("name", (queue.startswith("amq.gen-"), len(queue)))
    stage.channel.queue_bind("", "amq.topic", "some.key")
    stage.publish("some.key", "m", exchange="amq.topic")
    stage.see_message("bound", stage.get(""))
    stage.see("purged", stage.channel.queue_purge("").method.message_count)
    stage.see("again", stage.channel.queue_declare("", exclusive=True).method.queue != queue)
    for what, ask in {
        "get": lambda c: c.basic_get(""),
        "bind": lambda c: c.queue_bind("", "amq.topic", "k"),
        "purge": lambda c: c.queue_purge(""),
        "delete": lambda c: c.queue_delete(""),
        "passive": lambda c: c.queue_declare("", passive=True),
    }.items():
        stage.see_refusal(f"{what} without any", ask)


def passive(stage: Stage) -> None:
    """passive declarations of what is there and what is not"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    Inbox(stage.open(), queue, auto_ack=False).rest()
    declared = stage.channel.queue_declare(queue, passive=True).method
    stage.see("counts", (declared.message_count, declared.consumer_count))
    nothing = stage.name("nothing")
    stage.see_refusal("queue", lambda c: c.queue_declare(nothing, passive=True))
    stage.see_refusal("exchange", lambda c: c.exchange_declare(nothing, passive=True))


def missing_things(stage: Stage) -> None:
    """queues and exchanges that are not there"""
    nothing, queue, exchange = stage.name("nothing"), stage.queue(), stage.exchange()
    for what, ask in {
        "consume": lambda c: c.basic_consume(nothing, print),
        "get": lambda c: c.basic_get(nothing),
        "purge": lambda c: c.queue_purge(nothing),
        "delete queue": lambda c: c.queue_delete(nothing),
        "delete exchange": lambda c: c.exchange_delete(nothing),
        "bind queue": lambda c: c.queue_bind(nothing, exchange, "k"),
        "bind to exchange": lambda c: c.queue_bind(queue, nothing, "k"),
        "unbind queue": lambda c: c.queue_unbind(nothing, exchange, "k"),
        "unbind what is not bound": lambda c: c.queue_unbind(queue, exchange, "k"),
        "bind exchange": lambda c: c.exchange_bind(nothing, exchange, "k"),
        "bind exchange to": lambda c: c.exchange_bind(exchange, nothing, "k"),
        "cancel": lambda c: c._impl.basic_cancel("nothing") or None,
    }.items():
        stage.see_refusal(what, ask)


def delete_if(stage: Stage) -> None:
    """delete if unused, if empty"""
    used, full = stage.queue("used"), stage.queue("full")
    channel = stage.open()
    inbox = Inbox(channel, used)
    stage.publish(full, "m")
    stage.see_refusal("used", lambda c: c.queue_delete(used, if_unused=True))
    stage.see_refusal("full", lambda c: c.queue_delete(full, if_empty=True))
    stage.see("both there", [stage.exists(used), stage.exists(full)])
    channel.basic_cancel(inbox.tag)
    stage.get(full)
    stage.see_refusal("not used any more", lambda c: c.queue_delete(used, if_unused=True))
    stage.see_refusal("empty", lambda c: c.queue_delete(full, if_empty=True))
    stage.see("both gone", [stage.exists(used), stage.exists(full)])


def delete_exchange_if(stage: Stage) -> None:
    """delete an exchange if unused"""
    exchange, queue = stage.exchange(), stage.queue()
    stage.channel.queue_bind(queue, exchange, "k")
    stage.see_refusal("used", lambda c: c.exchange_delete(exchange, if_unused=True))
    stage.channel.queue_unbind(queue, exchange, "k")
    stage.see_refusal("unused", lambda c: c.exchange_delete(exchange, if_unused=True))


def exclusive(stage: Stage) -> None:
    """an exclusive queue from another connection"""
    owner = stage.connect().channel()
    queue = stage.name("q")
    owner.queue_declare(queue, exclusive=True)
    owner.queue_bind(queue, "amq.direct", "bound")
    for what, ask in {
        "declare": lambda c: c.queue_declare(queue, exclusive=True),
        "declare not exclusive": lambda c: c.queue_declare(queue),
        "passive": lambda c: c.queue_declare(queue, passive=True),
        "consume": lambda c: c.basic_consume(queue, print),
        "get": lambda c: c.basic_get(queue),
        "purge": lambda c: c.queue_purge(queue),
        "bind": lambda c: c.queue_bind(queue, "amq.direct", "k"),
        "unbind": lambda c: c.queue_unbind(queue, "amq.direct", "bound"),
        "delete": lambda c: c.queue_delete(queue),
        "publish": lambda c: c.basic_publish("", queue, b"from another"),
    }.items():
        stage.see_refusal(what, ask)
    stage.see("published", owner.basic_get(queue, auto_ack=True)[2])
    owner.connection.close()
    stage.see("gone with its connection", until(lambda: not stage.exists(queue)))


def auto_delete(stage: Stage) -> None:
    """auto-delete: gone after the last consumer, not before the first"""
    queue = stage.queue("q", auto_delete=True)
    stage.see("never consumed", stage.exists(queue))
    inboxes = [Inbox(stage.channel, queue) for _ in range(2)]
    stage.channel.basic_cancel(inboxes[0].tag)
    stage.see("one left", stage.exists(queue))
    stage.channel.basic_cancel(inboxes[1].tag)
    stage.see("none left", until(lambda: not stage.exists(queue)))


def auto_delete_with_the_connection(stage: Stage) -> None:
    """auto-delete: gone when the consumer's channel or connection goes"""
    one, two = stage.queue("one", auto_delete=True), stage.queue("two", auto_delete=True)
    channel = stage.open()
    Inbox(channel, one)
    channel.close()
    stage.see("by the channel", until(lambda: not stage.exists(one)))
    connection = stage.connect()
    Inbox(connection.channel(), two)
    connection.close()
    stage.see("by the connection", until(lambda: not stage.exists(two)))


def auto_delete_exchange(stage: Stage) -> None:
    """auto-delete: an exchange goes with its last binding"""
    exchange = stage.exchange("x", "direct", auto_delete=True)
    queue = stage.queue()
    there = "fine: DeclareOk"
    ask = lambda c: c.exchange_declare(exchange, passive=True)  # noqa: E731
    stage.see("never bound", stage.refusal(ask))
    for key in "kl":
        stage.channel.queue_bind(queue, exchange, key)
    stage.channel.queue_unbind(queue, exchange, "k")
    stage.see("one left", stage.refusal(ask))
    stage.channel.queue_delete(queue)
    stage.see("none left", until(lambda: stage.refusal(ask) != there))
    stage.see_refusal("said", ask)


def recreated(stage: Stage) -> None:
    """a queue deleted and declared otherwise is another queue"""
    queue = stage.queue("q", {"x-max-length": 1})
    stage.channel.queue_bind(queue, "amq.direct", queue)
    stage.publish(queue, "old")
    stage.channel.queue_delete(queue)
    stage.queue("q", durable=True)
    stage.publish(queue, "not bound any more", exchange="amq.direct")
    stage.publish(queue, "a", "b")
    stage.see("holds", stage.drain(queue))


def exchange_types(stage: Stage) -> None:
    """types of exchanges"""
    name = stage.name("x")
    for kind in ("direct", "fanout", "topic", "headers"):
        stage.see_refusal(kind, lambda c, kind=kind: c.exchange_declare(f"{name}-{kind}", kind))
        stage._exchanges.append(f"{name}-{kind}")
    stage.see_refusal(
        "unknown",
        lambda c: c.exchange_declare(name, "sideways"),
        {
            "connection 503 COMMAND_INVALID - unknown exchange type 'sideways'":
            "channel 406 PRECONDITION_FAILED - unknown exchange type 'sideways'"
        },
    )  # fmt: skip


def connection_survives(stage: Stage) -> None:
    """a channel's mistake is its own: the others go on"""
    queue = stage.queue()
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    for _ in range(3):
        channel = stage.open()
        try:
            channel.queue_declare(stage.name("nothing"), passive=True)
        except ChannelClosedByBroker:
            stage.see("open", (channel.is_open, stage.connection.is_open))
    stage.publish(queue, "m")
    stage.see("goes on", inbox.wait(1))
