"""Which messages are passed over when they come again, and for how long that is remembered."""

import asyncio
from typing import Any

import pytest

from entrepot.client.amqp_consumer import Delivery
from entrepot.connect import amqp_source
from entrepot.connect.amqp_source import PREFETCH_MAX, AmqpSource, identity_of
from entrepot.connect.interface import ConfigError, Polled, Position
from entrepot.connect.offsets import record_of
from entrepot.wire.amqp.methods import basic
from entrepot.wire.amqp.methods import queue as queues
from entrepot.wire.amqp.properties import NONE, BasicProperties, encode
from tests.unit.client.fake_amqp import Peer, deliveries, frames, with_peer
from tests.unit.connect.alone import Bench

OPTIONS = {"url": "amqp://ana:secret@h", "queue": "q"}


def named(name: str, body: bytes = b"v") -> tuple[bytes, bytes]:
    return encode(BasicProperties(message_id=name)), body


def made(peer: Peer, **options: Any) -> AmqpSource:
    source = Bench().make("amqp-source", url=f"amqp://{peer.address}", queue="q", **options)
    assert isinstance(source, AmqpSource)
    return source


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_source, "WAIT_S", 0.05)
    monkeypatch.setattr(amqp_source, "GRACE_S", 0.01)


class Told:
    """A source, what it is sent, and what it makes of that."""

    def __init__(self, peer: Peer, position: Position | None = None) -> None:
        self.peer = peer
        self.position = position
        self.source = made(peer)
        self._tag = 0

    async def __aenter__(self) -> "Told":
        await self.source.open(self.position)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.source.close()

    async def polled(self, *messages: tuple[bytes, bytes], redelivered: bool = False) -> Any:
        """Bodies of the records; None: nothing for now."""
        for properties, body in messages:
            self._tag += 1
            method = basic.Deliver("consumer", self._tag, redelivered, "", "q")
            self.peer.send(frames(1, method, properties, body))
        await asyncio.sleep(0.02)  # They are to come in one.
        polled = await self.source.poll(100)
        if polled is None:
            return None
        self.position = polled.position
        return [each.value for each in polled.records if not isinstance(each, Polled)]


def test_messages_are_acknowledged_when_they_are_committed() -> None:
    async def story(peer: Peer) -> None:
        source = made(peer)
        await source.open(None)
        peer.send(deliveries([(NONE, b"a"), named("m")]))
        await asyncio.sleep(0.02)
        polled = await source.poll(10)
        assert polled is not None
        assert peer.acked == []
        await source.committed(polled.position)
        assert peer.acked == [2]
        assert len(polled.position["messages"]) == 1  # One has an id.
        assert await source.poll(10) is None
        await source.close()

    with_peer(Peer(), story)


def test_what_is_committed_and_comes_again_is_passed_over() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            assert await first.polled(named("1"), named("2"), named("3")) == [b"v"] * 3
        async with Told(peer, first.position) as second:
            again = [named("1"), named("2"), named("3"), named("4", b"new")]
            assert await second.polled(*again, redelivered=True) == [b"new"]
            assert await second.polled(named("5", b"next")) == [b"next"]
            assert len(second.position["messages"]) == 1

    with_peer(Peer(), story)


def test_when_nothing_else_comes_they_are_acknowledged_at_once() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled(named("1"), named("2"))
        async with Told(peer, first.position) as second:
            assert await second.polled(named("1"), redelivered=True) is None
            assert peer.acked == [1]
            # What has not come yet may still come, also behind others that were sent before.
            others = [named("0", b"other")]
            assert await second.polled(*others, redelivered=True) == [b"other"]
            assert len(second.position["messages"]) == 2
        async with Told(peer, second.position) as third:
            again = [named("2"), named("0", b"other")]
            assert await third.polled(*again, redelivered=True) is None

    with_peer(Peer(), story)


def test_two_crashes_in_a_row() -> None:
    """What is passed over is acknowledged with the new messages after it, and not before."""

    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled(named("1"), named("2"))
        again = [named("1"), named("2"), named("3", b"new")]
        async with Told(peer, first.position) as second:
            assert await second.polled(*again, redelivered=True) == [b"new"]
        async with Told(peer, second.position) as third:
            assert await third.polled(*again, redelivered=True) is None

    with_peer(Peer(), story)


def test_with_the_first_new_message_they_are_forgotten() -> None:
    """They would have come before it. A position would else grow with every start."""

    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled(named("1"), named("2"))
        async with Told(peer, first.position) as second:
            assert await second.polled(named("3", b"new")) == [b"new"]
            assert len(second.position["messages"]) == 1
            assert await second.polled(named("1", b"v")) == [b"v"]

    with_peer(Peer(), story)


def test_a_broker_that_was_killed_does_not_say_that_it_sends_again() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled(named("1"))
        async with Told(peer, first.position) as second:
            assert await second.polled(named("1"), named("2", b"new")) == [b"new"]

    with_peer(Peer(), story)


def test_as_often_as_it_was_written_and_no_more() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled(named("1"), named("1"))
        async with Told(peer, first.position) as second:
            three = [named("1")] * 3
            assert await second.polled(*three, redelivered=True) == [b"v"]

    with_peer(Peer(), story)


def test_without_an_id_it_is_written_again() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as first:
            await first.polled((NONE, b"v"))
        async with Told(peer, first.position) as second:
            assert await second.polled((NONE, b"v"), redelivered=True) == [b"v"]

    with_peer(Peer(), story)


def test_one_id_for_several_messages() -> None:
    def identity(name: str, body: bytes) -> str | None:
        return identity_of(Delivery(1, False, "", "", BasicProperties(message_id=name), body))

    assert identity("a", b"b") == identity("a", b"b")
    assert identity("a", b"b") != identity("a", b"c")
    assert identity("a", b"bc") != identity("ab", b"c")
    assert identity("", b"b") is None


def test_a_slow_queue_is_waited_for() -> None:
    async def story(peer: Peer) -> None:
        async with Told(peer) as told:
            asyncio.get_running_loop().call_later(0.08, peer.send, deliveries([named("1")]))
            assert await told.source.poll(10) is not None

    with_peer(Peer(answers={queues.Declare: queues.DeclareOk("q", 1, 1)}), story)


def test_a_position_is_a_record_that_a_topic_takes() -> None:
    identity = identity_of(Delivery(1, False, "", "", BasicProperties(message_id="x"), b""))
    both = [identity] * 2 * PREFETCH_MAX  # This batch, and what is left of the one before.
    record = record_of("n", {"messages": both})
    assert len(record.value or b"") < 1_000_000


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"prefetch": 0}, r"options\.prefetch"),
        ({"prefetch": PREFETCH_MAX + 1}, r"options\.prefetch"),
        ({"que": "q"}, r'unknown key "options\.que"; did you mean "options\.queue"'),
    ],
)
def test_mistakes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Bench().make("amqp-source", **{**OPTIONS, **options})
