"""Messages of a queue as spans."""

from entrepot.spark.spans import Spans


def test_they_are_sorted_and_joined() -> None:
    spans = Spans([(1, 5, 7), (0, 3, 4), (1, 7, 9), (0, 0, 2)])
    assert spans.to_json() == [[0, 0, 2], [0, 3, 4], [1, 5, 9]]
    assert len(spans) == 7
    assert spans == Spans(spans.to_json())
    assert not Spans()


def test_sums_differences_and_what_is_in_both() -> None:
    one, other = Spans([(0, 0, 10), (1, 0, 2)]), Spans([(0, 4, 6), (2, 0, 1)])
    assert (one + other).to_json() == [[0, 0, 10], [1, 0, 2], [2, 0, 1]]
    assert (one - other).to_json() == [[0, 0, 4], [0, 6, 10], [1, 0, 2]]
    assert (one & other).to_json() == [[0, 4, 6]]
    assert one.to_json() == [[0, 0, 10], [1, 0, 2]]


def test_the_first_ones() -> None:
    spans = Spans([(0, 0, 3), (0, 5, 9), (1, 0, 9)])
    assert spans.first(5).to_json() == [[0, 0, 3], [0, 5, 7]]
    assert spans.first(0) == Spans()
    assert spans.first(99) == spans
