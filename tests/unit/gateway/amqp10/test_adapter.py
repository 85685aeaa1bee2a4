"""What is left of a connection that ended."""

import tracemalloc

from entrepot.broker.login import LoginPolicy
from entrepot.gateway.amqp10.adapter import Amqp10Adapter
from entrepot.gateway.amqp10.context import Context
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from tests.unit.gateway.amqp.node import FakeLink
from tests.unit.gateway.mqtt.node import Node, on_node


@on_node
async def test_a_connection_that_ended_holds_no_input(node: Node) -> None:
    """It is garbage that nobody collects for some time, and there may be thousands of them."""
    users, access = node.broker.users, node.broker.access
    login = LoginPolicy(users, access, asks_users=False, is_open=True)
    context = Context(
        node.broker, node.clock, node.entropy, RabbitDialect(), login, "1", "node", 5672
    )
    unfinished = b"AMQP\x03\x01\x00\x00" + (60_000).to_bytes(4, "big") + bytes(50_000)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ended = [Amqp10Adapter(FakeLink(), context) for _ in range(20)]
        for adapter in ended:
            rest = unfinished
            while rest:
                view = adapter.writable()
                size = min(len(view), len(rest))
                view[:size] = rest[:size]
                del view
                adapter.received(size)
                rest = rest[size:]
            assert adapter.unfinished().size > 50_000
            adapter.closed("gone")
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20 * 30_000
