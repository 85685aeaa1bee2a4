"""AMQP's wire under hypothesis: round trips, every split, and bytes nobody meant."""

import tracemalloc
from contextlib import suppress
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.limits import KIB
from entrepot.wire.amqp import methods, properties, scan, table
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, FrameBuffer
from entrepot.wire.amqp.methods import METHODS
from entrepot.wire.amqp.properties import NAMES, BasicProperties, PropertyView
from entrepot.wire.amqp.scan import Scanner
from tests.unit.wire.amqp import oracle
from tests.unit.wire.amqp.oracle import feed, flat, same

CAPTURED = oracle.captured()
STREAM = PROTOCOL_HEADER + b"".join(
    each.data for each in CAPTURED if each.client == "pika" and each.is_clients
)
EVENTS = flat(feed(FrameBuffer(), STREAM))
seeds = st.integers(0, 2**32)


@given(oracle.tables)
def test_tables_survive_the_round_trip_with_their_types(value: table.Table) -> None:
    data = table.encode(value)
    table.fields(data)
    assert same(table.decode(data), value)


@given(oracle.methods)
def test_every_method_survives_the_round_trip(method: Any) -> None:
    payload = methods.encode(method)
    again = methods.decode(payload)
    assert again == method
    assert type(again) is type(method)
    assert methods.encode(again) == payload


@given(oracle.properties)
def test_properties_survive_the_round_trip(value: BasicProperties) -> None:
    raw = properties.encode(value)
    assert properties.check(raw).decode() == value
    assert properties.encode(properties.decode(raw)) == raw


@given(oracle.properties, oracle.properties, st.sets(st.sampled_from(NAMES)))
def test_patched_properties_are_as_if_written_so(
    one: BasicProperties, other: BasicProperties, names: set[str]
) -> None:
    changes = {name: getattr(other, name) for name in sorted(names)}
    expected = BasicProperties(**{name: getattr(one, name) for name in NAMES} | changes)
    assert PropertyView(properties.encode(one)).patch(changes) == properties.encode(expected)


@given(oracle.properties, oracle.tables, st.lists(oracle.loose_texts, max_size=3))
def test_patched_headers_are_as_if_written_so(
    value: BasicProperties, changes: table.Table, removed: list[str]
) -> None:
    raw = PropertyView(properties.encode(value)).patch_headers(changes, removed)
    expected = {
        name: each
        for name, each in (value.headers or {}).items()
        if name in changes or name not in removed
    } | changes
    assert same(PropertyView(raw).get("headers") or {}, expected)
    for name, each in expected.items():
        assert same(PropertyView(raw).header(name), each)
    others = PropertyView(raw).patch({"headers": None})
    assert others == PropertyView(properties.encode(value)).patch({"headers": None})


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_of_a_conversation_is_read_alike(cuts: list[int]) -> None:
    buffer = FrameBuffer()
    found = []
    for start, end in pairwise([0, *sorted(cuts), len(STREAM)]):
        found += flat(feed(buffer, STREAM[start:end]))
    assert found == EVENTS


def test_every_split_of_a_conversation_is_read_alike() -> None:
    for cut in range(0, len(STREAM), 3):
        buffer = FrameBuffer()
        assert flat(feed(buffer, STREAM[:cut]) + feed(buffer, STREAM[cut:])) == EVENTS


@given(seeds, st.integers(1, 9_000))
def test_lively_streams_in_reads_of_any_size(seed: int, size: int) -> None:
    data = oracle.stream(Random(seed), 30)
    found = feed(FrameBuffer(is_client=True), data, size)
    assert flat(found) == oracle.read_slowly(data)


