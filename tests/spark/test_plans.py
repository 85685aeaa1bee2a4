"""Plans: what Spark keeps of a batch, and what becomes of one that fails."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from entrepot.client.errors import BadAnswer
from entrepot.client.remembering import remember
from entrepot.core.clock import SystemClock
from entrepot.spark.connecting import Connected
from entrepot.spark.plans import TOPIC, Plan, Tried, recall_tried, remember_tried
from entrepot.spark.spans import Spans

ROWS = Spans([(0, 0, 1_000)])


def test_json_and_back() -> None:
    plan = Plan("a", "l", ROWS, Spans([(1, 2, 3)]), 5, 7)
    assert Plan.from_json(plan.to_json()) == plan
    assert [*plan.to_json()] == ["id", "lease", "rows", "unsettled", "size", "hold"]
    before = {name: value for name, value in plan.to_json().items() if name != "hold"}
    assert Plan.from_json(before) == replace(plan, hold=0)  # Of a checkpoint that is older.


def test_a_batch_shrinks_after_its_second_failure() -> None:
    tried = Tried(ROWS)
    sizes = []
    for _ in range(6):
        tried = tried.for_next_try()
        assert tried.for_next_try() is tried  # A driver that was killed: the same again.
        sizes.append(len(tried.rows))
        tried = tried.failed()
    assert sizes == [1_000, 1_000, 62, 3, 1, 1]


def test_the_next_ones_are_as_small_and_grow_when_what_failed_is_behind_them() -> None:
    assert Plan().next_size(Tried(Spans()), 1_000) == (0, 0)
    plan = Plan("a", None, ROWS)
    assert plan.next_size(Tried(ROWS), 1_000) == (0, 0)
    few = ROWS.first(62)
    assert plan.next_size(Tried(few, 2, 2), 1_000) == (62, 938)
    assert Plan("b", None, few, size=62, hold=938).next_size(Tried(few), 1_000) == (62, 876)
    assert Plan("c", None, few, size=62, hold=62).next_size(Tried(few), 1_000) == (248, 0)
    assert Plan("d", None, ROWS, size=248).next_size(Tried(ROWS), 500) == (0, 0)
    assert plan.next_size(Tried(ROWS.first(3), 3, 3), 1_000) == (3, 60)  # Of 63 at most.
    assert plan.next_size(Tried(Spans(), 5, 5), 1_000) == (1, 0)  # It was alone, and is dead.


@pytest.mark.parametrize(("size", "failures_max"), [(200, 6), (10_000, 10)])
def test_one_that_fails_always_is_soon_alone(size: int, failures_max: int) -> None:
    """Wherever it is. Each failure is a new start of the query; two are of the message alone."""
    for number in range(0, size, size // 50):
        bad = Spans([(0, number, number + 1)])
        sizes: list[int] = []  # Of what has failed.
        start, plan = 0, Plan()
        tried = Tried(plan.rows)
        while sizes[-2:] != [1, 1]:
            count, hold = plan.next_size(tried, size)
            rows = Spans([(0, start, start + (count or size))])
            plan, tried = Plan("a", None, rows, size=count, hold=hold), Tried(rows)
            while len(tried.rows & bad) and sizes[-2:] != [1, 1]:
                sizes.append(len(tried.rows))
                tried = tried.failed().for_next_try()
            start += len(tried.rows)
        assert len(sizes) <= failures_max, (number, sizes)


def test_what_was_tried_is_remembered(connected: Connected, new_topic: Callable[..., str]) -> None:
    plan = Plan(new_topic("plan"), None, ROWS)

    def known() -> Tried:
        return connected.run(lambda client: recall_tried(client, plan))

    assert known() == Tried(ROWS)
    for tried in (Tried(ROWS, 1), Tried(ROWS.first(7), 2, 2)):
        connected.run(
            lambda client, tried=tried: remember_tried(client, SystemClock(), plan, tried)
        )
        assert known() == tried


def test_a_record_of_somebody_else(connected: Connected, new_topic: Callable[..., str]) -> None:
    plan = Plan(new_topic("plan"), None, ROWS)
    connected.run(lambda client: remember(client, SystemClock(), TOPIC, plan.id, {"x": 1}))
    with pytest.raises(BadAnswer, match="not ours"):
        connected.run(lambda client: recall_tried(client, plan))
