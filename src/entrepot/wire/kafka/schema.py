"""Describes kio's dataclasses: what each field is on the wire, and what it is when it is absent."""

from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from struct import calcsize
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin

F = TypeVar("F")

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Types whose values `struct` packs and unpacks as they are.
NUMBERS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
}
# All types of a fixed size; the values of the last five take a conversion.
FIXED = NUMBERS | {
    "datetime_i64": "q",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "uuid": "16s",
}


def remembered(function: F) -> F:
    """functools.cache, which would lose the types of a function of classes."""
    return cast(F, cache(cast(Any, function)))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a kio class."""

    name: str
    kind: str  # Kafka's type of it, or of an array's elements; "" when that is a structure.
    python: type[Any]  # The class of the value, or of an array's elements.
    is_array: bool
    is_nullable: bool
    tag: int | None
    default: Any  # The default that kio has, or else the zero of the type.

    @property
    def is_fixed(self) -> bool:
        """Whether it is always present and of the same size: such neighbours are read together."""
        return self.kind in FIXED and not self.is_array and self.tag is None

    @property
    def is_long(self) -> bool:
        """Whether it is an array that is read in steps. Arrays of numbers are read at once."""
        return self.is_array and self.kind not in NUMBERS and self.tag is None

    def element_bytes_min(self, flexible: bool) -> int:
        """Return how many bytes the value, or one of an array's elements, has at least."""
        match self.kind:
            case "":
                return bytes_min(self.python)
            case "string":
                return 1 if flexible else 2
            case "bytes" | "records":
                return 1 if flexible else 4
        return calcsize(">" + FIXED[self.kind])


@remembered
def fields_of(entity: type[Any]) -> tuple[Field, ...]:
    return tuple(
        _field(
            each.name,
            each.type,
            each.metadata.get("kafka_type", ""),
            each.metadata.get("tag"),
            each.default,
        )
        for each in fields(entity)
    )


@remembered
def bytes_min(entity: type[Any]) -> int:
    """Return how many bytes an entity of this class has at least. An array cannot have more of them
    than fit into the rest of its message."""
    flexible: bool = entity.__flexible__
    total = 1 if flexible else 0
    for each in fields_of(entity):
        if each.tag is not None:
            continue
        if each.is_array:
            total += 1 if flexible else 4
        elif each.is_nullable and not each.kind:
            total += 1
        else:
            total += each.element_bytes_min(flexible)
    return total


def _field(name: str, hint: Any, kind: str, tag: int | None, default: Any) -> Field:
    python, is_nullable = _without_none(hint)
    is_array = get_origin(python) is tuple
    if is_array:
        python, _ = _without_none(get_args(python)[0])
    if default is MISSING:
        default = _zero(python, kind, is_array, is_nullable)
    return Field(name, kind, python, is_array, is_nullable, tag, default)


def _without_none(hint: Any) -> tuple[Any, bool]:
    if get_origin(hint) is not UnionType:
        return hint, False
    (inner,) = (each for each in get_args(hint) if each is not NoneType)
    return inner, True


def _zero(python: type[Any], kind: str, is_array: bool, is_nullable: bool) -> Any:
    if is_nullable:
        return None
    if is_array:
        return ()
    if is_dataclass(python):
        return python(**{each.name: each.default for each in fields_of(python)})
    match kind:
        case "string":
            return ""
        case "bytes" | "records":
            return b""
        case "error_code":
            return python(0)
        case "timedelta_i32" | "timedelta_i64":
            return timedelta()
        case "datetime_i64":
            return EPOCH
        case "bool":
            return False
    return 0
