"""Formats whose bytes only a schema explains: what Thrift and XDR have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from entrepot.transform.refusal import Refused, check_document, check_size

FIELDS_MAX = 5_000


class Reader(Protocol):
    place: int

    def structure(self, fields: Any) -> dict[str, Any]: ...


class Structured(ABC):
    """A format whose schema has `fields`, which are checked once, when it is registered."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._count = 0
        self._fields = self._checked_fields(schema.get("fields"), 0)

    def read(self, data: bytes) -> dict[str, Any]:
        check_size(data)
        reader = self._reader(data)
        found = reader.structure(self._fields)
        if reader.place != len(data):
            raise Refused(f"{len(data) - reader.place} bytes are left behind the value")
        check_document(found)
        return found

    def write(self, document: dict[str, Any]) -> bytes:
        check_document(document)
        parts: list[bytes] = []
        self._write(document, self._fields, parts)
        written = b"".join(parts)
        check_size(written)
        return written

    def _count_fields(self, fields: Any) -> None:
        """Raise Refused if the schema has too many fields with these."""
        self._count += len(fields)
        if self._count > FIELDS_MAX:
            raise Refused(f"more than {FIELDS_MAX} fields")

    @abstractmethod
    def _checked_fields(self, fields: Any, depth: int) -> Any:
        """Return the fields of a structure as `_reader` and `_write` want them. Raises Refused."""

    @abstractmethod
    def _reader(self, data: bytes) -> Reader:
        """Return what reads structures from the data."""

    @abstractmethod
    def _write(self, document: dict[str, Any], fields: Any, parts: list[bytes]) -> None:
        """Append the bytes of a structure to the parts."""
