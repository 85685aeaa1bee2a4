"""Consuming: what comes is kept, taken in order, and settled in transactions."""

import asyncio

import pytest

from entrepot.client.amqp_connection import AmqpRefused
from entrepot.client.amqp_consumer import AmqpConsumer
from entrepot.client.errors import BadAnswer, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.net.sockets import SocketNet
from entrepot.wire.amqp.frames import frame, method_frame
from entrepot.wire.amqp.methods import basic, channel, tx
from entrepot.wire.amqp.methods import queue as queues
from entrepot.wire.amqp.properties import NONE, BasicProperties
from entrepot.wire.amqp.scan import HEADER
from tests.unit.client.fake_amqp import Peer, deliveries, with_peer


async def consuming(peer: Peer) -> AmqpConsumer:
    consumer = await AmqpConsumer.open(SocketNet(), peer.address, Login())
    await consumer.consume("q", prefetch=7, exclusive=True)
    return consumer


def test_messages_are_taken_in_order_and_settled() -> None:
    async def story(peer: Peer) -> None:
        consumer = await consuming(peer)
        (asked,) = peer.heard(basic.Consume)
        assert (asked.queue, asked.exclusive, asked.no_ack) == ("q", True, False)
        assert peer.heard(basic.Qos)[0].prefetch_count == 7
        peer.send(deliveries([(NONE, b"%d" % n) for n in range(5)]))
        assert await consumer.wait(5)
        while len(consumer._waiting) < 5:
            await consumer.ready_count()
        first = consumer.take(2, 100)
        assert [(each.tag, each.body) for each in first] == [(1, b"0"), (2, b"1")]
        assert first[0][1:5] == (False, "x", "k", BasicProperties())
        assert [each.body for each in consumer.take(10, 2)] == [b"2", b"3"]
        await consumer.settle(4)
        assert peer.acked == [4]
        assert isinstance(peer.said[-1], tx.Commit)
        consumer.close()

    with_peer(Peer(), story)


def test_nothing_comes() -> None:
    async def story(peer: Peer) -> None:
        consumer = await consuming(peer)
        assert not await consumer.wait(0.02)
        assert consumer.take(10, 10) == []
        assert await consumer.ready_count() == 3
        assert peer.heard(queues.Declare)[0].passive
        consumer.close()

    with_peer(Peer(answers={queues.Declare: queues.DeclareOk("q", 3, 1)}), story)


def test_somebody_else_has_the_queue() -> None:
    refusal = channel.Close(403, "ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use")

    async def story(peer: Peer) -> None:
        with pytest.raises(AmqpRefused, match="in exclusive use"):
            await consuming(peer)

    with_peer(Peer(answers={basic.Consume: refusal}), story)


def test_a_queue_that_goes_away() -> None:
    async def story(peer: Peer) -> None:
        consumer = await consuming(peer)
        asyncio.get_running_loop().call_later(
            0.01, peer.send, method_frame(1, basic.Cancel("consumer", True))
        )
        with pytest.raises(Unreachable, match="ends the delivery of queue 'q'"):
            await consumer.wait(5)
        consumer.close()

    with_peer(Peer(), story)


def test_a_message_that_is_none() -> None:
    async def story(peer: Peer) -> None:
        consumer = await consuming(peer)
        peer.send(deliveries([(b"\xff\xfc", b"properties that end too early")]))
        with pytest.raises(BadAnswer, match="does not speak AMQP"):
            await consumer.wait(5)

    with_peer(Peer(), story)


def test_a_message_that_is_too_large() -> None:
    header = frame(HEADER, 1, (60).to_bytes(2) + bytes(2) + (2**40).to_bytes(8) + NONE)

    async def story(peer: Peer) -> None:
        consumer = await consuming(peer)
        peer.send(method_frame(1, basic.Deliver("consumer", 1, False, "x", "k")) + header)
        with pytest.raises(BadAnswer, match=r"comes a message size \d+ is larger than"):
            await consumer.wait(5)

    with_peer(Peer(), story)
