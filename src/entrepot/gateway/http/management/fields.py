"""The fields of a request's JSON, read by name and type.

RabbitMQ's own tools send numbers and booleans as strings, so those are accepted, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from entrepot.core import limits
from entrepot.core.names import is_short
from entrepot.core.steps import Steps
from entrepot.gateway.http.json_reader import NotJson, read_in_steps
from entrepot.wire.http.request import HttpError

_TRUTHS = {True: True, False: False, "true": True, "false": False}
_INT64 = range(-(2**63), 2**63)


def bad(reason: str) -> HttpError:
    return HttpError(400, reason)


class Fields:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    @classmethod
    def read(cls, body: bytes) -> Steps[Fields]:
        """Decode a body; an empty one is an empty object. Raises HttpError."""
        try:
            values = (yield from read_in_steps(body)) if body.strip() else {}
        except NotJson as error:
            raise bad(str(error)) from None
        if not isinstance(values, dict):
            raise bad("not_json")
        return cls(values)

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def require(self, *names: str) -> None:
        missing = [f"{{key_missing,{name}}}" for name in names if name not in self]
        if missing:
            raise bad(f"[{','.join(missing)}]")

    def text(self, name: str, default: str = "") -> str:
        value = self._values.get(name, default)
        if not isinstance(value, str):
            raise bad(f"{name}: not a text")
        return value

    def truth(self, name: str, default: bool = False) -> bool:
        value = self._values.get(name, default)
        if not isinstance(value, bool | str) or value not in _TRUTHS:
            raise bad(f"{name}: not_boolean")
        return _TRUTHS[value]

    def number(self, name: str, default: int = 0) -> int:
        value = self._values.get(name, default)
        if isinstance(value, str) and value.isascii() and value.isdecimal():
            value = int(value[:20])
        if isinstance(value, bool) or not isinstance(value, int) or value not in _INT64:
            raise bad(f"{name}: not_int")
        return value

    def table(self, name: str) -> dict[str, Any]:
        """Return an object whose values fit into an AMQP table; [] stands for an empty one."""
        value = self._values.get(name) or {}
        if not isinstance(value, dict):
            raise bad(f"{name}: not an object")
        check_value(value)
        return value

    def short_text(self, name: str) -> str:
        """Return a name or key that fits into AMQP's short string."""
        value = self.text(name)
        if not is_short(value):
            raise bad(f"{name}: more than {limits.NAME_BYTES_MAX} bytes")
        return value

    def sequence(self, name: str) -> list[Any]:
        """Return a list of anything; empty if it is missing."""
        value = self._values.get(name) or []
        if not isinstance(value, list):
            raise bad(f"{name}: not a list")
        return value

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Return a list of objects; empty if it is missing."""
        value = self._values.get(name) or []
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise bad(f"{name}: not a list of objects")
        return value


def check_value(value: object, depth: int = limits.TABLE_DEPTH_MAX) -> None:
    """Raise HttpError for a value that does not fit into an AMQP table."""
    if isinstance(value, dict | list) and depth < 0:
        raise bad(f"objects nested more than {limits.TABLE_DEPTH_MAX} deep")
    if isinstance(value, dict):
        for name, each in value.items():
            if not is_short(name):
                raise bad(f"a name of more than {limits.NAME_BYTES_MAX} bytes")
            check_value(each, depth - 1)
    elif isinstance(value, list):
        for each in value:
            check_value(each, depth - 1)
    elif isinstance(value, int) and value not in _INT64:
        raise bad(f"{value}: not a 64-bit number")
