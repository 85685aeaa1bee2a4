"""kio as the oracle: messages made for its classes, and the bytes it makes of them.

Everything here is derived from kio's dataclasses and kio's own code, nothing from ours.
"""

import io
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

VECTORS = Path(__file__).parents[3] / "vectors"

_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_LETTERS = "abc xyz0189._-äß€😀"


@cache  # Not when tests are collected: kio has a module for each of them.
def requests() -> tuple[type[Any], ...]:
    """Return the requests of all APIs, in all versions."""
    return tuple(
        load_request_schema(key, version)
        for key, name in api_key_map.items()
        for version in sorted(schema_name_map[name])
    )


@cache
def responses() -> tuple[type[Any], ...]:
    return tuple(
        load_response_schema(key, version)
        for key, name in api_key_map.items()
        for version in sorted(schema_name_map[name])
    )


def messages() -> tuple[type[Any], ...]:
    return requests() + responses()


def newest(layout: type[Any]) -> type[Any]:
    """The same message in its last version."""
    name = api_key_map[layout.__api_key__]
    load = load_request_schema if layout in requests() else load_response_schema
    return load(layout.__api_key__, max(schema_name_map[name]))


def kio_bytes(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_read(layout: type[Any], data: bytes) -> Any:
    entity, size = entity_reader(layout)(data, 0)
    assert size == len(data)
    return entity


def make(layout: type[Any], random: Random, *, nulls: bool = True) -> Any:
    """Some message of this class; without `nulls`, nothing in it is None but zero ids."""
    return layout(
        **{
            each.name: _value(each.type, each.metadata.get("kafka_type", ""), random, nulls)
            for each in fields(layout)
        }
    )


def _value(hint: Any, kind: str, random: Random, nulls: bool) -> Any:
    if get_origin(hint) is UnionType:
        if (nulls or kind == "uuid") and random.random() < 0.3:
            return None
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple:
        size = random.choice((0, 1, 2, 3, 3, 9))
        return tuple(_value(get_args(hint)[0], kind, random, nulls) for _ in range(size))
    if is_dataclass(hint):
        assert isinstance(hint, type)
        return make(hint, random, nulls=nulls)
    return _primitive(kind, random)


def _primitive(kind: str, random: Random) -> Any:
    match kind:
        case "int8" | "int16" | "int32" | "int64":
            edge = 1 << (_BITS[kind] - 1)
            return random.choice((0, -1, 1, edge - 1, -edge, random.randrange(-edge, edge)))
        case "uint16":
            return random.randrange(1 << 16)
        case "float64":
            return random.uniform(-1e9, 1e9)
        case "bool":
            return random.random() < 0.5
        case "string":
            return "".join(random.choices(_LETTERS, k=random.choice((0, 1, 5, 200))))
        case "bytes" | "records":
            return random.randbytes(random.choice((0, 1, 10, 130, 20_000)))
        case "uuid":
            return UUID(int=random.randrange(1, 1 << 128))
        case "error_code":
            return random.choice(tuple(ErrorCode))
        case "timedelta_i32":
            return timedelta(milliseconds=random.randrange(-(1 << 31), 1 << 31))
        case "timedelta_i64":
            return timedelta(milliseconds=random.randrange(-(1 << 45), 1 << 45))
        case "datetime_i64":
            return datetime.fromtimestamp(random.randrange(1 << 34), tz=UTC)
    raise NotImplementedError(kind)


def rewritten(entity: Any, layout: type[Any]) -> Any:
    """The message as a person would copy it field by field into another version's class."""
    values = {}
    for each in fields(layout):
        if hasattr(entity, each.name):
            values[each.name] = _rewritten_value(getattr(entity, each.name), each.type)
        elif each.default is not MISSING:
            values[each.name] = each.default
        else:
            values[each.name] = zero(each.type, each.metadata.get("kafka_type", ""))
    return layout(**values)


def _rewritten_value(value: Any, hint: Any) -> Any:
    if get_origin(hint) is UnionType:
        (hint,) = (each for each in get_args(hint) if each is not NoneType)
    if get_origin(hint) is tuple and isinstance(value, tuple):
        return tuple(_rewritten_value(each, get_args(hint)[0]) for each in value)
    return rewritten(value, hint) if is_dataclass(value) else value


def zero(hint: Any, kind: str) -> Any:
    """What a field is when nobody ever said."""
    if get_origin(hint) is UnionType:
        return None
    if get_origin(hint) is tuple:
        return ()
    if is_dataclass(hint):
        return rewritten(object(), hint)  # type: ignore[arg-type]
    zeros = {
        "string": "",
        "bytes": b"",
        "records": b"",
        "bool": False,
        "error_code": ErrorCode.none,
        "timedelta_i32": timedelta(),
        "timedelta_i64": timedelta(),
        "datetime_i64": datetime(1970, 1, 1, tzinfo=UTC),
    }
    return zeros.get(kind, 0)


def without_tags(entity: Any, keep: tuple[str, ...] = ()) -> Any:
    """The message with its tagged fields, and those of all it holds, at their defaults."""
    values = {}
    for each in fields(entity):
        value = getattr(entity, each.name)
        if "tag" in each.metadata and each.name not in keep:
            value = each.default
        elif isinstance(value, tuple):
            value = tuple(without_tags(v) if is_dataclass(v) else v for v in value)
        values[each.name] = value
    return type(entity)(**values)


def vectors() -> list[tuple[str, str, bytes]]:
    """Captured requests: which client, which API and version, and the frame's bytes."""
    found = []
    for path in sorted(VECTORS.glob("kafka_requests_*.txt")):
        client = path.stem.removeprefix("kafka_requests_")
        name = ""
        for line in path.read_text("ascii").splitlines():
            if line.startswith("["):
                name = line.strip("[]")
                found.append((client, name, b""))
            elif line and not line.startswith("#"):
                client, name, data = found.pop()
                found.append((client, name, data + bytes.fromhex(line)))
    return found
