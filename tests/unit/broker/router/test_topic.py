"""Topic exchanges: words, and what stands for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.router.matching import Routed
from entrepot.broker.router.topic import TopicMatcher
from tests.unit.broker.router.model import split, topic_matches
from tests.unit.broker.router.places import Place, binding

KEYS = ["", "a", "b", "a.b", "a.b.c", "a.", ".a", ".", "..", "a..b", "a.b.", "*", "#", "a.#"]
# Which of KEYS each pattern matches; what Debian's RabbitMQ says, too.
MATCHED = {
    "": [""],
    "a": ["a"],
    "*": ["a", "b", "*", "#"],
    "#": KEYS,
    "a.b": ["a.b"],
    "a.*": ["a.b", "a.", "a.#"],
    "*.*": ["a.b", "a.", ".a", ".", "a.#"],
    "a.#": ["a", "a.b", "a.b.c", "a.", "a..b", "a.b.", "a.#"],
    "#.a": ["a", ".a"],
    "#.b": ["b", "a.b", "a..b"],
    "#.b.#": ["b", "a.b", "a.b.c", "a..b", "a.b."],
    "*.#": KEYS[1:],
    "#.*": KEYS[1:],
    "#.#": KEYS,
    ".": ["."],
    "a.": ["a."],
    "a.*.*": ["a.b.c", "a..b", "a.b."],
    "*.#.*": ["a.b", "a.b.c", "a.", ".a", ".", "..", "a..b", "a.b.", "a.#"],
}


@pytest.mark.parametrize("pattern", MATCHED)
def test_a_pattern_matches(pattern: str) -> None:
    place = Place("q")
    place.bind("amq.topic", "q", pattern)
    assert [key for key in KEYS if place.reached("amq.topic", key)] == MATCHED[pattern]


def test_new_york() -> None:
    """`*` is one word. One lecture has it otherwise, the protocol and RabbitMQ do not."""
    patterns = ("location.northAmerica.#", "location.#", "*.newYork", "#.newYork", "*.*.newYork")
    place = Place(*patterns)
    for pattern in patterns:
        place.bind("amq.topic", pattern, pattern)
    reached = place.reached("amq.topic", "location.northAmerica.newYork")
    assert reached == tuple(sorted(set(patterns) - {"*.newYork"}))
    assert "*.newYork" in place.reached("amq.topic", "location.newYork")


def test_a_queue_with_several_patterns_gets_a_message_once() -> None:
    place = Place("q")
    for pattern in ("#", "a.*", "*.b", "a.b"):
        place.bind("amq.topic", "q", pattern)
    assert place.router.route("amq.topic", "a.b").queues == ("q",)


def test_what_is_unbound_leaves_nothing_behind() -> None:
    matcher = TopicMatcher()
    bindings = [binding("x", "q", key) for key in ("a.b.c", "a.b", "a.*.#", "#", "#.x.#", "", "*")]
    for one in bindings:
        matcher.add(one)
    for one in bindings:
        matcher.remove(one)
    assert not matcher._index._root.has_more()
    assert matcher._index._root.entry is None


def test_many_wildcards_are_not_many_ways() -> None:
    """Backtracking would not come back from this."""
    matcher = TopicMatcher()
    matcher.add(binding("x", "q", ".".join(["#", "a"] * 20 + ["#", "b"])))
    key = ".".join(["a"] * 120)
    assert matcher.match(Routed((key,))) == ((), ())
    assert matcher.match(Routed((f"{key}.b",))) == (("q",), ())


words = st.sampled_from(["a", "b", "", "*", "#"])


@given(st.lists(st.lists(words, max_size=6).map(".".join), max_size=8), st.lists(words, max_size=6))
def test_the_tree_agrees_with_the_rule(patterns: list[str], key: list[str]) -> None:
    matcher = TopicMatcher()
    for pattern in patterns:
        matcher.add(binding("x", f"q{pattern}", pattern))
    found, _ = matcher.match(Routed((".".join(key),)))
    wanted = {f"q{p}" for p in patterns if topic_matches(split(p), split(".".join(key)))}
    assert set(found) == wanted
