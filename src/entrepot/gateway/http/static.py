"""Serves the files of the console: few, small, and the same for everybody.

All are compressed once, when the first is asked for, and have an entity tag of their content; a
browser asks each time whether what it has is still the same, and mostly that is all there is to
send. They need no login: what they show does.

The policy of their content allows what is in these files and nothing else: no script or style
within a page or from elsewhere, no frames.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import NamedTuple

from entrepot.wire.http import target
from entrepot.wire.http.request import Request
from entrepot.wire.http.response import Response

INDEX = "index.html"
FOLDER = "console"
_TYPES = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
)
# Asked for each time: a file has the same name in the next version.
_CACHED = ("Cache-Control", "no-cache")


class _File(NamedTuple):
    plain: bytes
    packed: bytes
    tag: str
    kind: str


class StaticFiles:
    def __init__(self, load: Callable[[], Mapping[str, bytes]]) -> None:
        """`load` returns the files by name. It is called when the first one is asked for."""
        self._load = load

    @cached_property
    def _files(self) -> dict[str, _File]:
        return {
            name: _File(
                data,
                gzip.compress(data, mtime=0),
                f'"{zlib.crc32(data):08x}-{len(data):x}"',
                _TYPES[name.rpartition(".")[2]],
            )
            for name, data in self._load().items()
        }

    def __call__(self, request: Request) -> Response | None:
        """Return the answer to a request; None if it is for something else. Raises HttpError."""
        if request.method not in ("GET", "HEAD"):
            return None
        path = target.split(request.target).path
        if path == ("",):
            name = INDEX
        elif len(path) == 2 and path[0] == FOLDER:
            name = path[1]
        else:
            return None
        found = self._files.get(name)
        if found is None:
            return None
        headers: tuple[tuple[str, str], ...] = (
            *_SAFE,
            _CACHED,
            ("ETag", found.tag),
            ("Vary", "Accept-Encoding"),
        )
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(304, headers=headers)
        headers = (*headers, ("Content-Type", found.kind))
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(200, found.packed, (*headers, ("Content-Encoding", "gzip")))
        return Response(200, found.plain, headers)
