"""The performatives of AMQP 1.0, and what they are made of: composite values as typed tuples.

A composite value is a list with a descriptor. Each class here has the descriptor as a number and
as a name, and for each field how it is written. A field that is missing has its default, and one
of another type than the specification says is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from entrepot.wire.amqp10 import types
from entrepot.wire.amqp10.types import (
    NULL,
    Described,
    Symbol,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    malformed,
)

Fields = dict[Any, Value]  # A map whose keys are symbols.


class Composite(Protocol):
    """A tuple of the fields of a composite value."""

    def _asdict(self) -> dict[str, Any]: ...


class Error(NamedTuple):
    condition: str = ""
    description: str | None = None
    info: Fields | None = None


# --- transport (part 2.7)


class Open(NamedTuple):
    container_id: str = ""
    hostname: str | None = None
    max_frame_size: int = 2**32 - 1
    channel_max: int = 2**16 - 1
    idle_time_out: int | None = None
    outgoing_locales: Value = None
    incoming_locales: Value = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields | None = None


class Begin(NamedTuple):
    remote_channel: int | None = None
    next_outgoing_id: int = 0
    incoming_window: int = 0
    outgoing_window: int = 0
    handle_max: int = 2**32 - 1
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields | None = None


class Source(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str | None = None
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: str | None = None
    filter: Fields | None = None
    default_outcome: Value = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


class Target(NamedTuple):
    address: str | None = None
    durable: int = 0
    expiry_policy: str | None = None
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: tuple[str, ...] = ()


class Coordinator(NamedTuple):
    capabilities: tuple[str, ...] = ()


class Attach(NamedTuple):
    name: str = ""
    handle: int = 0
    is_receiver: bool = False  # The field `role`, of whoever sends this.
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Value = None
    target: Value = None
    unsettled: Fields | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Fields | None = None


class Flow(NamedTuple):
    next_incoming_id: int | None = None
    incoming_window: int = 0
    next_outgoing_id: int = 0
    outgoing_window: int = 0
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Fields | None = None


class Transfer(NamedTuple):
    handle: int = 0
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: Value = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


class Disposition(NamedTuple):
    is_receiver: bool = False  # The field `role`, of whoever sends this.
    first: int = 0
    last: int | None = None
    settled: bool = False
    state: Value = None
    batchable: bool = False


class Detach(NamedTuple):
    handle: int = 0
    closed: bool = False
    error: Error | None = None


class End(NamedTuple):
    error: Error | None = None


class Close(NamedTuple):
    error: Error | None = None


# --- delivery states (part 3.4), and those of transactions (part 4.5)


class Received(NamedTuple):
    section_number: int = 0
    section_offset: int = 0


class Accepted(NamedTuple):
    pass


class Rejected(NamedTuple):
    error: Error | None = None


class Released(NamedTuple):
    pass


class Modified(NamedTuple):
    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Fields | None = None


class Declare(NamedTuple):
    global_id: Value = None


class Discharge(NamedTuple):
    txn_id: bytes = b""
    fail: bool = False


class Declared(NamedTuple):
    txn_id: bytes = b""


class TransactionalState(NamedTuple):
    txn_id: bytes = b""
    outcome: Value = None


# --- logging in (part 5.3)


class SaslMechanisms(NamedTuple):
    mechanisms: tuple[str, ...] = ()


class SaslInit(NamedTuple):
    mechanism: str = ""
    initial_response: bytes | None = None
    hostname: str | None = None


class SaslChallenge(NamedTuple):
    challenge: bytes = b""


class SaslResponse(NamedTuple):
    response: bytes = b""


class SaslOutcome(NamedTuple):
    code: int = 0
    additional_data: bytes | None = None


# --- how fields are written and read


class _Kind(NamedTuple):
    """A type of fields: how it is encoded, and how a decoded value is checked."""

    encode: Callable[[Any], bytes]
    check: Callable[[Value], Value]


def _is(*wanted: type) -> Callable[[Value], Value]:
    def check(value: Value) -> Value:
        if type(value) not in wanted:
            raise malformed(f"a field of the type {type(value).__name__}")
        return value

    return check


def _several(value: Value) -> tuple[str, ...]:
    """Read a field that may have one symbol or an array of them."""
    if isinstance(value, Symbol):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, Symbol) for each in value):
        return tuple(value)
    raise malformed("a field that must have symbols")


def _symbols(values: tuple[str, ...]) -> bytes:
    return types.symbols(values) if values else NULL


def _composite(value: Value) -> bytes:
    """Encode a composite value, or what a peer has put in its place: it may be sent back."""
    return encode(value) if type(value) in _SCHEMA else types.encode(value)


def _error(value: Value) -> Error:
    found = read(value)
    if not isinstance(found, Error):
        raise malformed("a field that must have an error")
    return found


def _anything(value: Value) -> Value:
    return read(value) if isinstance(value, Described) else value


_TEXT = _Kind(types.text, _is(str))
_SYMBOL = _Kind(types.symbol, _is(Symbol))
_SYMBOLS = _Kind(_symbols, _several)
_BINARY = _Kind(types.binary, _is(bytes))
_TRUTH = _Kind(lambda value: b"\x41" if value else b"\x42", _is(bool))
_UBYTE = _Kind(lambda value: types.encode(UByte(value)), _is(UByte))
_USHORT = _Kind(lambda value: types.encode(UShort(value)), _is(UShort))
_UINT = _Kind(types.uint, _is(UInt))
_ULONG = _Kind(types.ulong, _is(ULong))
_MAP = _Kind(types.encode, _is(dict))
_ERROR = _Kind(_composite, _error)
_ANY = _Kind(_composite, _anything)  # A composite value of one of several types.

_TERMINUS = (_TEXT, _UINT, _SYMBOL, _UINT, _TRUTH, _MAP)

# The descriptor of each composite value, and the types of its fields.
_SCHEMA: Final[dict[type, tuple[int, str, tuple[_Kind, ...]]]] = {
    Error: (0x1D, "amqp:error:list", (_SYMBOL, _TEXT, _MAP)),
    Open: (
        0x10,
        "amqp:open:list",
        (_TEXT, _TEXT, _UINT, _USHORT, _UINT, _ANY, _ANY, _SYMBOLS, _SYMBOLS, _MAP),
    ),
    Begin: (
        0x11,
        "amqp:begin:list",
        (_USHORT, _UINT, _UINT, _UINT, _UINT, _SYMBOLS, _SYMBOLS, _MAP),
    ),
    Attach: (
        0x12,
        "amqp:attach:list",
        (
            *(_TEXT, _UINT, _TRUTH, _UBYTE, _UBYTE, _ANY, _ANY, _MAP, _TRUTH, _UINT, _ULONG),
            *(_SYMBOLS, _SYMBOLS, _MAP),
        ),
    ),
    Flow: (
        0x13,
        "amqp:flow:list",
        (_UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _UINT, _TRUTH, _TRUTH, _MAP),
    ),
    Transfer: (
        0x14,
        "amqp:transfer:list",
        (
            *(_UINT, _UINT, _BINARY, _UINT, _TRUTH, _TRUTH, _UBYTE, _ANY),
            *(_TRUTH, _TRUTH, _TRUTH),
        ),
    ),
    Disposition: (
        0x15,
        "amqp:disposition:list",
        (_TRUTH, _UINT, _UINT, _TRUTH, _ANY, _TRUTH),
    ),
    Detach: (0x16, "amqp:detach:list", (_UINT, _TRUTH, _ERROR)),
    End: (0x17, "amqp:end:list", (_ERROR,)),
    Close: (0x18, "amqp:close:list", (_ERROR,)),
    Received: (0x23, "amqp:received:list", (_UINT, _ULONG)),
    Accepted: (0x24, "amqp:accepted:list", ()),
    Rejected: (0x25, "amqp:rejected:list", (_ERROR,)),
    Released: (0x26, "amqp:released:list", ()),
    Modified: (0x27, "amqp:modified:list", (_TRUTH, _TRUTH, _MAP)),
    Source: (
        0x28,
        "amqp:source:list",
        (*_TERMINUS, _SYMBOL, _MAP, _ANY, _SYMBOLS, _SYMBOLS),
    ),
    Target: (0x29, "amqp:target:list", (*_TERMINUS, _SYMBOLS)),
    Coordinator: (0x30, "amqp:coordinator:list", (_SYMBOLS,)),
    Declare: (0x31, "amqp:declare:list", (_ANY,)),
    Discharge: (0x32, "amqp:discharge:list", (_BINARY, _TRUTH)),
    Declared: (0x33, "amqp:declared:list", (_BINARY,)),
    TransactionalState: (0x34, "amqp:transactional-state:list", (_BINARY, _ANY)),
    SaslMechanisms: (0x40, "amqp:sasl-mechanisms:list", (_SYMBOLS,)),
    SaslInit: (0x41, "amqp:sasl-init:list", (_SYMBOL, _BINARY, _TEXT)),
    SaslChallenge: (0x42, "amqp:sasl-challenge:list", (_BINARY,)),
    SaslResponse: (0x43, "amqp:sasl-response:list", (_BINARY,)),
    SaslOutcome: (0x44, "amqp:sasl-outcome:list", (_UBYTE, _BINARY)),
}
_BY_DESCRIPTOR: Final[dict[Value, type]] = {
    descriptor: kind for kind, (*both, _) in _SCHEMA.items() for descriptor in both
}
# Fields that must be there, by their number from the start.
_MANDATORY: Final[dict[type, tuple[int, ...]]] = {
    Open: (0,),
    Begin: (1, 2, 3),
    Attach: (0, 1, 2),
    Flow: (1, 2, 3),
    Transfer: (0,),
    Disposition: (0, 1),
    Detach: (0,),
    Discharge: (0,),
    Declared: (0,),
    TransactionalState: (0,),
    SaslInit: (0,),
    SaslResponse: (0,),
    Error: (0,),
}

C = TypeVar("C")


def encode(value: Composite) -> bytes:
    """Return the bytes of a composite value. Fields that are None, or default, are left out."""
    code, _, kinds = _SCHEMA[type(value)]
    fields = cast("tuple[Any, ...]", value)
    encoded = [
        NULL if field is None else kind.encode(field)
        for field, kind in zip(fields, kinds, strict=True)
    ]
    return types.described(code, types.list_of_encoded(encoded))


def read(value: Value) -> Value:
    """Return a decoded value as a composite one. One whose descriptor is not known stays as it is.

    Raises Amqp10Error for fields of a wrong type, and for missing ones.
    """
    if not isinstance(value, Described):
        raise malformed("a value without a descriptor where a composite one belongs")
    descriptor, fields = value
    try:
        kind = _BY_DESCRIPTOR.get(descriptor)
    except TypeError:
        raise malformed("a descriptor that is a list, a map or an array") from None
    if kind is None:
        return value
    kinds = _SCHEMA[kind][2]
    if not isinstance(fields, list) or len(fields) > len(kinds):
        raise malformed(f"{kind.__name__} with too many fields")
    found = {}
    for name, field, each in zip(kind._fields, fields, kinds, strict=False):  # type: ignore[attr-defined]
        if field is not None:
            found[name] = each.check(field)
    for place in _MANDATORY.get(kind, ()):
        name = kind._fields[place]  # type: ignore[attr-defined]
        if name not in found:
            raise malformed(f"{kind.__name__} without {name}")
    return kind(**found)
