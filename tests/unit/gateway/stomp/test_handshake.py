"""CONNECT: versions, logins, virtual hosts."""

import asyncio

import pytest

from entrepot.broker.users import user_record
from entrepot.core import limits
from entrepot.wire.stomp.frames import VERSIONS, Frame
from tests.unit.gateway.amqp.node import FakeLink, Node, on_node
from tests.unit.gateway.stomp.peer import Peer, connected, context_of


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("command", ["CONNECT", "STOMP"])
@on_node()
async def test_a_client_is_told_what_was_agreed_on(node: Node, version: str, command: str) -> None:
    peer = Peer(context_of(node), version=version)
    frame = await peer.connect(command, login="guest", passcode="guest")
    assert frame.headers.keys() == {"version", "heart-beat", "session", "server"}
    assert frame.headers["heart-beat"] == "0,0"
    assert frame.headers["server"] == "entrepot/1.2.3"
    [session] = node.broker.sessions
    facts = session.facts()
    assert (facts.user, facts.vhost, facts.protocol) == ("guest", "/", f"STOMP {version}")


@on_node()
async def test_a_terminal_says_as_little_as_it_likes(node: Node) -> None:
    peer = Peer(context_of(node), version="1.0")
    peer.write(b"CONNECT\r\n\r\n\0\r\n")
    [frame] = await peer.told()
    assert frame.command == "CONNECTED"


@on_node()
async def test_no_common_version(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.say("CONNECT", accept_version="2.0,3.1", host="/")
    [error] = await peer.told()
    assert error.headers["version"] == "1.0,1.1,1.2"
    assert error.headers["message"] == "supported versions are 1.0,1.1,1.2"
    assert peer.link.closed


@pytest.mark.parametrize("frame", [b"SEND\ndestination:/queue/a\n\n\0", b"DISCONNECT\n\n\0"])
@on_node()
async def test_connect_comes_first(node: Node, frame: bytes) -> None:
    peer = Peer(context_of(node))
    peer.write(frame)
    assert await peer.refused() == "the first frame must be CONNECT or STOMP"
    assert not node.broker.vhosts.default.queues


@on_node()
async def test_connect_comes_once(node: Node) -> None:
    peer = await connected(node)
    peer.say("CONNECT", accept_version="1.2", host="/")
    assert await peer.refused() == "CONNECT on a connection that is open already"


@on_node()
async def test_a_wrong_password(node: Node) -> None:
    for login in ({"login": "guest", "passcode": "wrong"}, {"login": "nobody", "passcode": "x"}):
        peer = Peer(context_of(node))
        peer.say("CONNECT", accept_version="1.2", host="/", receipt="r", **login)
        await asyncio.sleep(limits.LOGIN_FAILURE_MS / 1_000 - 0.01)
        assert peer.heard() == []  # It does not come at once.
        [error] = await peer.told()
        assert error.headers["message"] == "access refused, wrong login or passcode"
        assert error.headers["receipt-id"] == "r"
    assert len(node.broker.sessions) == 0


@on_node()
async def test_guest_comes_from_this_machine_only(node: Node) -> None:
    peer = Peer(context_of(node), FakeLink(peer="192.0.2.7:4000"))
    peer.say("CONNECT", accept_version="1.2", host="/")
    assert "access refused" in await peer.refused()


@on_node()
async def test_users(node: Node) -> None:
    user = await node.broker.users.with_password("ana", "secret")
    await node.broker.change_security(user_record(user))
    context = context_of(node, asks_users=True)
    await Peer(context).connect(login="ana", passcode="secret")
    for wrong in ({}, {"login": "guest", "passcode": "guest"}, {"login": "ana"}):
        peer = Peer(context)
        peer.say("CONNECT", accept_version="1.2", host="/", **wrong)
        assert "access refused" in await peer.refused()


@on_node()
async def test_a_certificate_is_a_login(node: Node) -> None:
    peer = Peer(context_of(node, asks_users=True), FakeLink(subject="CN=ana"))
    await peer.connect()
    [session] = node.broker.sessions
    assert session.facts().user == "CN=ana"


@on_node()
async def test_hosts_are_virtual_hosts(node: Node) -> None:
    await node.broker.vhosts.create("blue")
    for host, vhost in (("blue", "blue"), ("/", "/"), ("localhost", "/"), ("", "/")):
        peer = Peer(context_of(node))
        peer.say("CONNECT", accept_version="1.2", host=host)
        [frame] = await peer.told()
        assert frame.command == "CONNECTED"
        assert [*node.broker.sessions][-1].facts().vhost == vhost


@on_node(authorizes=True)
async def test_a_virtual_host_must_be_open_to_the_user(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.say("CONNECT", accept_version="1.2", host="/")
    assert await peer.refused() == "access to vhost '/' refused for user 'guest'"


@on_node()
async def test_frames_behind_connect_are_served_after_it(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.write(
        b"CONNECT\naccept-version:1.2\nhost:/\n\n\0"
        b"SEND\ndestination:/queue/a\nreceipt:1\\c2\n\nhello\0"
    )
    first, second = await peer.told()
    assert first.command == "CONNECTED"
    assert second == Frame("RECEIPT", {"receipt-id": "1:2"})


@on_node()
async def test_who_does_not_log_in_is_sent_away(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.write(b"CONNECT\n")
    await asyncio.sleep(limits.LOGIN_MS_MAX / 1_000 - 1)
    assert peer.link.closed is None
    await asyncio.sleep(2)
    assert peer.link.closed == "no login in time"


# Heart-beats.


@on_node()
async def test_heart_beats_both_ways(node: Node) -> None:
    peer = Peer(context_of(node))
    frame = await peer.connect(heart_beat="2000,1000")
    assert frame.headers["heart-beat"] == "1000,2000"
    for _ in range(10):  # Newlines in time, in both directions.
        peer.link.writes.clear()
        await asyncio.sleep(1)
        assert set(b"".join(peer.link.writes)) == set(b"\n")
        peer.write(b"\n")
    assert peer.link.closed is None
    await asyncio.sleep(6)
    assert peer.link.closed == "no heart-beat from the client, interval: 2000 ms"


@on_node()
async def test_intervals_have_bounds(node: Node) -> None:
    peer = Peer(context_of(node))
    frame = await peer.connect(heart_beat="1,9999999999")
    assert frame.headers["heart-beat"] == "86400000,100"


@on_node()
async def test_without_heart_beats_silence_is_fine(node: Node) -> None:
    peer = await connected(node)
    await asyncio.sleep(3_600)
    assert peer.link.closed is None
    assert peer.link.writes == []


@on_node()
async def test_heart_beats_end_with_the_connection(node: Node) -> None:
    peer = await connected(node, heart_beat="1000,1000")
    peer.adapter.closed("gone")
    peer.link.writes.clear()
    await asyncio.sleep(10)
    assert peer.link.writes == []


@on_node()
async def test_a_login_that_comes_too_late_leaves_nothing(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.say("CONNECT", accept_version="1.2", host="/", heart_beat="0,1000")
    peer.adapter.give_up("no login in time")
    await asyncio.sleep(10)
    assert peer.adapter.writes == 0
    assert len(node.broker.sessions) == 0


@on_node()
async def test_a_wrong_heart_beat(node: Node) -> None:
    peer = Peer(context_of(node))
    peer.say("CONNECT", accept_version="1.2", host="/", heart_beat="often")
    assert "is not two numbers" in await peer.refused()
