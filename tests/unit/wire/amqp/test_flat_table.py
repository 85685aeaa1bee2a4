"""Fields of tables are read as `table` reads them, only faster."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.neutral import header_bytes, unicode_name
from entrepot.wire.amqp import table
from entrepot.wire.amqp.flat_table import SIZES, is_flat, texts
from tests.unit.wire.amqp.test_table import TYPES

FLAT = [data for data, _, name, _ in TYPES if name not in ("array", "table")]
ALL = [data for data, *_ in TYPES]
NAMES = st.binary(max_size=3).map(lambda name: bytes((len(name),)) + name)


def test_sizes() -> None:
    assert {data[0] for data in FLAT} - set(SIZES) == set(b"Sx")
    for data in FLAT:
        assert SIZES.get(data[0], len(data) - 1) == len(data) - 1


@given(st.lists(st.tuples(NAMES, st.sampled_from(ALL))))
def test_texts_are_those_of_the_decoded_values(fields: list[tuple[bytes, bytes]]) -> None:
    data = b"".join(name + value for name, value in fields)
    by_name = texts(data, lambda encoded: header_bytes(table.decode_value(encoded)))
    found = [(name.decode("utf-8", "replace"), text) for name, text in by_name.items()]
    assert found == [
        (unicode_name(name), None if value is None else header_bytes(value))
        for name, value in table.decode(data).items()
    ]


def test_what_is_not_flat() -> None:
    for data, _, name, _ in TYPES:
        field = b"\x01n" + data
        assert is_flat(field, 0, len(field)) is (name not in ("array", "table"))


def test_what_is_cut_off_is_not_flat() -> None:
    for data in FLAT:
        field = b"\x01n" + data
        assert not any(is_flat(field, 0, end) for end in range(1, len(field)))
