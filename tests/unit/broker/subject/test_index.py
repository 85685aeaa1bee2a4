"""The index of filters, held against a matcher that looks at every filter."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.subject.filter import Filter, Wildcard, of_path_filter, of_pattern
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.name import levels_of, to_subject
from entrepot.broker.subject.name_index import NameIndex

LEVELS = ["a", "b", "", "$x", "a.b"]
PATHS = st.lists(st.sampled_from(LEVELS), min_size=1, max_size=5).map("/".join).filter(bool)
PATH_FILTERS = st.tuples(
    st.lists(st.sampled_from([*LEVELS, "+"]), min_size=1, max_size=4), st.booleans()
).map(lambda found: "/".join([*found[0], "#"] if found[1] else found[0]))
PATTERNS = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=5).map(".".join)


def matches(filter: Filter, levels: Sequence[str]) -> bool:
    """As one would write it down."""
    if not filter:
        return not levels
    first, *rest = filter
    if first is Wildcard.MANY:
        return any(matches(tuple(rest), levels[n:]) for n in range(len(levels) + 1))
    return (
        bool(levels)
        and (first is Wildcard.ONE or first == levels[0])
        and matches(tuple(rest), levels[1:])
    )


def path_matches(filter: Filter, subject: str) -> bool:
    if subject.startswith("$") and isinstance(filter[0], Wildcard):
        return False
    return matches(filter, levels_of(subject))


@given(st.lists(PATTERNS, max_size=12), st.lists(PATTERNS, max_size=8))
def test_patterns(patterns: list[str], names: list[str]) -> None:
    index = FilterIndex[str]()
    for pattern in patterns:
        index.get_or_add(of_pattern(pattern), lambda pattern=pattern: pattern)
    for name in names:
        expected = {each for each in patterns if matches(of_pattern(each), levels_of(name))}
        found = index.match(levels_of(name))
        assert len(found) == len(set(found))
        assert set(found) == expected


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("toggle"), PATH_FILTERS, st.integers(0, 3)),
        st.tuples(st.just("publish"), PATHS, st.just(0)),
    ),
    max_size=60,
)


@given(STEPS)
def test_listeners_come_and_go(steps: list[tuple[str, str, int]]) -> None:
    """Names are asked for again and again, so that what is remembered must be right."""
    listeners = Listeners[int]()
    there: dict[tuple[str, int], None] = {}
    names: dict[str, None] = {}
    for kind, text, who in steps:
        if kind == "publish":
            names[to_subject(text)] = None
        elif (text, who) in there:
            del there[text, who]
            listeners.remove(of_path_filter(text), who)
        else:
            there[text, who] = None
            listeners.add(of_path_filter(text), who)
        for name in names:
            found = listeners.of(name)
            expected = {n for each, n in there if path_matches(of_path_filter(each), name)}
            assert sorted(found) == sorted(expected), name
    for text, who in there:
        listeners.remove(of_path_filter(text), who)
    assert listeners.filter_count == 0
    assert not listeners._index._root.has_more()


@given(st.lists(PATHS, max_size=20), st.lists(PATHS, max_size=5), PATH_FILTERS)
def test_names_are_found_by_a_filter(paths: list[str], gone: list[str], text: str) -> None:
    index = NameIndex[str]()
    names = dict.fromkeys(map(to_subject, paths))
    for name in names:
        index.put(levels_of(name), name)
    for path in gone:
        name = to_subject(path)
        assert index.remove(levels_of(name)) == (name if name in names else None)
        names.pop(name, None)
    filter = of_path_filter(text)
    found = [each for each in index.walk(filter) if each is not None]
    assert sorted(found) == sorted(each for each in names if path_matches(filter, each))
    assert index.count == len(names)


@pytest.mark.pure
def test_a_name_seen_before_is_one_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is matched again, neither when others subscribe elsewhere nor to the same filter."""
    listeners = Listeners[int]()
    listeners.add(of_path_filter("a/+"), 1)
    asked: list[object] = []
    match = listeners._index.match
    monkeypatch.setattr(
        listeners._index, "match", lambda *a, **k: asked.append(a) or match(*a, **k)
    )
    assert listeners.of("a.b") == listeners.of("a.b") == (1,)
    listeners.add(of_path_filter("b/#"), 2)
    listeners.add(of_path_filter("a/+"), 3)
    assert listeners.of("a.b") == (1, 3)
    assert len(asked) == 1
    listeners.add(of_path_filter("a/#"), 4)
    assert set(listeners.of("a.b")) == {1, 3, 4}
    assert len(asked) == 2


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot.core.limits.SUBJECTS_REMEMBERED_MAX", 10)
    listeners = Listeners[int]()
    listeners.add(of_path_filter("#"), 1)
    for number in range(100):
        assert listeners.of(f"n.{number}") == (1,)
        assert len(listeners._seen) <= 10
    assert listeners.of("n." + "x" * 600) == (1,)
    assert all(len(name) < 600 for name in listeners._seen)
    for number in range(100):
        listeners.add((str(number),), 1)
        listeners.of(str(number))
        listeners.remove((str(number),), 1)
        assert len(listeners._reaches) <= 11
