"""Plans: what Spark keeps of a batch, and what becomes of one that fails."""

from collections.abc import Callable

import pytest

from entrepot.client.errors import BadAnswer
from entrepot.client.remembering import remember
from entrepot.core.clock import SystemClock
from entrepot.spark.connecting import Connected
from entrepot.spark.plans import TOPIC, Plan, Tried, recall_tried, remember_tried
from entrepot.spark.spans import Spans

ROWS = Spans([(0, 0, 1_000)])


def test_json_and_back() -> None:
    plan = Plan("a", "l", ROWS, Spans([(1, 2, 3)]), 5)
    assert Plan.from_json(plan.to_json()) == plan
    assert [*plan.to_json()] == ["id", "lease", "rows", "unsettled", "size"]


def test_a_batch_shrinks_after_its_second_failure() -> None:
    tried = Tried(ROWS)
    sizes = []
    for _ in range(6):
        tried = tried.for_next_try()
        assert tried.for_next_try() is tried  # A driver that was killed: the same again.
        sizes.append(len(tried.rows))
        tried = tried.failed()
    assert sizes == [1_000, 1_000, 62, 3, 1, 1]


def test_the_next_ones_are_as_small_and_grow() -> None:
    plan = Plan("a", None, ROWS)
    assert plan.next_size(Tried(ROWS), 1_000) == 0
    assert plan.next_size(Tried(ROWS.first(62), 2, 2), 1_000) == 62
    assert Plan("b", None, ROWS.first(62), size=62).next_size(Tried(ROWS.first(62)), 1_000) == 248
    assert Plan("c", None, ROWS, size=248).next_size(Tried(ROWS), 500) == 0


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
