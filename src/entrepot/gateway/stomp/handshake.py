"""CONNECT: the version, the login, the virtual host and the heart-beats.

The header `host` names a virtual host. Clients that know of none put the name of the machine
there, which is `/` here: the specification leaves that to the server. Without `login`, a client
is the subject of its certificate or, if nobody is asked for a password, guest.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.access import Principal
from entrepot.broker.login import GUEST, LoginRefused, Origin, host_of
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core.errors import PeerError, UnknownVhost
from entrepot.core.ports import Link
from entrepot.gateway.stomp.context import Context
from entrepot.gateway.stomp.errors import about
from entrepot.gateway.stomp.heart_beat import agreed_ms
from entrepot.wire.stomp.frames import (
    CONNECT,
    STOMP,
    VERSIONS,
    Event,
    Frame,
    Headers,
    negotiate,
    read_heart_beat,
)

if TYPE_CHECKING:
    from entrepot.gateway.stomp.adapter import StompAdapter


class Terms(NamedTuple):
    """What client and server have agreed on."""

    principal: Principal
    vhost: VirtualHost
    version: str
    send_ms: int  # How often we send heart-beats; 0 means: never.
    receive_ms: int  # How often the client does.


class Handshake:
    def __init__(self, adapter: StompAdapter, link: Link, context: Context) -> None:
        self._adapter = adapter
        self._link = link
        self._context = context

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve the first event of a connection. Raises PeerError."""
        if isinstance(event, PeerError):
            raise event
        if not isinstance(event, Frame) or event.command not in (CONNECT, STOMP):
            raise PeerError("the first frame must be CONNECT or STOMP")
        version = negotiate(event.headers)
        if version is None:
            raise PeerError(f"supported versions are {','.join(VERSIONS)}")
        client_sends_ms, client_wants_ms = read_heart_beat(event.headers)
        intervals = agreed_ms(client_wants_ms), agreed_ms(client_sends_ms)
        return self._connect(event.headers, version, *intervals)

    async def _connect(self, headers: Headers, version: str, send_ms: int, receive_ms: int) -> None:
        receipt = headers.get("receipt")
        try:
            principal = await self._login(headers)
        except LoginRefused as refused:
            self._adapter.log_refusal(str(refused))
            raise about(PeerError("access refused, wrong login or passcode"), receipt) from None
        vhost = self._vhost(headers.get("host", ""))
        if not principal.may_enter(vhost.name):
            text = f"access to vhost '{vhost.name}' refused for user '{principal.user}'"
            raise about(PeerError(text), receipt)
        self._adapter.opened(Terms(principal, vhost, version, send_ms, receive_ms))

    async def _login(self, headers: Headers) -> Principal:
        """Return who the client is. Raises LoginRefused, after a delay."""
        policy, link = self._context.login, self._link
        host = host_of(link.peer)
        login, passcode = headers.get("login"), headers.get("passcode", "")
        if login is None:
            if link.subject is not None:
                return policy.by_certificate(link.subject, Origin(host, "EXTERNAL"))
            login, passcode = (GUEST, GUEST) if policy.guest else ("", "")
        return await policy.by_password(login, passcode, Origin(host, "PLAIN"))

    def _vhost(self, name: str) -> VirtualHost:
        vhosts = self._context.broker.vhosts
        try:
            return vhosts.get(name)
        except UnknownVhost:
            return vhosts.default
