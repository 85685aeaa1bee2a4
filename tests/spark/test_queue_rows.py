"""Which task reads which messages."""

import pytest

pytest.importorskip("pyarrow", reason="the Spark source needs pyarrow")

from entrepot.spark.queue_rows import GAP_MAX, divide
from entrepot.spark.spans import Spans


def tasks(spans: list[tuple[int, int, int]], least: int | None, most: int | None) -> list[object]:
    found = divide("q", Spans(spans), least, most)
    return [(each.whole.partition, *each.offsets) for each in found]


def test_one_task_unless_more_are_asked_for() -> None:
    assert tasks([(0, 5, 105)], None, None) == [(0, (5, 105))]
    assert tasks([(0, 0, 10)], 2, None) == [(0, (0, 5)), (0, (5, 10))]
    assert tasks([(0, 0, 10)], None, 4) == [(0, (0, 4)), (0, (4, 8)), (0, (8, 10))]
    assert tasks([], 2, 2) == []


def test_ranges_that_are_near_are_read_as_one() -> None:
    (one,) = divide("q", Spans([(0, 0, 2), (0, 4, 5)]), None, None)
    assert one.whole[1:4] == (0, 0, 5)
    assert (one.offsets, one.size) == (((0, 2), (4, 5)), 3)


def test_lanes_and_far_ranges_are_tasks_of_their_own() -> None:
    far = GAP_MAX + 3
    spans = [(0, 0, 2), (0, far, far + 1), (1, far + 1, far + 2)]
    assert tasks(spans, None, None) == [
        (0, (0, 2)),
        (0, (far, far + 1)),
        (1, (far + 1, far + 2)),
    ]


def test_a_range_may_be_divided_between_two_tasks() -> None:
    assert tasks([(0, 0, 3), (0, 5, 8)], 2, None) == [(0, (0, 3)), (0, (5, 8))]
    assert tasks([(0, 0, 4), (0, 5, 7)], 2, None) == [(0, (0, 3)), (0, (3, 4), (5, 7))]
