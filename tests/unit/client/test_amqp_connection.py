"""The beginning and the end of a connection, and whether anybody is still there."""

import asyncio
from collections.abc import Callable

import pytest

from entrepot.client import amqp_connection
from entrepot.client.amqp_connection import AmqpConnection, AmqpRefused
from entrepot.client.errors import BadAnswer, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.net.sockets import SocketNet
from entrepot.wire.amqp.methods import basic, channel, connection
from tests.unit.client.fake_amqp import Peer, with_peer

WAIT_S = 30


async def opened(peer: Peer, heartbeat_s: int = 0, vhost: str = "/") -> AmqpConnection:
    return await AmqpConnection.open(
        SocketNet(), peer.address, Login(), vhost=vhost, heartbeat_s=heartbeat_s
    )


async def until(condition: Callable[[], object]) -> None:
    for _ in range(WAIT_S * 100):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


def test_it_says_where_it_goes_and_when_it_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_connection, "LEAVE_S", 10 * WAIT_S)

    async def story(peer: Peer) -> None:
        made = await opened(peer, vhost="shop")
        async with asyncio.timeout(WAIT_S):  # It does not wait longer than it must.
            await made.leave()
        assert peer.heard(connection.Open)[0].virtual_host == "shop"
        assert peer.heard(connection.TuneOk)[0].heartbeat == 0
        assert len(peer.heard(connection.Close)) == 1

    with_peer(Peer(), story)


def test_who_is_not_let_go_goes_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_connection, "LEAVE_S", 0.02)

    async def story(peer: Peer) -> None:
        made = await opened(peer)
        del peer.answers[connection.Close]
        await made.leave()
        await asyncio.sleep(0)
        assert not made.is_open

    with_peer(Peer(), story)


def test_a_login_that_is_refused() -> None:
    answers = {connection.StartOk: connection.Close(403, "ACCESS_REFUSED - Login was refused")}

    async def story(peer: Peer) -> None:
        with pytest.raises(AmqpRefused, match="Login was refused") as refused:
            await opened(peer)
        assert (refused.value.code, refused.value.retriable) == (403, False)

    with_peer(Peer(answers=answers), story)


@pytest.mark.parametrize("code", [320, 405, 506, 541])
def test_what_may_pass(code: int) -> None:
    async def story(peer: Peer) -> None:
        with pytest.raises(AmqpRefused, match="later") as refused:
            await opened(peer)
        assert refused.value.retriable

    with_peer(Peer(answers={connection.Open: connection.Close(code, "later")}), story)


def test_a_channel_that_is_closed_ends_the_connection() -> None:
    async def story(peer: Peer) -> None:
        made = await opened(peer)
        with pytest.raises(AmqpRefused, match="no such"):
            await made.ask(basic.Qos(), basic.QosOk)
        await until(lambda: peer.heard(connection.Close))
        assert [len(peer.heard(kind)) for kind in (channel.CloseOk, connection.Close)] == [1, 1]

    with_peer(Peer(answers={basic.Qos: channel.Close(404, "no such")}), story)


def test_another_answer_than_the_one_asked_for() -> None:
    async def story(peer: Peer) -> None:
        made = await opened(peer)
        with pytest.raises(BadAnswer, match=r"says basic\.consume-ok, not basic\.qos-ok"):
            await made.ask(basic.Qos(), basic.QosOk)
        made.close()

    with_peer(Peer(answers={basic.Qos: basic.ConsumeOk("c")}), story)


def test_what_could_not_be_opened_is_closed() -> None:
    async def story(peer: Peer) -> None:
        with pytest.raises(BadAnswer, match=r"says channel\.open-ok, not connection\.open-ok"):
            await opened(peer)
        async with asyncio.timeout(5):
            await peer.was_left.wait()

    with_peer(Peer(answers={connection.Open: channel.OpenOk()}), story)


def test_a_peer_that_says_nothing() -> None:
    async def story(peer: Peer) -> None:
        with pytest.raises(Unreachable, match="timed out"):
            await AmqpConnection.open(SocketNet(), peer.address, Login(), timeout_s=0.05)

    with_peer(Peer(is_silent=True), story)


def test_an_answer_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(peer: Peer) -> None:
        made = await opened(peer)
        monkeypatch.setattr(amqp_connection, "TIMEOUT_S", 0.05)
        del peer.answers[basic.Qos]
        with pytest.raises(Unreachable, match=r"does not answer basic\.qos"):
            await made.ask(basic.Qos(), basic.QosOk)

    with_peer(Peer(), story)


def test_hearts_beat_until_nobody_answers() -> None:
    async def story(peer: Peer) -> None:
        made = await opened(peer, heartbeat_s=60)
        assert peer.heard(connection.TuneOk)[0].heartbeat == 1
        await made.ask(basic.Qos(), basic.QosOk)
        made._beats_missed = amqp_connection.BEATS_MISSED_MAX - 1  # Else it would take seconds.
        await until(lambda: peer.beats)
        assert peer.beats == 1
        with pytest.raises(Unreachable, match="nothing was heard for too long"):
            await made.ask(basic.Qos(), basic.QosOk)

    tuned = connection.Tune(10, 8_192, 1)
    with_peer(Peer(answers={connection.StartOk: tuned}), story)


def test_who_is_heard_is_there() -> None:
    async def story(peer: Peer) -> None:
        made = await opened(peer, heartbeat_s=1)
        made._beats_missed = amqp_connection.BEATS_MISSED_MAX - 1
        await made.ask(basic.Qos(), basic.QosOk)
        await asyncio.sleep(0.7)
        await made.ask(basic.Qos(), basic.QosOk)
        made.close()

    with_peer(Peer(), story)
