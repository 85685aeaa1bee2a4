"""The login mechanisms: PLAIN, AMQPLAIN, and EXTERNAL for clients with a certificate.

This module only reads what clients send. The broker's login policy decides who may log in.
"""

from __future__ import annotations

from entrepot.broker.access import Principal
from entrepot.broker.login import LoginPolicy, Origin, host_of
from entrepot.core.ports import Link
from entrepot.wire.amqp import table
from entrepot.wire.amqp.errors import AmqpError, ReplyCode

PLAIN, AMQPLAIN, EXTERNAL = "PLAIN", "AMQPLAIN", "EXTERNAL"


def mechanisms(link: Link, *, is_forwarded: bool = False) -> tuple[str, ...]:
    """Return the mechanisms that this peer may use. To a node that it is forwarded to, another
    certificate is shown."""
    if link.subject is None or is_forwarded:
        return PLAIN, AMQPLAIN
    return PLAIN, AMQPLAIN, EXTERNAL


async def login(
    policy: LoginPolicy, link: Link, mechanism: str, response: bytes, *, is_forwarded: bool = False
) -> Principal:
    """Log the client in; return its principal.

    Raises LoginRefused, after a delay, and AmqpError for a malformed response.
    """
    if mechanism not in mechanisms(link, is_forwarded=is_forwarded):
        raise AmqpError(
            ReplyCode.COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'"
        )
    origin = Origin(host_of(link.peer), mechanism)
    if mechanism == EXTERNAL:
        assert link.subject is not None
        return policy.by_certificate(link.subject, origin)
    return await policy.by_password(*_read(mechanism, response), origin)


def _read(mechanism: str, response: bytes) -> tuple[str, str]:
    """Return user and password. Raises AmqpError."""
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
    """Decode a name or password. Bytes that are not UTF-8 give a text that nobody has."""
    return data.decode("utf-8", "replace")
