"""Links with TLS: what is sent is encrypted on its way to the socket.

A `TlsLink` is a `SocketLink` with OpenSSL between its queue and its socket. OpenSSL works on
memory only; `SocketLink` decides when to read and write. Ranges of files have to be encrypted,
so they are read in pieces. A piece is encrypted when the socket has taken the one before, so a
large answer costs no more memory than a small one.

The handshake comes first and has a time limit. A receiver is attached when it is done, so the
subject of the peer's certificate is known by then.
"""

import asyncio
import logging
import socket
import ssl
from asyncio import AbstractEventLoop
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.ports import Buffer, Chunk, FileRange, Link, Receiver, ServingReceiver
from entrepot.net.closings import Closings
from entrepot.net.link import READS_PER_WAKE_MAX, LinkState, SocketLink, read_range, words
from entrepot.net.sockets import SocketNet
from entrepot.net.unfinished import UnfinishedInput

ENCRYPTED_BYTES_MAX = 256 * limits.KIB  # At once; also what is read at once from a file.
READ_BYTES_MAX = 64 * limits.KIB
UNASKED_BYTES_MAX = 64 * limits.KIB  # Of TLS's own messages, between two answers.

# RFC 4514's names for the attributes of a certificate's subject.
_SHORT_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}

logger = logging.getLogger("entrepot.net")


