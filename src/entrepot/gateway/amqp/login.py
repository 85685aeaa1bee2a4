"""Who is there: PLAIN, AMQPLAIN, and EXTERNAL for those with a certificate.

Where users are asked for, they are those of the users' store. Where they are not, there is
one: guest, with the password guest, and only from this machine, as RabbitMQ comes; unless the
broker was opened to all. A peer whose certificate is good has its name from there.

Failed logins are answered at one time after the attempt, whatever was wrong with them, so
that the time does not tell whether there is such a user.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Link
from entrepot.gateway.amqp.context import Context
from entrepot.wire.amqp import table
from entrepot.wire.amqp.errors import AmqpError, ReplyCode

GUEST = "guest"
PLAIN, AMQPLAIN, EXTERNAL = "PLAIN", "AMQPLAIN", "EXTERNAL"


class LoginRefused(PeerError):
    """The text is for the log. Never has a password."""


def mechanisms(link: Link) -> tuple[str, ...]:
    """What this peer may log in with."""
    return (PLAIN, AMQPLAIN) if link.subject is None else (PLAIN, AMQPLAIN, EXTERNAL)


async def login(context: Context, link: Link, mechanism: str, response: bytes) -> str:
    """The user's name. Raises LoginRefused, late; and AmqpError for what is no login at all."""
    loop = asyncio.get_running_loop()
    answer_at = loop.time() + limits.LOGIN_FAILURE_MS / 1_000
    if mechanism not in mechanisms(link):
        raise AmqpError(
            ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'"
        )
    if mechanism == EXTERNAL:
        assert link.subject is not None
        return link.subject
    user, password = _read(mechanism, response)
    refusal = await _refusal(context, link, user, password)
    if refusal:
        await asyncio.sleep(answer_at - loop.time())
        raise LoginRefused(f"{mechanism} login refused: {refusal}")
    return user


async def _refusal(context: Context, link: Link, user: str, password: str) -> str:
    if context.asks_users:
        is_known = await context.broker.users.knows(user, password)
        return "" if is_known else f"user '{user[:100]}' - invalid credentials"
    if (user, password) != (GUEST, GUEST):
        return f"user '{user[:100]}' - invalid credentials"
    if context.is_open or _is_loopback(link.peer):
        return ""
    return f"user '{GUEST}' can only connect via localhost"


def _is_loopback(peer: str) -> bool:
    host = peer.rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _read(mechanism: str, response: bytes) -> tuple[str, str]:
    """User and password. Raises AmqpError."""
    if mechanism == AMQPLAIN:
        return _read_amqplain(response)
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:
        raise AmqpError(ReplyCode.SYNTAX_ERROR, "response invalid")
    return _text(parts[1]), _text(parts[2])


def _read_amqplain(response: bytes) -> tuple[str, str]:
    found = table.decode(response)
    texts = []
    for name in ("LOGIN", "PASSWORD"):
        if name not in found:
            raise AmqpError(
                ReplyCode.SYNTAX_ERROR, "AMQPLAIN auth info is missing LOGIN or PASSWORD field"
            )
        value = found[name]
        if not isinstance(value, str | bytes):
            raise AmqpError(
                ReplyCode.SYNTAX_ERROR,
                "AMQPLAIN auth info uses unsupported type for LOGIN or PASSWORD field",
            )
        data = value if isinstance(value, bytes) else value.encode("utf-8", "surrogateescape")
        texts.append(_text(data))
    return texts[0], texts[1]


def _text(data: bytes) -> str:
    """What is not UTF-8 is nobody's name and nobody's password."""
    return data.decode("utf-8", "replace")
