"""The index of names: a tree of levels, in which all names that a filter matches are found.

It is the index of filters the other way round: there many filters are matched against one name,
here many names against one filter. Finding costs as much as the part of the tree that the filter
leads through.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Generic, TypeVar

from entrepot.broker.subject.filter import Filter, Wildcard

V = TypeVar("V")


class _Node(Generic[V]):
    __slots__ = ("next", "value")

    def __init__(self) -> None:
        self.next: dict[str, _Node[V]] | None = None
        self.value: V | None = None  # Of the name that ends here, if one does.

    def is_empty(self) -> bool:
        return self.value is None and not self.next

    def children(self) -> list[_Node[V]]:
        return [] if self.next is None else [*self.next.values()]


class NameIndex(Generic[V]):
    def __init__(self) -> None:
        self._root = _Node[V]()
        self.count = 0  # Names.

    def get(self, levels: Sequence[str]) -> V | None:
        node: _Node[V] | None = self._root
        for level in levels:
            if node is None or node.next is None:
                return None
            node = node.next.get(level)
        return None if node is None else node.value

    def put(self, levels: Sequence[str], value: V) -> None:
        """Set the value of a name."""
        node = self._root
        for level in levels:
            if node.next is None:
                node.next = {}
            child = node.next.get(level)
            if child is None:
                child = node.next[level] = _Node()
            node = child
        self.count += node.value is None
        node.value = value

    def remove(self, levels: Sequence[str]) -> V | None:
        """Remove a name, and return its value if it had one."""
        path: list[tuple[_Node[V], str]] = []
        node = self._root
        for level in levels:
            child = None if node.next is None else node.next.get(level)
            if child is None:
                return None
            path.append((node, level))
            node = child
        value, node.value = node.value, None
        self.count -= value is not None
        while path and node.is_empty():
            node, level = path.pop()
            assert node.next is not None
            del node.next[level]
        return value

    def walk(self, filter: Filter) -> Iterator[V | None]:
        """Yield the value of each name that the filter matches.

        Yields None where the way leads through a node without a name, so that the caller may
        pause there. In the filter, `MANY` may only be the last level. A name that is added or
        removed meanwhile may be missed.

        A name that begins with `$` is not matched by a filter that begins with a wildcard.
        """
        assert Wildcard.MANY not in filter[:-1], filter
        pending: list[tuple[_Node[V], int]] = [(self._root, 0)]
        while pending:
            node, depth = pending.pop()
            level = filter[depth] if depth < len(filter) else None
            if level is None or level is Wildcard.MANY:
                yield node.value
            else:
                yield None
            if isinstance(level, str):
                child = None if node.next is None else node.next.get(level)
                if child is not None:
                    pending.append((child, depth + 1))
            elif level is not None:
                children = node.children()
                if node is self._root and node.next is not None:
                    children = [each for key, each in node.next.items() if key[:1] != "$"]
                following = depth + (level is Wildcard.ONE)
                pending += [(each, following) for each in children]

    def everything(self) -> Iterator[V | None]:
        """Yield all values; None where a node has none."""
        pending = [self._root]
        while pending:
            node = pending.pop()
            yield node.value
            pending += node.children()

    def clear(self) -> None:
        self._root = _Node()
        self.count = 0