def server_context(certificate: str, key: str, client_ca: str | None) -> ssl.SSLContext:
    """Make a context from PEM files. With a CA, clients must show a certificate from it.

    Raises OSError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    # An encrypted key fails to load; without this OpenSSL would ask at the terminal.
    context.load_cert_chain(certificate, key, password=lambda: b"")
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(
    ca: str | None = None,
    certificate: str | None = None,
    key: str | None = None,
    *,
    check_host: bool = True,
) -> ssl.SSLContext:
    """Make a context from PEM files. Without a CA, those of the system are trusted.

    Raises OSError.
    """
    context = ssl.create_default_context(cafile=ca)
    context.check_hostname = check_host
    if certificate is not None:
        context.load_cert_chain(certificate, key, password=lambda: b"")
    return context


class TlsNet(SocketNet):
    """A net whose links use TLS: one context is for listening, the other for connecting."""

    def __init__(
        self,
        *,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
        connections_max: int = limits.CONNECTIONS_MAX,
        faults: Faults | None = None,
        unfinished: UnfinishedInput | None = None,
    ) -> None:
        super().__init__(connections_max=connections_max, faults=faults, unfinished=unfinished)
        self._server = server
        self._client = client

    def _new_link(
        self, loop: AbstractEventLoop, connected: socket.socket, host: str | None
    ) -> "TlsLink":
        context = self._server if host is None else self._client
        assert context is not None, "this net has no such side"
        return TlsLink(loop, connected, self._forget, self._faults, self._closings, context, host)

    def _welcome(self, link: SocketLink, accept: Callable[[Link], ServingReceiver]) -> None:
        assert isinstance(link, TlsLink)
        link.begin_handshake(lambda: super(TlsNet, self)._welcome(link, accept))

    async def _ready(self, link: SocketLink) -> None:
        assert isinstance(link, TlsLink)
        await link.do_handshake()


class TlsLink(SocketLink):
    __slots__ = ("_encrypted", "_encrypted_of", "_handshaking", "_incoming", "_outgoing", "_tls")

    def __init__(
        self,
        loop: AbstractEventLoop,
        connected: socket.socket,
        forget: Callable[[SocketLink], None],
        faults: Faults,
        closings: Closings,
        context: ssl.SSLContext,
        host: str | None,
    ) -> None:
        super().__init__(loop, connected, forget, faults, closings)
        self._incoming = ssl.MemoryBIO()  # From the socket; limited by what is read at once.
        self._outgoing = ssl.MemoryBIO()  # For the socket; moved to `_encrypted`.
        self._tls = context.wrap_bio(self._incoming, self._outgoing, host is None, host)
        self._encrypted = memoryview(b"")  # Not yet taken by the system.
        self._encrypted_of = 0  # How many bytes of the backlog are in it.
        self._handshaking: asyncio.Task[None] | None = None

    @property
    def subject(self) -> str | None:
        certificate: Any = self._tls.getpeercert()
        return subject_name(certificate["subject"]) if certificate else None

    # Handshake.

    def begin_handshake(self, done: Callable[[], None]) -> None:
        """Do the handshake in the background, then call `done`."""
        self._handshaking = self._loop.create_task(self._handshake(done))

    async def _handshake(self, done: Callable[[], None]) -> None:
        try:
            await self.do_handshake()
        except OSError as error:
            logger.warning("%s: closed: no TLS: %s", self._peer, words(error))
            self.abort("no TLS")
        except Exception as error:
            self._faults.caught(f"{self._peer}: the TLS handshake failed", error)
            self.abort("internal error")
        else:
            done()

    async def do_handshake(self) -> None:
        """Do the handshake. Raises OSError, of which ssl.SSLError is one."""
        try:
            async with asyncio.timeout(limits.TLS_HANDSHAKE_MS_MAX / 1_000):
                while not await self._handshake_step():
                    data = await self._loop.sock_recv(self._socket, READ_BYTES_MAX)
                    if not data:
                        raise ConnectionResetError(
                            "the peer left during the handshake; it may not speak TLS"
                        )
                    self._incoming.write(data)
        except TimeoutError:
            raise TimeoutError("the handshake took too long") from None

    async def _handshake_step(self) -> bool:
        """Take one step; return whether it was the last."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:  # Also when it failed: the output tells the peer why.
            if self._outgoing.pending:
                await self._loop.sock_sendall(self._socket, self._outgoing.read())
        return True

    def attach(self, receiver: Receiver) -> None:
        super().attach(receiver)
        self._loop.call_soon(self._go_on)  # Data may have come with the handshake.

    # Input.

    def resume(self) -> None:
        super().resume()
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """Deliver what was read and not yet given to the receiver."""
        if self._state is LinkState.OPEN and not self._is_paused and self._receiver is not None:
            self.guard(self._deliver)

    def _read(self) -> None:
        for _ in range(READS_PER_WAKE_MAX):
            try:
                data = self._socket.recv(READ_BYTES_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                self.abort(words(error))
                return
            if not data:
                self._peer_ended = True
                self.close("closed by peer")
                return
            self.traffic.bytes_received += len(data)
            self._incoming.write(data)
            self._deliver()
            if len(data) < READ_BYTES_MAX or self._is_paused or self._state is not LinkState.OPEN:
                return

    def _deliver(self) -> None:
        receiver = self._receiver
        assert receiver is not None
        while self._state is LinkState.OPEN and not self._is_paused:
            view = receiver.writable()
            try:
                size: Any = self._tls.read(len(view), view)
            except ssl.SSLWantReadError:
                if self._outgoing.pending > UNASKED_BYTES_MAX:
                    self.abort("TLS messages without end")
                return
            except ssl.SSLError as error:
                logger.warning("%s: closed: TLS: %s", self._peer, words(error))
                self.abort("not TLS any more")
                return
            if not size:
                self.close("closed by peer")
                return
            del view  # The receiver may resize its buffer.
            receiver.received(size)
            if self._holding is not None:
                self._holding.received()

    # Output.

    def _send_at_once(self, chunks: Sequence[Chunk]) -> bool:
        return False  # Everything has to be encrypted first.

    def _send_some(self) -> None:
        if not self._encrypted:
            self._encrypt()
        sent = self._socket.send(self._encrypted)
        self.traffic.bytes_sent += sent
        self._encrypted = self._encrypted[sent:]
        if not self._encrypted:
            self.backlog -= self._encrypted_of
            self._encrypted_of = 0

    def _encrypt(self) -> None:
        """Encrypt the next bytes of the queue."""
        queue = self._queue
        plain: list[Buffer] = []
        while queue and self._encrypted_of < ENCRYPTED_BYTES_MAX:
            chunk = queue.popleft()
            rest: Buffer | FileRange | None = None
            room = ENCRYPTED_BYTES_MAX - self._encrypted_of
            if isinstance(chunk, FileRange):
                chunk, rest = read_range(chunk, room)
            elif len(chunk) > room:
                chunk, rest = memoryview(chunk)[:room], memoryview(chunk)[room:]
            if rest is not None:
                queue.appendleft(rest)
            plain.append(chunk)
            self._encrypted_of += len(chunk)
        self._tls.write(b"".join(plain))
        self._encrypted = memoryview(self._outgoing.read())

    # Closing.

    def _shut(self) -> None:
        with suppress(OSError):
            self._tls.unwrap()  # Raises, because the peer's close-notify has not come.
        with suppress(OSError):
            self._socket.send(self._outgoing.read())
        super()._shut()

    def _drop(self) -> None:
        if self._handshaking is not None:
            self._handshaking.cancel()
            self._handshaking = None
        self._encrypted = memoryview(b"")
        super()._drop()


def subject_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Write the subject as RFC 4514 does, the most specific first: `CN=ana,OU=sales,O=Acme`."""
    return ",".join(
        "+".join(f"{_SHORT_NAMES.get(name, name)}={_escaped(value)}" for name, value in part)
        for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    """Escape what could make one value look like several."""
    text = "".join(f"\\{sign}" if sign in ',+"\\<>;=' else sign for sign in value)
    if text[:1] in ("#", " "):
        text = f"\\{text}"
    return f"{text[:-1]}\\ " if text.endswith(" ") and len(value) > 1 else text
