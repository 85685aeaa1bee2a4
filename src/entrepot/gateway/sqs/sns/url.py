"""Addresses of HTTP endpoints, and which of them the operator allows.

Whoever may subscribe makes the broker send requests, from where it stands, so it sends them only
to addresses that its configuration names, by scheme, host, port and the beginning of the path.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from entrepot.wire.sqs import limits as sqs_limits

_PORTS = {"http": 80, "https": 443}


class Url(NamedTuple):
    scheme: str
    host: str
    port: int
    path: str  # With the query.

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"


def parse(text: str) -> Url | None:
    """Return the parts of an address; None if it is none that requests can be sent to."""
    if len(text) > sqs_limits.ENDPOINT_CHARACTERS_MAX or not text.isascii():
        return None
    if any(character <= " " or character in '\x7f\\"<>^`{|}' for character in text):
        return None
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not host or "@" in parts.netloc or port == 0:
        return None
    if any(part in (".", "..") for part in parts.path.lower().replace("%2e", ".").split("/")):
        return None  # It would lead out of the path that is allowed.
    return Url(parts.scheme, host, port or _PORTS[parts.scheme], _target(parts))


def _target(parts: SplitResult) -> str:
    path = parts.path or "/"
    return f"{path}?{parts.query}" if parts.query else path


def is_allowed(url: Url, allowed: Iterable[Url]) -> bool:
    """Return whether an address is one of these, or below one of them."""
    return any(url[:3] == each[:3] and _is_below(url.path, each.path) for each in allowed)


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith((f"{top.rstrip('/')}/", f"{top}?"))
