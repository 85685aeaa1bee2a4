"""Every message of every version against kio's own writer and reader."""

from contextlib import suppress
from dataclasses import fields, replace
from datetime import timedelta
from itertools import product
from random import Random
from struct import pack
from typing import Any

import pytest
from kio.schema.api_versions.v3.response import ApiVersionsResponse
from kio.schema.describe_topic_partitions.v0.request import Cursor, DescribeTopicPartitionsRequest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v7.request import FetchRequest, ForgottenTopic
from kio.schema.init_producer_id.v1.request import InitProducerIdRequest as InitProducerIdV1
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest as InitProducerIdV4
from kio.schema.metadata.v1.request import MetadataRequest as MetadataV1
from kio.schema.metadata.v9.request import MetadataRequest as MetadataV9
from kio.schema.produce.v3.response import ProduceResponse

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.steps import finish
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.encoding import tagged, uvarint
from entrepot.wire.kafka.layout import decode, decode_steps, encode, encode_steps
from tests.unit.wire.kafka import oracle

MetadataV0 = request_class(Api.METADATA, 0)


@pytest.fixture(params=Api, ids=lambda api: api.name)
def layouts(request: pytest.FixtureRequest) -> list[type[Any]]:
    """Both messages of an API in all their versions."""
    return [layout for layout in oracle.messages() if layout.__api_key__ == request.param]


def test_bytes_are_those_of_kio(layouts: list[type[Any]]) -> None:
    for layout, seed in product(layouts, range(3)):
        entity = oracle.make(layout, Random(seed))
        data = oracle.kio_bytes(entity)
        assert encode(entity, layout) == data, layout
        assert decode(layout, layout, memoryview(data)) == entity, layout
        assert oracle.kio_read(layout, data) == entity, layout


def test_in_steps_the_bytes_are_the_same(layouts: list[type[Any]]) -> None:
    for layout, seed in product(layouts, range(3)):
        entity = oracle.make(layout, Random(seed))
        data = oracle.kio_bytes(entity)
        assert b"".join(finish(encode_steps(entity, layout))) == data, layout
        assert finish(decode_steps(layout, layout, memoryview(data), 0)) == entity, layout


def test_every_element_of_an_array_is_a_step_of_its_own() -> None:
    name, partition = b"\0\1t", bytes(12)
    frame = bytes(5) + pack(">i", 3) + 3 * (name + pack(">i", 2) + 2 * partition)
    layout = request_class(Api.LIST_OFFSETS, 2)
    steps = list(decode_steps(layout, layout, memoryview(frame + bytes(99)), 0))
    assert len(steps) >= 9


def test_an_old_message_is_read_into_the_newest_class(layouts: list[type[Any]]) -> None:
    for layout in layouts:
        model = oracle.newest(layout)
        old = oracle.make(layout, Random(1))
        read = decode(model, layout, memoryview(oracle.kio_bytes(old)))
        assert read == oracle.rewritten(old, model), layout


def test_the_newest_class_is_written_as_an_old_message(layouts: list[type[Any]]) -> None:
    for layout in layouts:
        new = oracle.make(oracle.newest(layout), Random(2), nulls=False)
        assert encode(new, layout) == oracle.kio_bytes(oracle.rewritten(new, layout)), layout


