"""A real server and aio-pika: many things at once, and a server that comes back."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

import aio_pika
import pytest
from aio_pika.exceptions import ChannelPreconditionFailed, DeliveryError

from entrepot.testing import Broker, broker

Body = Callable[..., Coroutine[Any, Any, None]]
PERSISTENT = aio_pika.DeliveryMode.PERSISTENT


def in_loop(body: Body) -> Callable[..., None]:
    @wraps(body)
    def test(**arguments: Any) -> None:
        asyncio.run(asyncio.wait_for(body(**arguments), 60))

    return test


def message(body: bytes, **options: Any) -> aio_pika.Message:
    return aio_pika.Message(body, delivery_mode=PERSISTENT, **options)


@in_loop
async def test_many_publishers_and_consumers(server: Broker) -> None:
    async with await aio_pika.connect(server.amqp_url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=50)
        queue = await channel.declare_queue("aio-many", durable=True)
        got: dict[bytes, int] = {}
        done = asyncio.Event()

        async def take(arrived: aio_pika.abc.AbstractIncomingMessage) -> None:
            async with arrived.process():
                got[arrived.body] = got.get(arrived.body, 0) + 1
                if len(got) == 1_000:
                    done.set()

        for _ in range(4):
            await queue.consume(take)

        async def publish(publisher: int) -> None:
            own = await connection.channel(publisher_confirms=True)
            for number in range(100):
                await own.default_exchange.publish(
                    message(b"%d.%d" % (publisher, number)), "aio-many", mandatory=True
                )

        await asyncio.gather(*map(publish, range(10)))
        await asyncio.wait_for(done.wait(), 30)
        assert set(got.values()) == {1}
        await asyncio.sleep(0.2)
        again = await channel.declare_queue("aio-many", durable=True, passive=True)
        assert again.declaration_result.message_count == 0


@pytest.mark.usefixtures("every_durability")
@in_loop
async def test_a_server_that_comes_back() -> None:
    with broker() as server:
        connection = await aio_pika.connect_robust(server.amqp_url, reconnect_interval=0.2)
        async with connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("aio-back", durable=True)
            got: asyncio.Queue[bytes] = asyncio.Queue()

            async def take(arrived: aio_pika.abc.AbstractIncomingMessage) -> None:
                await arrived.ack()
                await got.put(arrived.body)

            await queue.consume(take)
            await channel.default_exchange.publish(message(b"before"), "aio-back")
            assert await asyncio.wait_for(got.get(), 10) == b"before"
            server.kill()
            await asyncio.to_thread(server.start)
            async with await aio_pika.connect(server.amqp_url) as other:
                publisher = await other.channel()
                await publisher.default_exchange.publish(message(b"after"), "aio-back")
            found = await asyncio.wait_for(got.get(), 20)
            if found == b"before":  # Its acknowledgement may not have been permanent.
                found = await asyncio.wait_for(got.get(), 20)
            assert found == b"after"


@in_loop
async def test_what_is_refused(server: Broker) -> None:
    async with await aio_pika.connect(server.amqp_url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("aio-refused", durable=True)
        with pytest.raises(ChannelPreconditionFailed, match="inequivalent arg 'durable'"):
            await channel.declare_queue("aio-refused", durable=False)
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(DeliveryError):
            await channel.default_exchange.publish(message(b"x"), "aio-nowhere", mandatory=True)


@in_loop
async def test_a_transaction(server: Broker) -> None:
    async with await aio_pika.connect(server.amqp_url) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("aio-tx", durable=True)
        async with channel.transaction():
            await channel.default_exchange.publish(message(b"1"), "aio-tx")
            await channel.default_exchange.publish(message(b"2"), "aio-tx")
        first = await queue.get(timeout=5)
        assert first.body == b"1"
        await first.reject(requeue=True)


@in_loop
async def test_headers_decide(server: Broker) -> None:
    async with await aio_pika.connect(server.amqp_url) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("aio-headers", aio_pika.ExchangeType.HEADERS)
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(exchange, arguments={"x-match": "all", "colour": "blue", "size": 7})
        for colour, size in (("blue", 7), ("red", 7), ("blue", 8)):
            headers = {"colour": colour, "size": size}
            await exchange.publish(message(b"%d" % size, headers=headers), "", mandatory=False)
        got = await queue.get(timeout=5)
        assert got.headers == {"colour": "blue", "size": 7}
        assert await queue.get(fail=False) is None
