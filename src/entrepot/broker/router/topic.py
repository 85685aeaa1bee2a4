"""Topic exchanges: keys are words between dots, and patterns are a tree of words.

In a pattern `*` matches exactly one word and `#` any number of words, also none. Every dot
separates two words, which may be empty: `*` matches an empty word. Only the empty key has no
words.

A key is matched word by word against all patterns at once, with the set of tree nodes that the
words so far can reach. A node of a `#` stays in the set once it is reached. No node is in the set
twice, so a key costs at most its words times the nodes, wherever the `#` are; and a pattern that
ends with `#`, the usual case, has matched as soon as its last node is reached.
"""

from __future__ import annotations

from entrepot.broker.router.event import Binding
from entrepot.broker.router.matching import Destinations, Matches, Routed, union

_ONE = "*"
_MANY = "#"


class _Node:
    """A node of the tree: all patterns that begin with the same words."""

    __slots__ = ("destinations", "many", "next", "one", "repeats")

    def __init__(self, repeats: bool = False) -> None:
        self.repeats = repeats  # Whether it is reached by `#`.
        self.next: dict[str, _Node] = {}  # By the word that follows.
        self.one: _Node | None = None  # By `*`.
        self.many: _Node | None = None  # By `#`.
        self.destinations = Destinations()  # Of the patterns that end here.

    def has_more(self) -> bool:
        return bool(self.next) or self.one is not None or self.many is not None

    def child(self, word: str) -> _Node | None:
        if word == _ONE:
            return self.one
        return self.many if word == _MANY else self.next.get(word)

    def make_child(self, word: str) -> _Node:
        node = _Node(repeats=word == _MANY)
        if word == _ONE:
            self.one = node
        elif word == _MANY:
            self.many = node
        else:
            self.next[word] = node
        return node

    def drop_child(self, word: str) -> None:
        if word == _ONE:
            self.one = None
        elif word == _MANY:
            self.many = None
        else:
            del self.next[word]


class TopicMatcher:
    reads_headers = False

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, binding: Binding) -> None:
        node = self._root
        for word in words_of(binding.key):
            node = node.child(word) or node.make_child(word)
        node.destinations.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        for word in words_of(binding.key):
            path.append((node, word))
            child = node.child(word)
            assert child is not None, binding
            node = child
        node.destinations.remove(binding.destination)
        while path and not node.destinations and not node.has_more():
            node, word = path.pop()
            node.drop_child(word)

    def match(self, message: Routed) -> Matches:
        keys = message.keys
        if len(keys) == 1:
            return self._match_key(keys[0])
        return union([self._match_key(key) for key in keys])

    def _match_key(self, key: str) -> Matches:
        matched: dict[_Node, None] = {}
        reached: dict[_Node, None] = {}
        _reach(self._root, reached, matched)
        for word in words_of(key):
            following: dict[_Node, None] = {}
            for node in reached:
                if node.repeats:
                    _reach(node, following, matched)
                child = node.next.get(word)
                if child is not None:
                    _reach(child, following, matched)
                if node.one is not None:
                    _reach(node.one, following, matched)
            reached = following
        matched.update(reached)
        return union([node.destinations.matches() for node in matched if node.destinations])


def words_of(key: str) -> list[str]:
    return key.split(".") if key else []


def _reach(node: _Node, reached: dict[_Node, None], matched: dict[_Node, None]) -> None:
    """Add the node to `reached`, with those that follow it by `#` and no word.

    A node whose `#` ends its pattern is added to `matched` instead: it matches all that follows.
    """
    while True:
        if node.repeats and not node.has_more():
            matched[node] = None
            return
        reached[node] = None
        if node.many is None:
            return
        node = node.many
