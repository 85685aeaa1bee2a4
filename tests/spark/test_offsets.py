"""Offsets as JSON, shares of a limit, and pieces of a range."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="the Spark source needs pyarrow")

from entrepot.client.client import TopicPartition
from entrepot.spark.decoding import Range
from entrepot.spark.offsets import from_json, limited, split, to_json

PARTS = st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 12))
OFFSETS = st.dictionaries(PARTS, st.integers(0, 10**6))


@given(OFFSETS, st.randoms(use_true_random=False))
def test_the_same_offsets_are_the_same_text(offsets, random) -> None:
    shuffled = list(offsets.items())
    random.shuffle(shuffled)
    text = json.dumps(to_json(offsets))
    assert json.dumps(to_json(dict(shuffled))) == text
    assert from_json(json.loads(text)) == offsets


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    offsets = {TopicPartition("t", number): 0 for number in (10, 2)}
    assert list(to_json(offsets)["t"]) == ["2", "10"]


@given(OFFSETS, st.data(), st.integers(1, 1_000))
def test_a_limit_is_shared_and_everybody_moves(start, data, rows_max) -> None:
    end = {part: at + data.draw(st.integers(0, 10**5)) for part, at in start.items()}
    found = limited(start, end, rows_max)
    assert found.keys() == end.keys()
    for part, offset in found.items():
        assert start[part] <= offset <= end[part]
        assert (offset > start[part]) == (end[part] > start[part])
    taken = sum(found[part] - start[part] for part in found)
    assert taken <= rows_max + len(found)  # Each may have been given one.


def test_a_limit_is_shared_in_proportion() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("b", 0)
    assert limited({a: 0, b: 10}, {a: 300, b: 110}, 100) == {a: 75, b: 35}
    assert limited({a: 0, b: 10}, {a: 3, b: 11}, 100) == {a: 3, b: 11}


RANGES = st.lists(
    st.builds(
        lambda topic, first, size: Range(topic, 0, first, first + size),
        st.sampled_from("ab"),
        st.integers(0, 100),
        st.integers(-1, 1_000),
    ),
    max_size=5,
)


@given(RANGES, st.none() | st.integers(1, 20), st.none() | st.integers(1, 200))
def test_pieces_are_the_whole(ranges, at_least, rows_max) -> None:
    pieces = split(ranges, at_least, rows_max)
    offsets = [(p.topic, o) for p in pieces for o in range(p.offset_from, p.offset_until)]
    expected = [(p.topic, o) for p in ranges for o in range(p.offset_from, p.offset_until)]
    assert offsets == expected
    assert all(piece.offset_until > piece.offset_from for piece in pieces)
    if rows_max is not None:
        assert all(piece.offset_until - piece.offset_from <= rows_max for piece in pieces)
    if at_least is not None and len(expected) >= at_least:
        assert len(pieces) >= at_least


def test_without_a_wish_a_partition_is_one_piece() -> None:
    assert len(split([Range("t", 0, 0, 10**9)], None, None)) == 1
    assert len(split([Range("t", 0, 0, 100), Range("t", 1, 0, 1)], 2, None)) == 2
