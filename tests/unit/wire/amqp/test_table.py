"""Tables: every type as RabbitMQ has it, nothing lost, nothing without end."""

from decimal import Decimal
from typing import Any

import pytest

from entrepot.core import limits
from entrepot.wire.amqp import table
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.table import (
    Float32,
    Int8,
    Int16,
    Int64,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
)
from tests.unit.wire.amqp.oracle import same

# The bytes of one value, the value, and RabbitMQ's name and class of its type.
TYPES: list[tuple[bytes, Any, str, str]] = [
    (b"t\x01", True, "bool", "bool"),
    (b"t\x00", False, "bool", "bool"),
    (b"b\xff", Int8(-1), "byte", "int"),
    (b"B\xff", UInt8(255), "unsignedbyte", "int"),
    (b"s\xff\xfe", Int16(-2), "short", "int"),
    (b"u\xff\xfe", UInt16(65534), "unsignedshort", "int"),
    (b"I\xff\xff\xff\xfe", -2, "signedint", "int"),
    (b"i\xff\xff\xff\xfe", UInt32(2**32 - 2), "unsignedint", "int"),
    (b"l\xff\xff\xff\xff\xff\xff\xff\xfe", Int64(-2), "long", "int"),
    (b"T\x00\x00\x00\x00\x65\x53\xf1\x00", Timestamp(1_700_000_000), "timestamp", "timestamp"),
    (b"f\x3f\x00\x00\x00", Float32(0.5), "float", "float"),
    (b"d\x3f\xe0\x00\x00\x00\x00\x00\x00", 0.5, "double", "float"),
    (b"D\x02\x00\x00\x00\x6e", Decimal("1.10"), "decimal", "int"),
    (b"S\x00\x00\x00\x03\xc3\xbcx", "üx", "longstr", "longstr"),
    (b"x\x00\x00\x00\x02\x00\xff", b"\x00\xff", "binary", "binary"),
    (b"V", None, "void", "void"),
    (b"A\x00\x00\x00\x03t\x01V", [True, None], "array", "array"),
    (b"F\x00\x00\x00\x04\x01kt\x01", {"k": True}, "table", "table"),
]


@pytest.mark.parametrize(("data", "value", "name", "type_class"), TYPES)
def test_every_type(data: bytes, value: Any, name: str, type_class: str) -> None:
    assert same(table.decode(b"\x01n" + data), {"n": value})
    assert table.field("n", value) == b"\x01n" + data
    assert table.type_name(value) == name
    assert table.type_class(value) == type_class


def test_every_type_is_in_an_array_too() -> None:
    data = b"".join(each[0] for each in TYPES)
    array = table.long_string(data)
    assert same(table.decode(b"\x01nA" + array), {"n": [each[1] for each in TYPES]})


def test_the_large_l_is_read_as_the_small_one_and_written_so() -> None:
    value = table.decode(b"\x01nL" + b"\xff" * 8)["n"]
    assert same(value, Int64(-1))
    assert table.encode_value(value) == b"l" + b"\xff" * 8


def test_a_plain_number_is_as_long_as_it_must_be() -> None:
    assert table.encode_value(2**31 - 1) == b"I\x7f\xff\xff\xff"
    assert table.encode_value(2**31) == b"l\0\0\0\0\x80\0\0\0"
    assert table.type_name(2**31) == "long"
    assert table.encode_value(-(2**31) - 1)[:1] == b"l"


def test_any_number_but_0_is_true() -> None:
    assert table.decode(b"\x01nt\x07") == {"n": True}


def test_of_two_fields_with_one_name_the_first_counts() -> None:
    assert table.decode(b"\x01nt\x01\x01nt\x00") == {"n": True}


def test_bytes_that_are_no_text_survive() -> None:
    data = b"\x02\xff\xfeS\x00\x00\x00\x02\xc3\x28"
    assert table.encode(table.decode(data)) == data


def test_a_number_is_a_number() -> None:
    """Who reads a table need not know how its numbers were written."""
    assert UInt16(5) == Int64(5) == 5
    assert isinstance(Timestamp(1) + 1, int)


@pytest.mark.parametrize("wire_type", [b"F", b"A"])
def test_nesting_is_bounded(wire_type: bytes) -> None:
    def nested(depth: int) -> bytes:
        value = b"V"
        for _ in range(depth):
            field = b"\0" + value if wire_type == b"F" else value
            value = wire_type + table.long_string(field)
        return b"\x01n" + value

    deepest = nested(limits.TABLE_DEPTH_MAX)
    table.fields(deepest)
    assert table.encode(table.decode(deepest)) == deepest
    for read in (table.fields, table.decode):
        with pytest.raises(AmqpError, match="SYNTAX_ERROR - tables nested more than"):
            read(nested(limits.TABLE_DEPTH_MAX + 1))


@pytest.mark.parametrize("read", [table.fields, table.decode])
def test_a_table_cut_off_anywhere_is_refused(read: Any) -> None:
    for data, *_ in TYPES:
        whole = b"\x01n" + data
        read(whole)
        for size in range(1, len(whole)):
            with pytest.raises(AmqpError) as caught:
                read(whole[:size])
            assert caught.value.code == 502


@pytest.mark.parametrize("read", [table.fields, table.decode])
@pytest.mark.parametrize(
    "data",
    [
        b"\x01nZ",
        b"\x01nS\xff\xff\xff\xffabc",
        b"\x01nF\x00\x00\x00\x05\x01kt\x01",
        b"\x01nF\x00\x00\x00\x03\x01kt\x00V",  # A value that leaves its table.
        b"\x01nA\x00\x00\x00\x01t\x01",
        b"\x01nF\x00\x00\x00\x01\x05",
        b"\xffn",
    ],
)
def test_a_damaged_table_is_refused(read: Any, data: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        read(data)
    assert caught.value.code == 502
