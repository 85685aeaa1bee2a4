"""Schemas from a schema registry, over Confluent's REST interface."""

import base64
import json
import urllib.error
import urllib.request
from functools import lru_cache
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

TIMEOUT_S = 30
_SCHEMAS_KEPT = 1_000
_ANSWER_BYTES_MAX = 16 * 1024 * 1024


class RegistryError(Exception):
    """The registry does not answer, or not with a schema."""


@lru_cache(_SCHEMAS_KEPT)  # An id means the same schema for ever.
def schema_by_id(url: str, number: int) -> str:
    return _schema(url, f"/schemas/ids/{number}")


def latest_schema(url: str, subject: str) -> str:
    """Return the newest schema of this subject, such as `orders-value`."""
    return _schema(url, f"/subjects/{quote(subject, safe='')}/versions/latest")


def _schema(url: str, path: str) -> str:
    answer = _get(url, path)
    schema = answer.get("schema") if isinstance(answer, dict) else None
    if not isinstance(schema, str):
        raise RegistryError(f"{_shown(url)}{path}: the answer has no schema")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise RegistryError(f"{_shown(url)}{path}: it is a schema of {kind}, not of Avro")
    return schema


def _get(url: str, path: str) -> Any:
    """Ask the registry; log in if the address has a `user:password@`."""
    parts = urlsplit(url)
    request = urllib.request.Request(f"{_shown(url)}{path}")
    if parts.scheme not in ("http", "https"):
        raise RegistryError(f"{url!r} is not an address like http://localhost:8081")
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.loads(answer.read(_ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as error:
        raise RegistryError(f"{_shown(url)}{path}: {error.code} {error.reason}") from None
    except (OSError, ValueError) as error:
        raise RegistryError(f"{_shown(url)}{path}: {error}") from None


def _shown(url: str) -> str:
    """Return the address without its user and password."""
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
