"""Values that are legal on the wire and odd everywhere else, in everything that is stored.

Each is taken or refused in the protocol's words; what is taken survives a restart, is listed
over HTTP, and becomes a dead letter.
"""

from typing import Any

import msgspec
import pytest

from entrepot.broker.broker import Broker
from entrepot.core.value import thaw_table
from entrepot.gateway.http.management import bindings, exchanges
from entrepot.gateway.http.management.messages import to_json
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.wire.amqp.methods import basic, channel, exchange, queue
from entrepot.wire.amqp.properties import BasicProperties, encode
from entrepot.wire.amqp.table import Timestamp
from tests.unit.gateway.amqp.node import FORMATS, Node, on_node

ODD = "\udcff\udcfe"  # Bytes that are not UTF-8, as the wire's reader keeps them.
VALUES: list[Any] = [
    ODD,
    "x" * 300,
    b"\xff",
    {ODD: ODD},
    [ODD, {"a": [None, True]}],
    2**63 - 1,
    -(2**63),
    Timestamp(2**64 - 1),
    float("inf"),
    float("nan"),
    None,
    True,
]
QUEUE_ARGUMENTS = (
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-message-ttl",
    "x-max-length",
    "x-max-priority",
    "x-overflow",
    "x-queue-type",
    "x-retention-ms",
    "x-max-age",
    "x-single-active-consumer",
    "anything",
)
EXCHANGES = {
    "alternate-exchange": "direct",
    "x-delayed-type": "x-delayed-message",
    "hash-header": "x-consistent-hash",
    "hash-property": "x-consistent-hash",
    "x-cache-size": "x-message-deduplication",
    "x-cache-ttl": "x-message-deduplication",
}
KINDS: dict[str, tuple[str, ...]] = {
    "direct": (),
    "topic": (),
    "headers": (),
    "x-delayed-message": ("x-delayed-type",),
    "x-message-deduplication": ("x-cache-size",),
    "x-consistent-hash": ("hash-header",),
}
HEADERS = ("x-death", "CC", "BCC", "x-delay", "x-confirm", "x-deduplication-header", "h")


async def settled(node: Node, *methods: Any) -> bool:
    """Say them on a connection of their own; whether all were taken. None is our mistake."""
    client = await node.client()
    client.say(*methods)
    for each in await client.told():
        if isinstance(each, channel.Close):
            assert each.reply_code in (403, 404, 406), each
            return False
        assert not hasattr(each, "reply_code"), each
    return True


@pytest.mark.parametrize("value", VALUES, ids=repr)
@on_node()
async def test_arguments(node: Node, value: Any) -> None:
    taken = 0
    for number, name in enumerate(QUEUE_ARGUMENTS):
        arguments = {"x-dead-letter-exchange": "", name: value}
        declare = queue.Declare(queue=f"q{number}", durable=True, arguments=arguments)
        taken += await settled(node, declare)
    for name, kind in EXCHANGES.items():
        declared = exchange.Declare(exchange=name, type=kind, durable=True, arguments={name: value})
        taken += await settled(node, declared)
    assert taken
    await settled(node, queue.Declare(queue="q", durable=True))
    for key in ("", "é" * 127):
        for source in ("amq.headers", "amq.topic"):
            arguments = {"x-match": "any", "h": value, ODD: value}
            bind = queue.Bind(queue="q", exchange=source, routing_key=key, arguments=arguments)
            assert await settled(node, bind)
    before = described(node.broker)
    await node.broker.close()
    again = Broker(
        node.disk.kill(),
        node.clock,
        node.entropy,
        formats=FORMATS,
        dialect=RabbitDialect(),
        predeclared=PREDECLARED,
    )
    await again.open()
    assert described(again) == before
    assert not any(each.is_stopped for each in again.vhosts.default.queues.values())


def described(broker: Broker) -> list[bytes]:
    """All there is, in JSON."""
    vhost = broker.vhosts.default
    rows: list[object] = [exchanges.describe("/", each) for each in vhost.router.exchanges()]
    rows += [bindings.describe("/", each) for each in vhost.router.bindings()]
    rows += [to_json(thaw_table(each.spec.arguments)) for each in vhost.queues.values()]
    return sorted(map(msgspec.json.encode, rows))


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("name", HEADERS)
@on_node()
async def test_headers(node: Node, name: str, value: Any) -> None:
    """To a queue whose messages die at once, by every kind of exchange."""
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "letters"}
    other = await node.client()
    other.say(queue.Declare(queue="letters", durable=True))
    other.say(queue.Declare(queue="q", durable=True, arguments={"x-message-ttl": 0} | letters))
    other.say(queue.Declare(queue="log", durable=True, arguments={"x-queue-type": "stream"}))
    for kind, inner in KINDS.items():
        arguments = {"x-delayed-type": "fanout", "x-cache-size": 10, "hash-header": "h"}
        kept = {each: arguments[each] for each in inner}
        other.say(exchange.Declare(exchange=kind, type=kind, durable=True, arguments=kept))
        for each in ("q", "log"):
            other.say(queue.Bind(queue=each, exchange=kind, routing_key="1"))
    await other.told()
    headers = {name: value, f"{name}s": [value], "x-death": [value, {"queue": "q", "count": value}]}
    for kind in ("", *KINDS):
        client = await node.client()
        for some in (headers, headers | {name: value}, headers | {name: [value]}):
            properties = encode(BasicProperties(headers=some, delivery_mode=2))
            client.publish("1" if kind else "q", b"a", exchange=kind, properties=properties)
            for each in await client.told():
                assert isinstance(each, channel.Close)
                assert each.reply_code in (404, 406), each
                client = await node.client()
    assert (await other.told()) == []
    letters_there = node.broker.vhosts.default.queue("letters").ready_count
    assert letters_there or name in ("CC", "BCC")
    other.say(basic.Qos(0, 100), basic.Consume(queue="log", arguments={"x-stream-offset": "first"}))
    other.say(basic.Consume(queue="letters", no_ack=True))
    heard = await other.told()
    assert sum(isinstance(each, basic.Deliver) for each in heard) >= letters_there
