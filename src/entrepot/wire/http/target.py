"""What a request asks for: the target's path and query, taken apart and decoded.

A path is cut at its slashes before anything in it is decoded, so that a name with a slash
in it, as that of the virtual host `/`, is one segment: `%2F`.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, unquote

from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError


class RequestTarget(NamedTuple):
    path: tuple[str, ...]  # Segments, decoded. A slash at the end makes an empty one.
    query: dict[str, str]  # Of one name the last counts.


def split(target: str) -> RequestTarget:
    """Raises HttpError."""
    if not target.startswith("/"):  # Absolute, as proxies are asked.
        scheme, separator, rest = target.partition("://")
        if not separator or scheme.lower() not in ("http", "https"):
            raise HttpError(400, "the target of the request is not a path")
        _, slash, path = rest.partition("/")
        target = slash + path or "/"
    path, _, query = target.partition("?")
    try:
        segments = tuple(unquote(segment, errors="strict") for segment in path[1:].split("/"))
        fields = parse_qsl(
            query,
            keep_blank_values=True,
            errors="strict",
            max_num_fields=http_limits.QUERY_FIELDS_MAX,
        )
    except ValueError:  # UnicodeDecodeError is one.
        raise HttpError(400, "the target of the request is not UTF-8, or too long") from None
    return RequestTarget(segments, dict(fields))
