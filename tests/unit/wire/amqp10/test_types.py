"""Values as bytes: golden ones of the specification (part 1.6), round trips, and nonsense."""

import contextlib
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as some

from entrepot.wire.amqp10 import limits, types
from entrepot.wire.amqp10.errors import Amqp10Error
from entrepot.wire.amqp10.types import Array, Described, Symbol, ULong, decode, encode

GOLDEN: list[tuple[str, Any]] = [  # As part 1.6 of the specification draws them.
    ("40", None),
    ("41", True),
    ("42", False),
    ("43", types.UInt(0)),
    ("44", ULong(0)),
    ("45", []),
    ("50 ff", types.UByte(255)),
    ("51 ff", types.Byte(-1)),
    ("52 07", types.UInt(7)),
    ("53 10", ULong(16)),
    ("54 fe", types.Int(-2)),
    ("55 05", 5),
    ("60 01 00", types.UShort(256)),
    ("61 ff 00", types.Short(-256)),
    ("70 00 01 00 00", types.UInt(65_536)),
    ("71 80 00 00 00", types.Int(-(2**31))),
    ("72 3f 00 00 00", types.Float(0.5)),
    ("73 00 01 f4 08", types.Char("\U0001f408")),
    ("80 00 00 00 01 00 00 00 00", ULong(2**32)),
    ("81 80 00 00 00 00 00 00 00", -(2**63)),
    ("82 3f e0 00 00 00 00 00 00", 0.5),
    ("83 00 00 01 2e 5a 4d 10 00", types.Timestamp(0x12E5A4D1000)),
    ("98" + "00" * 15 + "05", UUID(int=5)),
    ("a0 02 01 ff", b"\x01\xff"),
    ("a1 02 c3 a9", "é"),
    ("a3 03 61 62 63", Symbol("abc")),
    ("c0 05 02 55 01 a1 00", [1, ""]),
    ("c1 06 02 a3 01 6b 55 02", {Symbol("k"): 2}),
    ("00 53 24 45", Described(ULong(0x24), [])),
]


@pytest.mark.parametrize(("data", "value"), GOLDEN)
def test_golden(data: str, value: Any) -> None:
    found = decode(bytes.fromhex(data))
    assert (found, type(found)) == (value, type(value))
    assert encode(value) == bytes.fromhex(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("56 01", True),
        ("70 00 00 00 00", types.UInt(0)),
        ("b1 00 00 00 01 61", "a"),
        ("d0 00 00 00 06 00 00 00 01 55 03", [3]),
        ("e0 06 02 a3 01 61 01 62", Array([Symbol("a"), Symbol("b")], b"\xa3")),
        ("f0 00 00 00 05 00 00 00 02 41", Array([True, True], b"\x41")),
    ],
)
def test_longer_forms_of_the_same(data: str, value: Any) -> None:
    assert decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "ends too early"),
        ("3f", "no type"),
        ("a2 00", "no type"),
        ("56 02", "neither 0 nor 1"),
        ("a1 02 61", "ends too early"),
        ("b1 ff ff ff ff", "ends too early"),
        ("a1 01 ff", "character set"),
        ("a3 02 c3 a9", "character set"),
        ("73 00 11 00 00", "not Unicode"),
        ("c0 01 02", "more elements"),
        ("d0 00 00 00 05 ff ff ff ff 40", "more elements"),
        ("c0 03 01 55 01 55", "after a value"),
        ("c0 04 01 55 01 40", "do not fit"),
        ("c1 03 01 55 01", "no value"),
        ("c1 03 02 45 41", "whose key"),
        ("f0 00 00 00 05 ff ff ff ff 40", "too many"),
        ("55 01 55 01", "after a value"),
        ("00" * 100 + "40", "too deep"),
        ("c0 ff 01" * 60, "ends too early"),
    ],
)
def test_nonsense(data: str, said: str) -> None:
    with pytest.raises(Amqp10Error, match=said):
        decode(bytes.fromhex(data))


def test_nesting_is_bounded() -> None:
    value: list[Any] = []
    for _ in range(limits.VALUE_DEPTH_MAX + 1):
        value = [value]
    with pytest.raises(Amqp10Error, match="too deep"):
        decode(encode(value))


def test_the_number_of_values_is_bounded() -> None:
    with pytest.raises(Amqp10Error, match="too many"):
        decode(encode([None] * (limits.VALUES_MAX + 1)))


scalars = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**63), 2**63 - 1),
    some.integers(0, 2**8 - 1).map(types.UByte),
    some.integers(0, 2**16 - 1).map(types.UShort),
    some.integers(0, 2**32 - 1).map(types.UInt),
    some.integers(0, 2**64 - 1).map(ULong),
    some.integers(-(2**7), 2**7 - 1).map(types.Byte),
    some.integers(-(2**15), 2**15 - 1).map(types.Short),
    some.integers(-(2**31), 2**31 - 1).map(types.Int),
    some.integers(-(2**63), 2**63 - 1).map(types.Timestamp),
    some.floats(allow_nan=False),
    some.floats(width=32, allow_nan=False).map(types.Float),
    some.sampled_from([4, 8, 16]).flatmap(
        lambda size: some.binary(min_size=size, max_size=size).map(types.Decimal)
    ),
    some.characters(exclude_categories=["Cs"]).map(types.Char),
    some.uuids(),
    some.text(max_size=300),
    some.text(some.characters(codec="ascii"), max_size=300).map(Symbol),
    some.binary(max_size=300),
)
values = some.recursive(
    scalars,
    lambda inner: some.one_of(
        some.lists(inner, max_size=5),
        some.dictionaries(some.text(max_size=5), inner, max_size=5),
        some.builds(Described, some.integers(0, 2**64 - 1).map(ULong), inner),
    ),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """The value with the types of all that is in it, to compare."""
    if isinstance(value, Described):
        return "described", typed(value.descriptor), typed(value.value)
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, dict):
        return {key: typed(each) for key, each in value.items()}
    return type(value).__name__, value


@given(values)
def test_round_trips(value: Any) -> None:
    assert typed(decode(encode(value))) == typed(value)


@given(some.binary(max_size=200))
def test_anything_is_decoded_or_refused(data: bytes) -> None:
    with contextlib.suppress(Amqp10Error):
        decode(data)


@given(values)
def test_skipping_is_as_long_as_reading(value: Any) -> None:
    data = encode(value)
    reader = types.Reader(data)
    reader.skip()
    assert reader.is_at_end
