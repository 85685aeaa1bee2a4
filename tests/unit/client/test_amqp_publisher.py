"""Publishing with confirmations, to peers that do as they please."""

import asyncio

import pytest

from entrepot.client import amqp_publisher
from entrepot.client.amqp_publisher import AmqpRefused, EncodedMessage, NotTaken, Outgoing, connect
from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods import basic, channel, connection
from entrepot.wire.amqp.methods import exchange as exchanges
from entrepot.wire.amqp.properties import BasicProperties, PropertyView, encode
from tests.unit.client.fake_amqp import FRAME_BYTES_MAX, Peer, ack, frames, with_peer

ONE = Outgoing("x", "k", (("h", b"v"), ("raw", b"\xff"), ("none", None)), b"body")


def named(name: str) -> bytes:
    return encode(BasicProperties(message_id=name))


def test_all_are_sent_and_confirmed() -> None:
    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login("ana", "secret"))
        large = ONE._replace(body=b"x" * 20_000)
        await publisher.publish([ONE, ONE, large], mandatory=True)
        publisher.close()
        (said,) = peer.heard(connection.StartOk)
        assert said.response == b"\0ana\0secret"
        target = peer.published[0].target
        assert target == ("x", True, False)
        messages = [message for run in peer.published for message in run.messages]
        assert [len(body) for _, body in messages] == [4, 4, 20_000]
        envelope = messages[0][0]
        assert (envelope.exchange, envelope.subject) == ("x", "k")
        view = PropertyView(envelope.head)
        assert view.get("delivery_mode") == 2
        assert view.get("headers") == {"h": "v", "raw": b"\xff", "none": None}

    with_peer(Peer(), story)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (method_frame(1, basic.Nack(1)), NotTaken, "does not take"),
        (
            frames(1, basic.Return(312, "NO_ROUTE", "x", "k")) + ack(1),
            NotTaken,
            "exchange 'x', routing key 'k': NO_ROUTE",
        ),
        (method_frame(1, channel.Close(404, "no exchange")), AmqpRefused, "no exchange"),
        (method_frame(0, connection.Close(320, "forced")), AmqpRefused, "forced"),
        (b"garbage that is none", BadAnswer, "does not speak AMQP"),
        (b"\x01\0\x01\0\0\0\x04\0\x63\0\x63\xce", BadAnswer, "does not speak AMQP"),
    ],
)
def test_what_goes_wrong(answer: bytes, error: type[ClientError], text: str) -> None:
    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login())
        with pytest.raises(error, match=text):
            await publisher.publish([ONE], mandatory=True)
        publisher.close()

    with_peer(Peer(lambda _: answer), story)


def test_each_message_has_its_outcome() -> None:
    """The second is returned, the third and fourth refused together, the rest confirmed."""
    answer = (
        method_frame(1, basic.Ack(1))
        + frames(1, basic.Return(312, "NO_ROUTE", "x", "k"), named("m1"), b"1")
        + method_frame(1, basic.Ack(2))
        + method_frame(1, basic.Nack(4, True))
        + method_frame(1, basic.Ack(5))
    )

    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login())
        messages = [EncodedMessage("x", "k", named(f"m{n}"), b"%d" % n) for n in range(5)]
        outcome = await publisher.offer(messages, mandatory=True)
        assert outcome.nacked == [2, 3]
        (returned,) = outcome.returned
        assert returned[:2] == ("m1", "exchange 'x', routing key 'k': NO_ROUTE")
        peer.answer = lambda count: ack(count)
        assert await publisher.offer(messages[:1], mandatory=True) == ([], [])
        publisher.close()

    with_peer(Peer(lambda count: answer if count == 5 else b""), story)


def test_properties_fit_into_a_frame() -> None:
    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login())
        largest = publisher.properties_bytes_max
        header = "h" * (largest - len(encode(BasicProperties(headers={"h": ""}))))
        properties = encode(BasicProperties(headers={"h": header}))
        assert len(properties) == largest
        await publisher.offer([EncodedMessage("", "q", properties, b"")], mandatory=True)
        publisher.close()
        # With frame and content header it is what was agreed on.
        assert largest == FRAME_BYTES_MAX - 8 - 12

    with_peer(Peer(), story)


def test_an_exchange_that_is_not_there() -> None:
    missing = channel.Close(404, "NOT_FOUND - no exchange 'x' in vhost '/'")

    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login())
        with pytest.raises(AmqpRefused, match="no exchange 'x'") as refused:
            await publisher.check_exchange("x")
        assert refused.value.code == 404
        assert not refused.value.retriable
        assert not publisher.is_open

    with_peer(Peer(answers={exchanges.Declare: missing}), story)


def test_a_peer_that_does_not_confirm(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(peer: Peer) -> None:
        publisher = await connect(peer.address, Login())
        monkeypatch.setattr(amqp_publisher, "TIMEOUT_S", 0.05)
        with pytest.raises(Unreachable, match="confirms nothing"):
            await publisher.publish([ONE], mandatory=True)

    with_peer(Peer(lambda _: b""), story)


def test_nobody_is_there() -> None:
    with pytest.raises(Unreachable, match="no broker answers"):
        asyncio.run(connect("127.0.0.1:1", Login()))
