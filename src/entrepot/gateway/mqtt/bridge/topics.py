"""Which topics cross a bridge, and what they are called on the other side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from entrepot.broker.subject.filter import Filter, of_path_filter
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.name import levels_of, to_subject
from entrepot.wire.mqtt.topics import check_filter


class Route(NamedTuple):
    """Topics that cross: what follows the prefix is the same on both sides."""

    filter: str  # Of what follows the prefixes.
    is_in: bool  # From the other side.
    is_out: bool  # To the other side.
    qos: int
    local_prefix: str = ""
    remote_prefix: str = ""

    @property
    def local_filter(self) -> str:
        return self.local_prefix + self.filter

    @property
    def remote_filter(self) -> str:
        return self.remote_prefix + self.filter


class _Rule(NamedTuple):
    number: int  # Its place among the rules.
    prefix: str  # On this side.
    other: str  # On the other side.


class _Names:
    """Names of one side that cross, and their names on the other side."""

    def __init__(self, rules: Iterable[tuple[str, str, str]]) -> None:
        """The rules are filters with their prefix on this side, and on the other."""
        self._index = FilterIndex[_Rule]()
        for number, (text, prefix, other) in enumerate(rules):
            self._index.get_or_add(_filter(text), partial(_Rule, number, prefix, other))

    def other(self, topic: str) -> str | None:
        """Return the name on the other side by the first rule that matches, if any does."""
        is_private = topic.startswith("$")
        found = self._index.match(levels_of(to_subject(topic)), is_private=is_private)
        if not found:
            return None
        _, prefix, other = min(found)
        return other + topic.removeprefix(prefix)


def _filter(text: str) -> Filter:
    check_filter(text)
    return of_path_filter(text)


class Topics:
    def __init__(self, routes: Sequence[Route]) -> None:
        """Read the routes. Raises MqttError for an invalid filter."""
        self.routes = routes
        self._local = _Names(
            (each.local_filter, each.local_prefix, each.remote_prefix)
            for each in routes
            if each.is_out
        )
        self._remote = _Names(
            (each.remote_filter, each.remote_prefix, each.local_prefix)
            for each in routes
            if each.is_in
        )

    def to_remote(self, topic: str) -> str | None:
        """Return the other side's name of a topic of ours; None if it does not cross."""
        return self._local.other(topic)

    def to_local(self, topic: str) -> str | None:
        """Return our name of a topic of the other side; None if it does not cross."""
        return self._remote.other(topic)
