"""Kafka's wire under hypothesis: round trips, every split, and bytes nobody meant."""

import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise, product
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.errors import MalformedFrame
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.frames import FrameBuffer, read_request_header, size_prefix
from entrepot.wire.kafka.layout import decode, encode
from tests.unit.wire.kafka import oracle

messages = st.deferred(lambda: st.sampled_from(oracle.messages()))
randoms = st.randoms(use_true_random=False)
CAPTURED = [frame for _, _, frame in oracle.vectors()]
STREAM = b"".join(size_prefix(len(frame)) + frame for frame in CAPTURED)


def pieces_received(buffer: FrameBuffer, pieces: list[bytes]) -> list[bytes]:
    """The frames out of these reads; a read that does not fit becomes several."""
    frames = []
    for piece in pieces:
        view = memoryview(piece)
        while view:
            room = buffer.writable()
            size = min(len(room), len(view))
            room[:size] = view[:size]
            frames += [bytes(frame) for frame in buffer.received(size)]
            view = view[size:]
    return frames


@given(messages, randoms)
def test_every_message_survives_the_round_trip(layout: type[Any], random: Random) -> None:
    entity = oracle.make(layout, random)
    data = encode(entity, layout)
    assert data == oracle.kio_bytes(entity)
    assert decode(layout, layout, memoryview(data)) == entity


def test_every_split_of_every_vector_decodes_alike() -> None:
    assert len(CAPTURED) > 10
    for frame in CAPTURED:
        stream = size_prefix(len(frame)) + frame
        for cut in range(len(stream) + 1):
            assert pieces_received(FrameBuffer(), [stream[:cut], stream[cut:]]) == [frame]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_of_all_vectors_decodes_alike(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in pairwise(edges)]
    assert pieces_received(FrameBuffer(), pieces) == CAPTURED


@given(st.lists(st.binary(max_size=9000), max_size=12), st.integers(1, 9000))
def test_frames_of_any_size_in_reads_of_any_size(bodies: list[bytes], size: int) -> None:
    stream = b"".join(size_prefix(len(body)) + body for body in bodies)
    pieces = [stream[start : start + size] for start in range(0, len(stream), size)]
    assert pieces_received(FrameBuffer(), pieces) == bodies


@given(st.lists(st.binary(max_size=200), max_size=10))
def test_a_stream_of_anything_gives_frames_or_is_refused(pieces: list[bytes]) -> None:
    try:
        frames = pieces_received(FrameBuffer(), pieces)
    except MalformedFrame:
        return
    assert sum(4 + len(frame) for frame in frames) <= sum(map(len, pieces))


@given(messages, st.binary(max_size=300))
def test_anything_is_a_message_or_is_refused(layout: type[Any], data: bytes) -> None:
    try:
        entity = decode(layout, layout, memoryview(data))
    except MalformedFrame:
        return
    assert isinstance(entity, layout)


@st.composite
def damaged(draw: st.DrawFn, *, is_hot: bool = False) -> tuple[type[Any], memoryview]:
    """A message with a few bytes changed."""
    layouts = [each for each in oracle.messages() if each.__name__ in HOT or not is_hot]
    layout = draw(st.sampled_from(layouts))
    message = bytearray(oracle.kio_bytes(oracle.make(layout, draw(randoms))))
    for _ in range(draw(st.integers(1, 3)) if message else 0):
        position = draw(st.integers(0, min(len(message), 500) - 1))
        message[position] = draw(st.integers(0, 255))
    return layout, memoryview(message)


@given(damaged())
def test_a_damaged_message_is_read_or_refused(message: tuple[type[Any], memoryview]) -> None:
    layout, data = message
    with suppress(MalformedFrame):
        decode(layout, layout, data)


HOT = {
    "ProduceRequest": produce.decode_request,
    "ProduceResponse": produce.decode_response,
    "FetchRequest": fetch.decode_request,
    "FetchResponse": fetch.decode_response,
}


@given(damaged(is_hot=True))
def test_the_hot_paths_refuse_what_kios_classes_do(message: tuple[type[Any], memoryview]) -> None:
    """By hand or by layout: the same bytes are taken, and the same refused."""
    layout, data = message

    def is_taken(read: Callable[[], object]) -> bool:
        try:
            read()
        except MalformedFrame:
            return False
        return True

    by_hand = is_taken(lambda: HOT[layout.__name__](layout.__version__, data, 0))
    by_layout = is_taken(lambda: decode(layout, layout, data))
    # By hand, times are plain numbers and tags for replicas are not looked into.
    assert by_hand >= by_layout


@given(st.binary(max_size=100))
def test_any_frame_has_a_header_or_is_refused(frame: bytes) -> None:
    try:
        _, position = read_request_header(memoryview(frame))
    except MalformedFrame:
        return
    assert 10 <= position <= len(frame)


def test_a_hostile_message_costs_no_memory() -> None:
    """Counts and lengths of all sizes, everywhere, in every message."""
    huge = (b"\x7f\xff\xff\xff" * 8, b"\xff\xff\xff\xff\x07" * 8, b"\x00" * 40, b"\xff" * 40)

    def read_all() -> None:
        for layout, data, start in product(oracle.messages(), huge, range(4)):
            with suppress(MalformedFrame):
                decode(layout, layout, memoryview(data)[start:])

    read_all()  # Makes the functions for these classes, which stay.
    tracemalloc.start()
    read_all()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
