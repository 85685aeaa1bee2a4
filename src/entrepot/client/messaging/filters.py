"""What a message must be like, in the notations that the broker understands.

A filter is a selector (`company = 'Telco' AND price < 100`), triples as a text
(`{(company,=,"Telco"),(price,<,100)}`) or as tuples, or a template: a dictionary of headers and
the values they must have. A value of `...` means: it must be there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from entrepot.client.errors import ClientError

_NAME = re.compile(r"[^\W\d][\w$.]*")
_SIGNS = {"=": "=", "==": "=", "!=": "<>", "<>": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_ID, _CORRELATION_ID, _TYPE = "JMSMessageID", "JMSCorrelationID", "JMSType"


def selector(
    where: Any = None,
    id: str | None = None,
    correlation_id: str | None = None,
    type: str | None = None,
) -> str | None:
    """Return a filter as the broker reads it; None means: everything. Raises ClientError.

    Whether a text parses is for the broker to say.
    """
    if where is id is correlation_id is type is None:
        return None
    parts: list[str] = []
    for name, value in ((_ID, id), (_CORRELATION_ID, correlation_id), (_TYPE, type)):
        if value is not None:
            parts.append(f"{name} = {_literal(value)}")
    if isinstance(where, str):
        if not parts:
            return where or None
        if where.lstrip().startswith("{"):
            raise ClientError("triples as a text cannot be joined with id=... and the like")
        parts.append(f"({where})")
    elif isinstance(where, Mapping):
        parts += [_equal(name, value) for name, value in where.items()]
    elif where is not None:
        parts += [_triple(each) for each in _listed(where)]
    return " AND ".join(parts) or None


def _equal(name: str, value: Any) -> str:
    if value is ...:
        return f"{_checked(name)} IS NOT NULL"
    return f"{_checked(name)} = {_literal(value)}"


def _triple(triple: object) -> str:
    if not isinstance(triple, tuple) or len(triple) != 3 or triple[1] not in _SIGNS:
        raise ClientError(f"{triple!r} is not a name, one of {' '.join(_SIGNS)}, and a value")
    name, sign, value = triple
    return f"{_checked(name)} {_SIGNS[sign]} {_literal(value)}"


def _listed(where: object) -> Iterable[object]:
    if isinstance(where, tuple) and len(where) == 3 and isinstance(where[0], str):
        return [where]
    if isinstance(where, Iterable):
        return where
    raise ClientError(f"{where!r} is no filter")


def _checked(name: object) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ClientError(f"{name!r} is not a name that a filter can have")
    return name


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    raise ClientError(f"{value!r} cannot be compared with: a text, a number or a boolean can")