@given(st.lists(st.binary(max_size=200), max_size=10), st.booleans())
def test_a_stream_of_anything_gives_events_or_is_refused(
    pieces: list[bytes], is_client: bool
) -> None:
    buffer = FrameBuffer(is_client=is_client)
    for piece in pieces:
        feed(buffer, piece)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A lively stream with a few bytes changed."""
    data = bytearray(oracle.stream(Random(draw(seeds)), 6))
    for _ in range(draw(st.integers(1, 4)) if data else 0):
        position = draw(st.integers(0, min(len(data), 2_000) - 1))
        data[position] = draw(st.integers(0, 255))
    return bytes(data)


def read_all(events: list[Any]) -> None:
    """What a gateway does with events: looks into everything."""
    for event in events:
        raws: list[bytes] = []
        payload = b""
        match event:
            case scan.MethodFrame(_, payload):
                pass
            case scan.Content(_, payload, raw, _):
                raws = [raw]
            case scan.Publishes(_, _, messages):
                raws = [envelope.head for envelope, _ in messages]
        with suppress(AmqpError):
            methods.decode(payload)
        for raw in raws:
            with suppress(AmqpError):
                properties.check(raw).decode()


@given(damaged(), st.integers(40, 5_000))
def test_a_damaged_stream_is_read_or_refused(data: bytes, size: int) -> None:
    read_all(feed(FrameBuffer(is_client=True), data, size))


@given(damaged(), st.integers(40, 5_000))
def test_a_damaged_stream_is_refused_alike_however_it_is_split(data: bytes, size: int) -> None:
    """Runs are taken by a shorter way than what comes in pieces. Both refuse the same."""
    whole, _ = Scanner(131_072, 1 << 24).scan(data)
    scanner, found, rest = Scanner(131_072, 1 << 24), [], b""
    for start in range(0, len(data), size):
        block = rest + data[start : start + size]
        events, taken = scanner.scan(block)
        found += events
        rest = block[taken:]
        if events and isinstance(events[-1], AmqpError) and events[-1].closes_connection:
            break
    assert flat(found) == flat(whole)


@given(st.sampled_from(sorted(METHODS)), st.binary(max_size=100))
def test_anything_is_a_method_or_is_refused(number: tuple[int, int], data: bytes) -> None:
    payload = b"".join(each.to_bytes(2, "big") for each in number) + data
    with suppress(AmqpError):
        assert type(methods.decode(payload)) is METHODS[number]


@given(st.binary(max_size=200))
def test_anything_is_a_table_or_is_refused(data: bytes) -> None:
    def outcome(read: Any) -> str:
        try:
            read(data)
        except AmqpError as error:
            return str(error)
        return "taken"

    assert outcome(table.fields) == outcome(table.decode)


@given(oracle.tables, seeds)
def test_a_damaged_table_is_a_table_or_is_refused(value: table.Table, seed: int) -> None:
    random = Random(seed)
    data = bytearray(table.encode(value))
    for _ in range(2):
        if data:
            data[random.randrange(len(data))] = random.randrange(256)
    taken = []
    for read in (table.fields, table.decode):
        with suppress(AmqpError):
            read(data)
            taken.append(read)
    assert len(taken) in (0, 2)


@given(st.binary(max_size=200))
def test_any_properties_are_read_or_refused(data: bytes) -> None:
    for raw in (data, b"\x20\0" + data, b"\xff\xfc" + data):
        with suppress(AmqpError):
            view = properties.check(raw)
            view.decode()
            assert properties.check(view.patch_headers({"n": 1})).header("n") == 1
            assert view.patch({}) == raw


def test_hostile_bytes_cost_no_memory() -> None:
    """Lengths of all sizes, everywhere, in everything that has one."""
    huge = (b"\x7f\xff\xff\xff" * 8, b"\xff" * 40, bytes(40), b"\x01nA\x7f\xff\xff\xff" * 4)

    def read_everything() -> None:
        for data in huge:
            for start in range(4):
                for number in METHODS:
                    payload = b"".join(each.to_bytes(2, "big") for each in number)
                    with suppress(AmqpError):
                        methods.decode(payload + data[start:])
                for read in (table.decode, properties.decode):
                    with suppress(AmqpError):
                        read(data[start:])
                    with suppress(AmqpError):
                        read(b"\x20\0" + data[start:])

    read_everything()
    tracemalloc.start()
    read_everything()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * KIB
