"""The index of filters: a tree of levels, in which all filters that match a name are found.

A name is matched level by level against all filters at once, with the set of tree nodes that
the levels so far can reach. A node of a `MANY` stays in the set once it is reached. No node is in
the set twice, so a name costs its levels times the nodes that it reaches, wherever wildcards are
and however many filters there are; a filter that ends with `MANY`, the usual case, has matched as
soon as its last node is reached.

Each filter has one entry, which the user of the index makes: for example all that is bound to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from entrepot.broker.subject.filter import Filter, Level, Wildcard

E = TypeVar("E")


class _Node(Generic[E]):
    """A node of the tree: all filters that begin with the same levels."""

    __slots__ = ("entry", "many", "next", "one", "repeats")

    def __init__(self, repeats: bool = False) -> None:
        self.repeats = repeats  # Whether it is reached by `MANY`.
        self.next: dict[str, _Node[E]] | None = None  # By the level that follows.
        self.one: _Node[E] | None = None
        self.many: _Node[E] | None = None
        self.entry: E | None = None  # Of the filter that ends here, if one does.

    def is_empty(self) -> bool:
        return self.entry is None and not self.has_more()

    def has_more(self) -> bool:
        return bool(self.next) or self.one is not None or self.many is not None

    def child(self, level: Level) -> _Node[E] | None:
        if level is Wildcard.ONE:
            return self.one
        if level is Wildcard.MANY:
            return self.many
        assert isinstance(level, str)
        return None if self.next is None else self.next.get(level)

    def make_child(self, level: Level) -> _Node[E]:
        node = _Node[E](repeats=level is Wildcard.MANY)
        if level is Wildcard.ONE:
            self.one = node
        elif level is Wildcard.MANY:
            self.many = node
        else:
            assert isinstance(level, str)
            if self.next is None:
                self.next = {}
            self.next[level] = node
        return node

    def drop_child(self, level: Level) -> None:
        if level is Wildcard.ONE:
            self.one = None
        elif level is Wildcard.MANY:
            self.many = None
        else:
            assert isinstance(level, str)
            assert self.next is not None
            del self.next[level]
            if not self.next:
                self.next = None


class FilterIndex(Generic[E]):
    def __init__(self) -> None:
        self._root = _Node[E]()
        self.count = 0  # Filters.

    def get(self, filter: Filter) -> E | None:
        """Return the entry of a filter, if there is one."""
        node: _Node[E] | None = self._root
        for level in filter:
            if node is None:
                return None
            node = node.child(level)
        return None if node is None else node.entry

    def get_or_add(self, filter: Filter, make: Callable[[], E]) -> E:
        """Return the entry of a filter. If there is none, make it."""
        node = self._root
        for level in filter:
            node = node.child(level) or node.make_child(level)
        entry = node.entry
        if entry is None:
            entry = node.entry = make()
            self.count += 1
        return entry

    def remove(self, filter: Filter) -> None:
        """Remove the entry of a filter. There must be one."""
        path: list[tuple[_Node[E], Level]] = []
        node = self._root
        for level in filter:
            path.append((node, level))
            child = node.child(level)
            assert child is not None, filter
            node = child
        assert node.entry is not None, filter
        node.entry = None
        self.count -= 1
        while path and node.is_empty():
            node, level = path.pop()
            node.drop_child(level)

    def match(self, levels: Sequence[str], *, is_private: bool = False) -> list[E]:
        """Return the entries of all filters that match the name with these levels.

        A private name is not matched by filters that begin with a wildcard.
        """
        matched: dict[_Node[E], None] = {}
        reached: dict[_Node[E], None] = {}
        if is_private:
            node = None if self._root.next is None else self._root.next.get(levels[0])
            if node is None:
                return []
            levels = levels[1:]
            _reach(node, reached, matched)
        else:
            _reach(self._root, reached, matched)
        for level in levels:
            following: dict[_Node[E], None] = {}
            for node in reached:
                if node.repeats:
                    _reach(node, following, matched)
                if node.next is not None:
                    child = node.next.get(level)
                    if child is not None:
                        _reach(child, following, matched)
                if node.one is not None:
                    _reach(node.one, following, matched)
            if not following:
                reached = following
                break
            reached = following
        matched.update(reached)
        return [node.entry for node in matched if node.entry is not None]


def _reach(node: _Node[E], reached: dict[_Node[E], None], matched: dict[_Node[E], None]) -> None:
    """Add the node to `reached`, with those that follow it by `MANY` and no level.

    A node whose `MANY` ends its filter is added to `matched` instead: it matches all that follows.
    """
    while True:
        if node.repeats and not node.has_more():
            matched[node] = None
            return
        reached[node] = None
        if node.many is None:
            return
        node = node.many
