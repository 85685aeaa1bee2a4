"""TLS where it differs from plain sockets: handshakes, certificates, and bytes that are no TLS."""

import asyncio
import logging
import socket
import ssl
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from entrepot.core import limits
from entrepot.core.ports import NOTHING_UNFINISHED, Link, Unfinished
from entrepot.net.tls import TlsLink, TlsNet, client_context, server_context, subject_name
from entrepot.net.unfinished import UnfinishedInput
from tests import certificates
from tests.certificates import Certificate
from tests.contracts.peers import Guests, Peer, connect

HOST = "127.0.0.1"

Subject = tuple[tuple[tuple[str, str], ...], ...]


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("own"), "own", subject="/CN=node")


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificates.make(tmp_path_factory.mktemp("ca"), "ca", subject="/CN=authority")


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Awaitable[None]], None]:
    return request.param  # type: ignore[no-any-return]


def serving(own: Certificate, client_ca: str | None = None, **options: Any) -> TlsNet:
    return TlsNet(server=server_context(own.certificate, own.key, client_ca), **options)


def trusting(own: Certificate, **options: Any) -> TlsNet:
    return TlsNet(client=client_context(own.certificate, **options))


async def raw(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOST, port)


async def eventually(condition: Callable[[], bool]) -> None:
    for _ in range(500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise TimeoutError


async def is_gone(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(5):
            return await reader.read() is not None
    except ConnectionError:
        return True


# --- handshakes


def test_a_slow_handshake_has_its_time_and_holds_up_nobody(
    run: Any, own: Certificate, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        reader, writer = await raw(listener.port)
        peer = await connect(trusting(own), HOST, listener.port)
        there = await guests.next()
        peer.link.send([b"hello"])
        assert await there.has(5) == b"hello"
        assert await is_gone(reader)
        assert guests.count == 1
        writer.close()
        server.close()
        await peer.end()

    monkeypatch.setattr(limits, "TLS_HANDSHAKE_MS_MAX", 1_000)
    with caplog.at_level(logging.WARNING, "entrepot.net"):
        run(body())
    assert any("the handshake took too long" in record.getMessage() for record in caplog.records)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\xff\xff"]
)
def test_what_is_no_handshake(
    run: Any, own: Certificate, garbage: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        reader, writer = await raw(listener.port)
        writer.write(garbage)
        assert await is_gone(reader)
        writer.close()
        assert guests.count == 0
        server.close()

    monkeypatch.setattr(limits, "TLS_HANDSHAKE_MS_MAX", 300)
    run(body())


def test_a_peer_that_leaves_during_the_handshake(
    run: Any, own: Certificate, caplog: pytest.LogCaptureFixture
) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        _, writer = await raw(listener.port)
        writer.write(b"\x16\x03\x01")
        writer.close()
        await eventually(lambda: "left during the handshake" in caplog.text)
        await eventually(lambda: not server._links)
        assert guests.count == 0
        server.close()

    with caplog.at_level(logging.WARNING, "entrepot.net"):
        run(body())


def test_a_net_that_is_closed_during_a_handshake(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        reader, writer = await raw(listener.port)
        await eventually(lambda: bool(server._links))
        server.close()
        assert await is_gone(reader)
        writer.close()
        await eventually(lambda: not [x for x in asyncio.all_tasks() if "greet" in repr(x)])

    run(body())


def test_whoever_shakes_hands_counts_as_connected(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own, connections_max=1), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        _, writer = await raw(listener.port)
        await eventually(lambda: bool(server._links))
        other, other_writer = await raw(listener.port)
        assert await is_gone(other)
        writer.close()
        other_writer.close()
        server.close()

    run(body())


# --- certificates


def test_a_server_nobody_vouches_for(run: Any, own: Certificate, ca: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        client = trusting(ca)
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.connect(HOST, listener.port, Peer)
        assert not client._links
        assert guests.count == 0
        server.close()

    run(body())


def test_a_server_by_another_name(run: Any, own: Certificate, tmp_path: Path) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen("127.0.0.2", 0, guests.accept)
        with pytest.raises(ssl.SSLCertVerificationError, match="match"):
            await trusting(own).connect("127.0.0.2", listener.port, Peer)
        peer = await connect(trusting(own, check_host=False), "127.0.0.2", listener.port)
        peer.link.close("done")
        await peer.end()
        server.close()

    run(body())


def test_a_client_is_who_its_certificate_says(
    run: Any, own: Certificate, ca: Certificate, tmp_path: Path
) -> None:
    mine = certificates.make(tmp_path, "mine", subject="/O=Acme/OU=a, b/CN=ana", signer=ca)

    async def body() -> None:
        server, guests = serving(own, ca.certificate), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        client = trusting(own, certificate=mine.certificate, key=mine.key)
        peer = await connect(client, HOST, listener.port)
        there = await guests.next()
        assert there.link.subject == "CN=ana,OU=a\\, b,O=Acme"
        assert peer.link.subject == "CN=node"
        server.close()
        await peer.end()

    run(body())


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_client_nobody_vouches_for(
    run: Any, own: Certificate, ca: Certificate, is_shown: bool
) -> None:
    async def body() -> None:
        server, guests = serving(own, ca.certificate), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        shown = {"certificate": own.certificate, "key": own.key} if is_shown else {}
        try:  # In TLS 1.3 a client is through before the server has looked at it.
            peer = await connect(trusting(own, **shown), HOST, listener.port)
            assert await peer.end() in ("not TLS any more", "Connection reset by peer")
        except OSError:
            pass
        assert guests.count == 0
        server.close()

    run(body())


def test_without_a_ca_nobody_is_asked(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        peer = await connect(trusting(own), HOST, listener.port)
        assert (await guests.next()).link.subject is None
        server.close()
        await peer.end()

    run(body())


def test_a_key_that_needs_a_password_does_not_ask_for_it(own: Certificate, tmp_path: Path) -> None:
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-in", own.key, "-aes256", "-passout", "pass:x", "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(OSError, match=r"."):
        server_context(own.certificate, str(locked), None)


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_old_protocols_are_not_spoken(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        old = client_context(own.certificate)
        old.set_ciphers("DEFAULT@SECLEVEL=0")
        old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError, match=r"(?i)protocol|version|alert"):
            await TlsNet(client=old).connect(HOST, listener.port, Peer)
        assert guests.count == 0
        server.close()

    run(body())


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("commonName", "ana"),),), "CN=ana"),
        (((("countryName", "IS"),), (("commonName", "ana"),)), "CN=ana,C=IS"),
        (((("organizationName", "a,O=b"),),), r"O=a\,O\=b"),
        (((("commonName", "a"), ("userId", "7")),), "CN=a+UID=7"),
        (((("commonName", " a "),),), r"CN=\ a\ "),
        (((("commonName", "#a+b;<c>\\"),),), r"CN=\#a\+b\;\<c\>\\"),
        (((("emailAddress", "a@b"),),), "emailAddress=a@b"),
    ],
)
def test_a_subjects_name_reads_one_way_only(subject: Subject, name: str) -> None:
    assert subject_name(subject) == name


# --- bytes


def test_bytes_that_are_not_sealed_end_the_link(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        peer = await connect(trusting(own), HOST, listener.port)
        there = await guests.next()
        assert isinstance(peer.link, TlsLink)
        peer.link._socket.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert await there.end() == "not TLS any more"
        assert not there.data
        await peer.end()
        server.close()

    run(body())


def test_a_peer_that_just_closes_its_socket(run: Any, own: Certificate) -> None:
    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        peer = await connect(trusting(own), HOST, listener.port)
        there = await guests.next()
        assert isinstance(peer.link, TlsLink)
        peer.link._socket.shutdown(socket.SHUT_WR)
        assert await there.end() == "closed by peer"
        server.close()
        await peer.end()

    run(body())


def test_a_large_answer_is_sealed_piece_by_piece(run: Any, own: Certificate) -> None:
    """The memory a slow reader costs is the plain bytes, and one piece of sealed ones."""

    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        peer = await connect(trusting(own), HOST, listener.port)
        there = await guests.next()
        there.link.pause()
        content = bytes(range(256)) * 64 * 1024
        peer.link.send([memoryview(content)])
        await asyncio.sleep(0.1)
        assert isinstance(peer.link, TlsLink)
        assert peer.link.backlog > limits.MIB
        assert len(peer.link._encrypted) < limits.MIB
        assert peer.link._outgoing.pending == 0
        there.link.resume()
        assert await there.has(len(content)) == content
        assert peer.link.backlog == 0
        server.close()
        await peer.end()

    run(body())


def test_what_came_with_the_handshake_is_not_forgotten(run: Any, own: Certificate) -> None:
    """A client may send its first request before the server's last word is read."""

    async def body() -> None:
        server, guests = serving(own), Guests()
        listener = await server.listen(HOST, 0, guests.accept)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = client_context(own.certificate).wrap_bio(incoming, outgoing, False, HOST)
        reader, writer = await raw(listener.port)
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                writer.write(outgoing.read())
                incoming.write(await reader.read(65536))
        tls.write(b"first request")
        writer.write(outgoing.read())  # The handshake's end and the request, together.
        there = await guests.next()
        assert await there.has(13) == b"first request"
        writer.close()
        await there.end()
        server.close()

    run(body())


# --- input that is not finished


class Hoarder(Peer):
    """Keeps what it gets, and never deals with it."""

    def unfinished(self) -> Unfinished:
        return Unfinished(len(self.data), 0, True) if self.data else NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self.link.close(reason)


def test_unfinished_input_counts_under_tls(run: Any, own: Certificate) -> None:
    async def body() -> None:
        unfinished, hoarders = UnfinishedInput(limits.MIB), []

        def accept(link: Link) -> Hoarder:
            hoarders.append(Hoarder(link))
            return hoarders[-1]

        server = serving(own, unfinished=unfinished)
        listener = await server.listen(HOST, 0, accept)
        small = await connect(trusting(own), HOST, listener.port)
        large = await connect(trusting(own), HOST, listener.port)
        small.link.send([b"hello"])
        await eventually(lambda: unfinished.bytes_held == 5)
        large.link.send([bytes(2 * limits.MIB)])
        await large.end()
        assert not small.reasons
        assert unfinished.bytes_held == 5
        server.close()
        await small.end()

    run(body())
