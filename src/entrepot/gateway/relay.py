"""Serves clients of queues on every node of a cluster: here if this node has the queues, otherwise
by passing bytes between the client and the node that has them, the *home*.

A node connects to the home's port for AMQP. It says `MAGIC`, gets a nonce, and says who the client
is and which protocol it speaks; with a secret of the cluster, it proves that it knows that. The
home answers with a byte, and after that everything is the client's. See
`docs/formats/relay.md`.

Without a secret the home believes nothing of it: to the home the client then is that node. So the
node refuses clients that could do less or more than itself.

A connection ends when its home is no home any more, and the client connects again, to any node.
AMQP 0-9-1 is forwarded with more care, see `gateway.amqp.forwarding`.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from entrepot.broker.login import LoginPolicy, host_of, is_loopback
from entrepot.broker.replication import NOBODY, Peer, QueuesHome
from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.ports import (
    NOTHING_UNFINISHED,
    Entropy,
    Link,
    Net,
    Receiver,
    ServingReceiver,
    Unfinished,
)
from entrepot.gateway.front import Front

log = logging.getLogger("entrepot.relay")

MAGIC = b"ENTREPOT"  # As long as the greeting of AMQP, on whose port it is said.
MOVED = "the queues are at another node now"
_NONCE_BYTES = 32
_PROOF_BYTES = 32
_SIZE_BYTES = 2
_ACCEPTED, _REFUSED = b"\1", b"\0"
_PATIENCE_S = 60.0  # How long a client waits for a home.
_RETRY_S = 0.2
_CONNECT_S = 5.0
_AREA_BYTES = 64 * limits.KIB
_HIGH = limits.BACKLOG_BYTES_HIGH

Accept = Callable[[Link], ServingReceiver]


class Introduction(msgspec.Struct, frozen=True):
    """Who the client is whose bytes follow."""

    protocol: str  # As the port that it came in by.
    peer: str
    subject: str | None = None


class Needs(NamedTuple):
    """What all connections share."""

    queues: QueuesHome
    net: Net
    entropy: Entropy
    faults: Faults
    policy: LoginPolicy
    secret: bytes  # Empty means: there is none.


class Relay:
    """Of one node."""

    def __init__(self, around: Needs) -> None:
        self._around = around
        self._served: dict[str, Accept] = {}

    def accepts(self, protocol: str, accept: Accept) -> Accept:
        """Return what accepts clients of a protocol, whoever has the queues. `accept` accepts them
        where the queues are. What ends with `_tls` stands for the same without, and the
        reverse."""
        self._served.setdefault(protocol, accept)
        return lambda link: _Client(link, protocol, accept, self._around)

    def accept_node(self, link: Link) -> ServingReceiver:
        """Accept another node, which has said `MAGIC`, or is about to."""
        return _Entrance(link, self._find, self._around)

    def _find(self, protocol: str) -> Accept | None:
        plain = protocol.removesuffix("_tls")
        names = (protocol, plain, f"{plain}_tls")
        return next((self._served[each] for each in names if each in self._served), None)


class _ClientLink:
    """The link to another node, as that to its client."""

    __slots__ = ("_link", "abort", "close", "guard", "pause", "peer", "resume", "send", "subject")

    def __init__(self, link: Link, peer: str, subject: str | None) -> None:
        self._link = link
        self.peer, self.subject = peer, subject
        self.send, self.pause, self.resume = link.send, link.pause, link.resume
        self.close, self.abort, self.guard = link.close, link.abort, link.guard

    @property
    def backlog(self) -> int:
        return self._link.backlog


class _Served(Front):
    """The receiver of a client that is served by one node, for as long as that has the queues."""

    __slots__ = ("_home_node", "_link", "_queues")

    def __init__(self, link: Link, queues: QueuesHome) -> None:
        self._link, self._queues = link, queues
        self._home_node = NOBODY

    def _serve_here(self, link: Link, accept: Accept) -> None:
        self.receiver = accept(link)
        self._queues.listen(self, self._check_here)

    def _check_here(self) -> None:
        if not self._queues.is_here:
            self._link.close(MOVED)

    def closed(self, reason: str) -> None:
        self._queues.unlisten(self)
        self.receiver.closed(reason)


class _Client(_Served):
    """A client that connected to this node."""

    __slots__ = ("_accept", "_around", "_protocol", "_seeking")

    def __init__(self, link: Link, protocol: str, accept: Accept, around: Needs) -> None:
        super().__init__(link, around.queues)
        self._protocol, self._accept, self._around = protocol, accept, around
        self._seeking: asyncio.Task[None] | None = None
        if around.queues.is_here:
            self._serve_here(link, accept)
            return
        link.pause()
        self.receiver = _Waiting(link)
        self._seeking = asyncio.get_running_loop().create_task(self._find())
        self._seeking.add_done_callback(self._sought)

    def closed(self, reason: str) -> None:
        if self._seeking is not None:
            self._seeking.cancel()
        super().closed(reason)

    def _check_there(self) -> None:
        if self._queues.node not in (NOBODY, self._home_node):
            self._link.close(MOVED)

    def _sought(self, task: asyncio.Task[None]) -> None:
        self._seeking = None
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        if isinstance(error, TimeoutError):
            log.warning("%s: refused: no node has the queues now", self._link.peer)
        else:
            self._around.faults.caught(f"{self._link.peer}: relaying failed", error)
        self._link.abort("no node has the queues now")

    async def _find(self) -> None:
        """Connect the client with the home, as soon as there is one. Raises TimeoutError."""
        queues, link = self._queues, self._link
        async with asyncio.timeout(_PATIENCE_S):
            while True:
                await queues.found()
                if queues.is_here:
                    said = self._said()
                    self._serve_here(link, self._accept)
                    if said:
                        self.receiver.writable()[: len(said)] = said
                        self.receiver.received(len(said))
                    link.resume()
                    return
                if (refusal := self._refusal()) is not None:
                    log.warning("%s: refused: %s", link.peer, refusal)
                    link.abort(refusal)
                    return
                peer = queues.peer()
                if peer is not None and await self._connect(peer):
                    return
                await asyncio.sleep(_RETRY_S)

    def _said(self) -> bytes:
        """Return what the client has said before there was a home."""
        assert isinstance(self.receiver, _Waiting)
        return self.receiver.said

    def _refusal(self) -> str | None:
        """Return why the client cannot be served by the home, which would take it for us."""
        link, policy = self._link, self._around.policy
        if self._around.secret:
            return None
        if link.subject is not None:
            return "a client with a certificate needs cluster.secret_file, or the home of queues"
        if policy.is_for_this_machine and not is_loopback(host_of(link.peer)):
            return "guest may come from this machine only"
        return None

    async def _connect(self, peer: Peer) -> bool:
        """Connect with the home. Return whether it serves the client."""
        link, around = self._link, self._around
        answered = asyncio.get_running_loop().create_future()
        said = Introduction(self._protocol, link.peer, link.subject)
        made: list[_Home] = []

        def attach(home: Link) -> Receiver:
            made.append(_Home(home, link, said, around.secret, answered))
            return made[0]

        try:
            async with asyncio.timeout(_CONNECT_S):
                await around.net.connect(peer.host, peer.queues_port, attach)
                is_accepted: bool = await answered
        except OSError as error:  # TimeoutError is one.
            log.info("%s: the home of queues is not reached: %s", link.peer, error)
            is_accepted = False
        except asyncio.CancelledError:
            for each in made:
                each.link.abort("the client is gone")
            raise
        if is_accepted:
            if said_before := self._said():
                made[0].link.send((said_before,))
            self.receiver, self._home_node = _Passing(link, made[0]), peer.id
            self._queues.listen(self, self._check_there)
            link.resume()
        else:
            for each in made:
                each.link.abort("it does not serve the client")
        return is_accepted


class _Waiting:
    """The receiver of a client that has no home yet, and is not read from. Only its greeting may
    have been read before."""

    __slots__ = ("_area", "_link", "said")

    def __init__(self, link: Link) -> None:
        self._link = link
        self._area = bytearray(len(MAGIC))
        self.said = b""

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        self.said += self._area[:size]

    def drained(self) -> None:
        """Do nothing: nothing was sent."""

    def closed(self, reason: str) -> None:
        """Do nothing: there is nobody to be told."""

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self._link.abort(reason)


class _Home:
    """The connection to the home, for one client. A `Receiver` of the net."""

    def __init__(
        self,
        link: Link,
        client: Link,
        said: Introduction,
        secret: bytes,
        answered: asyncio.Future[bool],
    ) -> None:
        self.link = link
        self._client = client
        self._said = msgspec.json.encode(said)
        self._secret = secret
        self._answered = answered
        self._area = bytearray(_AREA_BYTES)
        self._filled = 0
        self._is_passing = False
        link.send((MAGIC,))

    def writable(self) -> memoryview:
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> None:
        if self._is_passing:
            self._client.send((bytes(self._area[:size]),))
            if self._client.backlog > _HIGH:
                self.link.pause()
            return
        self._filled += size
        if self._said and self._filled >= _NONCE_BYTES:
            self._introduce(bytes(self._area[:_NONCE_BYTES]))
        if self._filled > _NONCE_BYTES and not self._answered.done():
            self._is_passing = self._area[_NONCE_BYTES : _NONCE_BYTES + 1] == _ACCEPTED
            self._answered.set_result(self._is_passing)
            rest = bytes(self._area[_NONCE_BYTES + 1 : self._filled])
            self._filled = 0
            if self._is_passing and rest:
                self._client.send((rest,))

    def _introduce(self, nonce: bytes) -> None:
        said, self._said = self._said, b""
        proof = hmac.digest(self._secret, nonce + said, "sha256")
        self.link.send((len(said).to_bytes(_SIZE_BYTES), said, proof))

    def drained(self) -> None:
        self._client.resume()

    def closed(self, reason: str) -> None:
        if not self._answered.done():
            self._answered.set_result(False)
        elif self._is_passing:
            self._client.close(f"the home of queues is lost: {reason}")


class _Passing:
    """The receiver of a client whose bytes go to the home."""

    __slots__ = ("_area", "_client", "_home")

    def __init__(self, client: Link, home: _Home) -> None:
        self._client, self._home = client, home
        self._area = bytearray(_AREA_BYTES)

    def writable(self) -> memoryview:
        return memoryview(self._area)

    def received(self, size: int) -> None:
        home = self._home.link
        home.send((bytes(self._area[:size]),))
        if home.backlog > _HIGH:
            self._client.pause()

    def drained(self) -> None:
        self._home.link.resume()

    def closed(self, reason: str) -> None:
        self._home.link.close(reason)

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self._client.abort(reason)


class _Entrance(_Served):
    """Another node, which passes on what a client says."""

    __slots__ = ("_around", "_find")

    def __init__(self, link: Link, find: Callable[[str], Accept | None], around: Needs) -> None:
        super().__init__(link, around.queues)
        self._find, self._around = find, around
        self.receiver = _Hearing(link, around, self._introduced)

    def _introduced(self, said: Introduction) -> str | None:
        """Serve the client. Return why not, if not."""
        around, link = self._around, self._link
        if not around.queues.is_here:
            return MOVED
        accept = self._find(said.protocol)
        if accept is None:
            return f"there is no port for {said.protocol} at this node"
        peer, subject = (said.peer, said.subject) if around.secret else (link.peer, None)
        link.send((_ACCEPTED,))
        self._serve_here(_ClientLink(link, peer, subject), accept)
        return None


class _Hearing:
    """The receiver of a node until it has said who its client is."""

    __slots__ = ("_area", "_deadline", "_filled", "_introduced", "_link", "_nonce", "_secret")

    def __init__(
        self, link: Link, around: Needs, introduced: Callable[[Introduction], str | None]
    ) -> None:
        self._link, self._introduced, self._secret = link, introduced, around.secret
        self._nonce = around.entropy.token(_NONCE_BYTES)
        self._area = bytearray(limits.LOGIN_FRAME_BYTES_MAX)
        self._filled = 0
        link.send((self._nonce,))
        self._deadline = asyncio.get_running_loop().call_later(
            limits.LOGIN_MS_MAX / 1_000, link.guard, link.abort, "nothing came in time"
        )

    def writable(self) -> memoryview:
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> None:
        self._filled += size
        begin = len(MAGIC) + _SIZE_BYTES
        if self._filled < begin:
            return
        end = begin + int.from_bytes(self._area[len(MAGIC) : begin])
        if end + _PROOF_BYTES > len(self._area):
            self._refuse("a client's introduction is too long")
        elif self._filled >= end + _PROOF_BYTES:
            self._deadline.cancel()
            said, proof = self._area[begin:end], self._area[end : self._filled]
            self._heard(bytes(said), bytes(proof))

    def _heard(self, said: bytes, proof: bytes) -> None:
        wanted = hmac.digest(self._secret, self._nonce + said, "sha256")
        if not hmac.compare_digest(proof, wanted):
            self._refuse("who passes on a client does not know the cluster's secret")
            return
        try:
            introduction = msgspec.json.decode(said, type=Introduction)
        except msgspec.DecodeError as error:
            self._refuse(f"a client's introduction is not understood: {error}")
            return
        refusal = self._introduced(introduction)
        if refusal is not None:
            self._refuse(refusal)

    def _refuse(self, reason: str) -> None:
        self._deadline.cancel()
        # Nodes ask until the home is one; only what no node does is unusual.
        level = logging.DEBUG if reason == MOVED else logging.WARNING
        log.log(level, "%s: not relayed: %s", self._link.peer, reason)
        self._link.send((_REFUSED,))
        self._link.close(reason)

    def drained(self) -> None:
        """Do nothing: little was sent."""

    def closed(self, reason: str) -> None:
        self._deadline.cancel()

    def unfinished(self) -> Unfinished:
        return Unfinished(self._filled, 0, self._filled > 0)

    def refuse(self, reason: str) -> None:
        self._refuse(reason)
