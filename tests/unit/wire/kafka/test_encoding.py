"""The two encodings, byte by byte. Whole messages are held against kio in test_layout."""

from uuid import UUID

import pytest

from entrepot.core.errors import MalformedFrame
from entrepot.wire.kafka.encoding import (
    CompactReader,
    CompactWriter,
    LegacyReader,
    LegacyWriter,
    Reader,
    Writer,
    tagged,
    uuid_bytes,
    uuid_from,
    uvarint,
)

ENCODINGS = [(LegacyReader, LegacyWriter), (CompactReader, CompactWriter)]
both = pytest.mark.parametrize(("reader", "writer"), ENCODINGS, ids=["legacy", "compact"])


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (300, b"\xac\x02"),
        ((1 << 32) - 1, b"\xff\xff\xff\xff\x0f"),
    ],
)
def test_varints(value: int, data: bytes) -> None:
    assert uvarint(value) == data
    reader = CompactReader(memoryview(data))
    assert reader.uvarint() == value
    assert reader.position == reader.end


def test_the_forms_of_a_string() -> None:
    assert LegacyWriter.string("grün") == b"\x00\x05gr\xc3\xbcn"
    assert CompactWriter.string("grün") == b"\x06gr\xc3\xbcn"
    assert LegacyWriter.nullable_string(None) == b"\xff\xff"
    assert CompactWriter.nullable_string(None) == b"\x00"


def test_the_forms_of_a_length() -> None:
    assert LegacyWriter.length(None) == b"\xff\xff\xff\xff"
    assert LegacyWriter.length(3) == b"\x00\x00\x00\x03"
    assert CompactWriter.length(None) == b"\x00"
    assert CompactWriter.length(3) == b"\x04"


@both
def test_what_is_written_is_read(reader: type[Reader], writer: type[Writer]) -> None:
    text = "grüße " * 50
    data = b"".join(
        (
            writer.string(text),
            writer.nullable_string(None),
            writer.nullable_string(""),
            writer.data(text.encode()),
            writer.nullable_data(None),
            writer.nullable_data(b""),
            writer.length(2),
            writer.length(None),
            writer.NO_TAGS,
            bytes(8),
        )
    )
    source = reader(memoryview(data))
    assert source.string() == text
    assert source.nullable_string() is None
    assert source.nullable_string() == ""
    assert source.data() == text.encode()
    assert source.nullable_data() is None
    assert source.nullable_data() == b""
    assert source.count(4) == 2
    assert source.nullable_count(4) is None
    source.skip_tags()
    assert source.take(8) == bytes(8)
    assert source.position == source.end


@both
def test_data_is_a_view_of_the_message(reader: type[Reader], writer: type[Writer]) -> None:
    message = bytearray(writer.data(b"abc"))
    view = reader(memoryview(message)).data()
    message[-1:] = b"C"
    assert view == b"abC"


@both
def test_a_length_beyond_the_end_is_refused(reader: type[Reader], writer: type[Writer]) -> None:
    message = memoryview(writer.data(b"abc"))
    assert reader(message).data() == b"abc"
    with pytest.raises(MalformedFrame, match="a length of 3 with 2 bytes left"):
        reader(message[:-1]).data()
    with pytest.raises(MalformedFrame, match="null for bytes"):
        reader(memoryview(writer.length(None))).data()


def test_a_negative_length_is_refused() -> None:
    for data in (b"\xff\xfe", b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"):
        reader = LegacyReader(memoryview(data + bytes(8)))
        with pytest.raises(MalformedFrame):
            reader.nullable_string() if len(data) == 2 else reader.nullable_data()


def test_tags_come_in_order() -> None:
    data = tagged([(5, b"five"), (0, b"")])
    assert data == b"\x02\x00\x00\x05\x04five"
    reader = CompactReader(memoryview(data))
    assert reader.tags({5: lambda each: bytes(each.take(4))}) == {5: b"five"}
    assert reader.position == reader.end


def test_legacy_structures_have_no_tags() -> None:
    reader = LegacyReader(memoryview(b""))
    assert reader.tags({0: Reader.uuid}) == {}
    assert reader.position == reader.end


def test_no_id_is_all_zeros() -> None:
    one = UUID(int=1)
    assert uuid_bytes(None) == bytes(16)
    assert uuid_from(bytes(16)) is None
    assert uuid_from(uuid_bytes(one)) == one
