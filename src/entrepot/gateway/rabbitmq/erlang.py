"""Values in Erlang's notation, as in RabbitMQ's error texts."""

from __future__ import annotations

from entrepot.core.value import Frozen


def describe(value: Frozen) -> tuple[str, str]:
    """Return the name of a value's type, and the value as a text."""
    if value is None:
        return "void", "undefined"
    if isinstance(value, str):
        return "longstr", _binary(value)
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long", str(value)
    kind, content = value
    if kind == "bool":
        return "bool", str(content).lower()
    if kind in ("float", "decimal"):
        return "double" if kind == "float" else kind, content
    if kind == "array":
        items = [",".join(describe(item)) for item in content]
    else:
        items = [",".join((_binary(name), *describe(item))) for name, item in content]
    return kind, "[" + ",".join(f"{{{item}}}" for item in items) + "]"


def _binary(text: str) -> str:
    """Return a text as an Erlang binary."""
    if not text:
        return "<<>>"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{escaped}">>' if text.isascii() else f'<<"{escaped}"/utf8>>'
