"""How many offsets are markers, against a model that remembers all of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.core import limits
from entrepot.log.markers import Markers

OFFSETS = st.sets(st.integers(0, 200), max_size=60).map(sorted)


@given(OFFSETS, st.integers(0, 201), st.integers(0, 201), st.integers(0, 201))
def test_few_are_counted_exactly(offsets: list[int], start: int, first: int, end: int) -> None:
    markers = Markers()
    for offset in offsets:
        markers.note(offset)
    markers = Markers(markers.state())
    markers.forget_before(start)
    first, end = max(start, min(first, end)), max(start, first, end)
    assert markers.between(first, end) == sum(first <= offset < end for offset in offsets)


@given(st.lists(st.integers(1, 9), max_size=200), st.integers(0, 1000), st.integers(0, 1000))
def test_many_are_counted_roughly_and_take_no_more_room(
    gaps: list[int], start: int, first: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MARKERS_PER_PARTITION_MAX", 8)
        markers, offsets, offset = Markers(), [], 0
        for gap in gaps:
            offset += gap
            offsets.append(offset)
            markers.note(offset)
            assert len(markers.state().offsets) <= 8
        markers.forget_before(start)
        markers = Markers(markers.state())
        markers.note(offset + 1)
        offsets.append(offset + 1)
        first = max(start, first)
        exact = sum(each >= first for each in offsets)
        step = 2 * max(1, len(gaps) // 4)
        assert abs(markers.between(first, offset + 2) - exact) <= step
        assert markers.between(first, offset + 2) >= 0
