"""Signatures of requests, as clients of AWS make them (Signature Version 4).

A client writes its request in a canonical form (method, path, query, some headers, and the
SHA-256 of the body), and signs that with a key which it derives from its secret, the day, the
region and the service. Who knows the secret does the same and compares. The header Authorization
says which key was used and which headers are in it.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from entrepot.wire.sqs.errors import SqsError

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S_MAX = 15 * 60  # How much the clocks of client and server may differ.

_AUTHORIZATION = re.compile(
    rf"{ALGORITHM} +Credential=([^/,\s]+)/([0-9]{{8}})/([A-Za-z0-9-]{{1,40}})/([a-z0-9-]{{1,40}})/"
    r"aws4_request *, *SignedHeaders=([a-z0-9;_-]+) *, *Signature=([0-9a-f]{64})"
)
_TIME = "%Y%m%dT%H%M%SZ"
_SPACES = re.compile(" +")


class Signature(NamedTuple):
    """What the header Authorization of a request says."""

    key_id: str
    day: str
    region: str
    service: str
    headers: tuple[str, ...]  # Those that are signed, in order.
    value: str

    @property
    def scope(self) -> str:
        return f"{self.day}/{self.region}/{self.service}/aws4_request"


def read(authorization: str) -> Signature:
    """Read the header. Raises SqsError if it is incomplete."""
    found = _AUTHORIZATION.fullmatch(authorization.strip())
    if found is None:
        text = "Authorization header requires 'Credential', 'SignedHeaders' and 'Signature'."
        raise SqsError("IncompleteSignature", text)
    key_id, day, region, service, headers, value = found.groups()
    return Signature(key_id, day, region, service, tuple(headers.split(";")), value)


def check_time(signature: Signature, headers: Mapping[str, str], now_ms: int) -> None:
    """Raise SqsError unless the request was signed a short time ago, with its time and host."""
    signed_at = headers.get("x-amz-date", "")
    for name in ("host", "x-amz-date"):
        if name not in signature.headers:
            raise SqsError("IncompleteSignature", f"The header {name} must be signed.")
    try:
        time = datetime.strptime(signed_at, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise SqsError("IncompleteSignature", "X-Amz-Date is not a time.") from None
    if not signed_at.startswith(signature.day):
        text = "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date."
        raise SqsError("SignatureDoesNotMatch", text)
    ahead_s = time.timestamp() - now_ms / 1_000
    if abs(ahead_s) > SKEW_S_MAX:
        now = datetime.fromtimestamp(now_ms / 1_000, UTC).strftime(_TIME)
        what = "not yet current" if ahead_s > 0 else "expired"
        text = f"Signature {what}: {signed_at}; the server's clock says {now}."
        raise SqsError("SignatureDoesNotMatch", text)


def is_right(
    signature: Signature,
    secret: str,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body_sha256: str,
) -> bool:
    """Return whether the request was signed with this secret."""
    signed = _canonical(signature, method, target, headers, body_sha256)
    text = "\n".join((ALGORITHM, headers.get("x-amz-date", ""), signature.scope, _hash(signed)))
    key = f"AWS4{secret}".encode()
    for part in signature.scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, text.encode("utf-8", "replace"), "sha256").hex()
    return hmac.compare_digest(expected, signature.value)


def _canonical(
    signature: Signature, method: str, target: str, headers: Mapping[str, str], body_sha256: str
) -> str:
    path, _, query = target.partition("?")
    lines = [method, quote(_normal(path), safe="/~"), "&".join(sorted(query.split("&")))]
    for name in signature.headers:
        value = _SPACES.sub(" ", headers.get(name, "").strip())
        lines.append(f"{name}:{value}")
    lines += ["", ";".join(signature.headers), body_sha256]
    return "\n".join(lines)


def _normal(path: str) -> str:
    """Return the path without empty segments, `.` and `..`."""
    segments: list[str] = []
    for each in path.split("/"):
        if each == "..":
            del segments[-1:]
        elif each not in ("", "."):
            segments.append(each)
    end = "/" if segments and path.endswith("/") else ""
    return f"/{'/'.join(segments)}{end}"


def _hash(text: str) -> str:
    return sha256(text.encode("latin-1", "replace")).hexdigest()