def test_what_is_cut_short_is_refused(layouts: list[type[Any]]) -> None:
    for layout in layouts:
        data = encode(oracle.make(layout, Random(4)), layout)
        for size in range(0, len(data), 1 + len(data) // 30):
            with pytest.raises(MalformedFrame):
                decode(layout, layout, memoryview(data)[:size])
        longer = decode(layout, layout, memoryview(data + b"\0"))
        assert longer == decode(layout, layout, memoryview(data)), "Kafka passes over the rest"


def test_damaged_bytes_are_read_or_refused_and_nothing_else(layouts: list[type[Any]]) -> None:
    random = Random(5)
    for layout in layouts:
        data = bytearray(encode(oracle.make(layout, random), layout))
        for _ in range(20 if data else 0):
            damaged = data.copy()
            for _ in range(random.randrange(1, 4)):
                position = random.randrange(min(len(data), 300))
                damaged[position] = random.choice((0, 0x7F, 0x80, 0xFF))
            with suppress(MalformedFrame):
                decode(layout, layout, memoryview(damaged))


def test_a_message_is_read_from_where_the_header_ends() -> None:
    request = MetadataV1(topics=())
    assert decode(MetadataV1, MetadataV1, memoryview(b"head\0\0\0\0"), 4) == request


def test_values_the_older_version_cannot_say_are_our_own_mistake() -> None:
    with pytest.raises((AttributeError, TypeError)):
        encode(replace(oracle.make(oracle.newest(MetadataV1), Random(0)), topics=None), MetadataV0)


@pytest.mark.parametrize("count", [-2, 2, 1 << 20, (1 << 31) - 1])
def test_a_legacy_count_is_held_against_the_bytes_there_are(count: int) -> None:
    with pytest.raises(MalformedFrame, match="an array of"):
        decode(MetadataV1, MetadataV1, memoryview(pack(">ih", count, 0)))


@pytest.mark.parametrize("count", [3, 1 << 20, (1 << 31) - 1, (1 << 35) - 2])
def test_a_compact_count_is_held_against_the_bytes_there_are(count: int) -> None:
    with pytest.raises(MalformedFrame, match="an array of"):
        decode(MetadataV9, MetadataV9, memoryview(uvarint(count + 1) + b"\0\0\0\0"))


def test_a_varint_ends_after_five_bytes() -> None:
    with pytest.raises(MalformedFrame, match="five bytes"):
        decode(MetadataV9, MetadataV9, memoryview(b"\x80\x80\x80\x80\x80\x00" + bytes(9)))


def test_all_arrays_of_a_message_draw_on_one_budget() -> None:
    def request(*sizes: int) -> FetchRequest:
        topics = tuple(ForgottenTopic(topic="a", partitions=(1,) * size) for size in sizes)
        return FetchRequest(
            max_wait=timedelta(), min_bytes=1, topics=(), forgotten_topics_data=topics
        )

    half = limits.REQUEST_ELEMENTS_MAX // 2
    fits = request(half, half - 2)
    assert decode(FetchRequest, FetchRequest, memoryview(encode(fits, FetchRequest))) == fits
    with pytest.raises(MalformedFrame, match="elements"):
        decode(FetchRequest, FetchRequest, memoryview(encode(request(half, half), FetchRequest)))


def test_tagged_fields_count_as_elements() -> None:
    tags = uvarint(limits.REQUEST_ELEMENTS_MAX + 1) + b"\x63\0" * (limits.REQUEST_ELEMENTS_MAX + 1)
    data = encode(oracle.make(MetadataV9, Random(0)), MetadataV9)
    with pytest.raises(MalformedFrame, match="elements"):
        decode(MetadataV9, MetadataV9, memoryview(data[:-1] + tags))


def test_unknown_tags_are_passed_over() -> None:
    request = oracle.make(MetadataV9, Random(3))
    data = encode(request, MetadataV9)
    assert data.endswith(b"\0")
    for unknown in ([(99, b"abc")], [(0, b""), (1 << 20, bytes(200))]):
        assert decode(MetadataV9, MetadataV9, memoryview(data[:-1] + tagged(unknown))) == request
    for tags in (b"\x01", b"\x01\x63", b"\x01\x63\x05abc", b"\x02\x63\x01a", b"\x7f\x63\x00"):
        with pytest.raises(MalformedFrame):
            decode(MetadataV9, MetadataV9, memoryview(data[:-1] + tags))


def test_a_known_tag_is_of_the_size_it_says() -> None:
    layout = ApiVersionsResponse
    plain = ApiVersionsResponse(
        error_code=ErrorCode.none,
        api_keys=(),
        throttle_time=timedelta(),
        finalized_features_epoch=7,
    )
    data = encode(plain, layout)
    epoch = tagged([(1, pack(">q", 7))])
    assert data.endswith(epoch)
    head = data.removesuffix(epoch)
    for wrong in (tagged([(1, pack(">qb", 7, 0))]), b"\x01\x01\x07" + pack(">q", 7)):
        with pytest.raises(MalformedFrame, match="tagged field 1"):
            decode(layout, layout, memoryview(head + wrong))


def test_tags_are_written_in_order_and_only_when_they_say_something() -> None:
    for layout in oracle.messages():
        if layout.__flexible__ and any("tag" in each.metadata for each in fields(layout)):
            silent = oracle.rewritten(object(), layout)
            assert encode(silent, layout) == oracle.kio_bytes(silent)
            assert encode(silent, layout).endswith(b"\0")


def test_null_where_there_is_none_is_refused() -> None:
    with pytest.raises(MalformedFrame, match="null for a string"):
        decode(MetadataV1, MetadataV1, memoryview(b"\0\0\0\x01\xff\xff"))
    with pytest.raises(MalformedFrame, match="null for a string"):
        decode(MetadataV9, MetadataV9, memoryview(b"\x02\0\0\0\0\0\0"))
    with pytest.raises(MalformedFrame, match="null for an array"):
        decode(ProduceResponse, ProduceResponse, memoryview(b"\xff\xff\xff\xff\0\0\0\0"))


def test_text_is_utf8() -> None:
    with pytest.raises(MalformedFrame, match="utf-8"):
        decode(MetadataV1, MetadataV1, memoryview(b"\0\0\0\x01\0\x02\xc3\x28"))


def test_a_nullable_structure_has_a_mark_before_it() -> None:
    layout = DescribeTopicPartitionsRequest
    request = DescribeTopicPartitionsRequest(
        topics=(), cursor=Cursor(topic_name="a", partition_index=1)
    )
    for each in (request, replace(request, cursor=None)):
        data = encode(each, layout)
        assert data == oracle.kio_bytes(each)
        assert decode(layout, layout, memoryview(data)) == each


def test_an_error_code_from_the_future_is_an_unknown_error() -> None:
    data = bytearray(encode(oracle.make(ApiVersionsResponse, Random(0)), ApiVersionsResponse))
    data[:2] = pack(">h", 30_000)
    read = decode(ApiVersionsResponse, ApiVersionsResponse, memoryview(data))
    assert read.error_code is ErrorCode.unknown_server_error


@pytest.mark.parametrize("ms", [1 << 62, -(1 << 62)])
def test_a_time_no_calendar_has_is_refused(ms: int) -> None:
    body = pack(">ihc", 1, 1, b"a") + pack(">iihqq", 1, 0, 0, 0, ms) + pack(">i", 0)
    with pytest.raises(MalformedFrame, match="ProduceResponse v3"):
        decode(ProduceResponse, ProduceResponse, memoryview(body))


def test_what_the_model_lacks_is_dropped() -> None:
    new = oracle.make(InitProducerIdV4, Random(1), nulls=False)
    old = decode(InitProducerIdV1, InitProducerIdV4, memoryview(encode(new, InitProducerIdV4)))
    assert old == InitProducerIdV1(
        transactional_id=new.transactional_id, transaction_timeout=new.transaction_timeout
    )
