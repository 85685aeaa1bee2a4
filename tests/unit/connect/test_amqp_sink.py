"""Batches of messages to peers that refuse some of them."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from entrepot.connect.interface import ConnectError, Unavailable
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods import basic, channel
from entrepot.wire.amqp.methods import exchange as exchanges
from entrepot.wire.amqp.properties import BasicProperties, encode
from tests.unit.client.fake_amqp import Peer, ack, frames, with_peer
from tests.unit.connect.alone import PART, Bench, message


class PatientBench(Bench):
    """Tries again at once."""

    async def _persist(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        self.failures: list[str] = []
        while True:
            try:
                return await attempt()
            except Unavailable as error:
                self.failures.append(str(error))


def written(peer: Peer, *messages: Any, **options: Any) -> PatientBench:
    bench = PatientBench()

    async def story(peer: Peer) -> None:
        url = f"amqp://ana:secret@{peer.address}"
        sink = bench.make("amqp-sink", url=url, **options)
        try:
            assert await sink.open([PART]) == {}
            await sink.write(messages)
        finally:
            await sink.close()

    with_peer(peer, story)
    return bench


def test_a_batch_is_confirmed() -> None:
    peer = Peer()
    bench = written(peer, message(0, b"a"), message(1, b"b"), exchange="x", routing_key="k")
    assert peer.bodies == [b"a", b"b"]
    (run,) = peer.published
    assert run.target == ("x", True, False)
    assert [envelope.subject for envelope, _ in run.messages] == ["k", "k"]
    assert peer.heard(exchanges.Declare)[0].passive
    assert bench.rejected == []


def test_a_nack_is_sent_again_by_itself() -> None:
    answers = [
        method_frame(1, basic.Ack(1)) + method_frame(1, basic.Nack(2)) + ack(3),
        method_frame(1, basic.Nack(4)),
    ]
    peer = Peer(lambda count: answers.pop(0) if answers else ack(count))
    bench = written(peer, *(message(n, b"%d" % n) for n in range(3)))
    assert peer.bodies == [b"0", b"1", b"2", b"1", b"1"]
    assert bench.rejected == []
    assert len(bench.failures) == 2
    assert "refuses 1 messages" in bench.failures[0]
    assert "secret" not in bench.failures[0]


def test_what_no_queue_takes_is_rejected() -> None:
    returned = encode(BasicProperties(message_id="t-0-1"))
    answer = frames(1, basic.Return(312, "NO_ROUTE", "", "t"), returned, b"b") + ack(3)
    bench = written(Peer(lambda _: answer), *(message(n, b"") for n in range(3)))
    assert bench.rejected == [(1, "exchange '', routing key 't': NO_ROUTE")]


def test_unroutable_messages_may_be_dropped() -> None:
    peer = Peer()
    written(peer, message(0, b""), mandatory=False)
    assert not peer.published[0].target.mandatory


def test_the_culprit_of_a_refused_batch_is_found() -> None:
    """A channel that is closed says nothing of which message it is about."""

    def answer(count: int) -> bytes:
        if b"bad" in peer.bodies[-count:]:
            return method_frame(1, channel.Close(406, "PRECONDITION_FAILED - too large"))
        return ack(count)

    peer = Peer(answer)
    bench = written(peer, message(0, b"one"), message(1, b"bad"), message(2, b"two"))
    assert bench.rejected == [(1, "PRECONDITION_FAILED - too large")]
    assert peer.bodies[3:] == [b"one", b"bad", b"two"]
    assert peer.connections == 3


def test_who_was_taken_by_itself_is_not_sent_again() -> None:
    """The second is refused with the batch, and alone for now: the first is done with."""
    refused = method_frame(1, channel.Close(406, "PRECONDITION_FAILED"))
    answers = [refused, ack(1), method_frame(1, basic.Nack(2))]
    peer = Peer(lambda count: answers.pop(0) if answers else ack(count))
    bench = written(peer, message(0, b"one"), message(1, b"two"))
    assert peer.bodies == [b"one", b"two", b"one", b"two", b"two"]
    assert bench.rejected == []


def test_a_refusal_that_is_about_us_ends_it() -> None:
    refusal = method_frame(1, channel.Close(403, "ACCESS_REFUSED - write"))
    with pytest.raises(ConnectError, match=r"amqp://127\.0\.0\.1:\d+/%2F: ACCESS_REFUSED - write"):
        written(Peer(lambda _: refusal), message(0, b""))


def test_a_broken_connection_is_made_anew() -> None:
    answers = [method_frame(0, basic.Nack(1))[:3] + b"\0" * 20]  # Nonsense would end it.
    peer = Peer(lambda count: answers.pop() if answers else ack(count))
    with pytest.raises(ConnectError, match="does not speak AMQP"):
        written(peer, message(0, b"a"))
    hang_up = [True]

    def once(count: int) -> bytes:
        if hang_up:
            hang_up.pop()
            peer.hang_up()
            return b""
        return ack(count)

    peer = Peer(once)
    bench = written(peer, message(0, b"a"), message(1, b"b"))
    assert peer.bodies == [b"a", b"b"] * 2
    assert "lost" in bench.failures[0]


def test_headers_that_no_frame_holds() -> None:
    large = message(0, b"v")
    record = large.record._replace(headers=(("h", b"x" * 9_000),))
    bench = written(Peer(), large._replace(record=record), message(1, b"v"))
    ((offset, reason),) = bench.rejected
    assert offset == 0
    assert "the broker takes 8172" in reason


def test_a_key_that_is_missing_is_rejected() -> None:
    peer = Peer()
    bench = written(peer, message(0, b"a"), message(1, b"b", key=b"k"), routing_key="{key}")
    assert bench.rejected == [(0, "no key for the routing key")]
    assert peer.bodies == [b"b"]


def test_an_exchange_that_is_missing_is_said_before_anything_is_read() -> None:
    missing = channel.Close(404, "NOT_FOUND - no exchange 'x' in vhost '/'")
    with pytest.raises(ConnectError, match="no exchange 'x'"):
        written(Peer(answers={exchanges.Declare: missing}), exchange="x")
