"""Rules that change topics: what clients publish on one topic is published on another.

A rule has a filter and a topic. What the wildcards of the filter stand for is put into the topic,
as `$1`, `$2` and so on: with `old/+/state/#` and `new/$1/$2`, `old/7/state/heat` becomes
`new/7/heat`. The first rule whose filter matches is applied, once. A filter that a client
subscribes to is changed as if it were a topic, so that a wildcard may stand for a wildcard; one
that is wider than the rule's is not changed.

Topics and filters that begin with `$` are not changed, but for what is shared in `$share/`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from entrepot.wire.mqtt.reasons import MqttError
from entrepot.wire.mqtt.topics import SHARED, check_filter, check_name, shared_filter

_PRIVATE = "$"
_REFERENCE = re.compile(r"\$([1-9][0-9]?)")


class On(Enum):
    """What a rule applies to."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    ALL = "all"


class InvalidRule(Exception):
    """A rule that cannot be applied. The text is one line for the user."""


class Rule(NamedTuple):
    levels: tuple[str, ...]  # Of the filter.
    to: str
    on: On

    def applied(self, topic: str) -> str | None:
        """Return the topic or filter as the rule changes it; None if it does not match."""
        levels, wanted = topic.split("/"), self.levels
        has_rest = wanted[-1] == "#"
        fixed = wanted[:-1] if has_rest else wanted
        if len(levels) < len(fixed) or (not has_rest and len(levels) > len(fixed)):
            return None
        found: list[str] = []
        for level, pattern in zip(levels, fixed, strict=False):
            if pattern == "+" and level != "#":
                found.append(level)
            elif level != pattern:
                return None
        if has_rest:
            found.append("/".join(levels[len(fixed) :]))
        changed = _REFERENCE.sub(lambda reference: found[int(reference[1]) - 1], self.to)
        # `a/#` matches `a`, too; then there is nothing behind the last separator.
        is_short = has_rest and len(levels) == len(fixed) and self.to.endswith(f"/${len(found)}")
        return changed.removesuffix("/") if is_short else changed


def rule(match: str, to: str, on: On) -> Rule:
    """Make a rule. Raises InvalidRule."""
    try:
        check_filter(match)
        check_name(_REFERENCE.sub("x", to))
    except MqttError as error:
        raise InvalidRule(str(error)) from None
    if match.startswith(_PRIVATE):
        raise InvalidRule(f"{match}: topics that begin with $ are the broker's")
    levels = tuple(match.split("/"))
    wildcards = sum(level in ("+", "#") for level in levels)
    for number in map(int, _REFERENCE.findall(to)):
        if number > wildcards:
            raise InvalidRule(f"{to}: ${number}, but {match} has {wildcards} wildcards")
    return Rule(levels, to, on)


class Rewriting:
    """All rules, in their order."""

    __slots__ = ("_publish", "_subscribe")

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        rules = [*rules]
        self._publish = [each for each in rules if each.on is not On.SUBSCRIBE]
        self._subscribe = [each for each in rules if each.on is not On.PUBLISH]

    def topic(self, name: str) -> str:
        """Return the topic that is published on. Raises MqttError if it is none."""
        if not self._publish:
            return name
        changed = _applied(self._publish, name)
        if changed is not name:
            check_name(changed)
        return changed

    def filter(self, text: str) -> str:
        """Return the filter that is subscribed to. Raises MqttError if it is none."""
        if not self._subscribe:
            return text
        shared = shared_filter(text)
        changed = _applied(self._subscribe, text if shared is None else shared.filter)
        if shared is not None:
            changed = f"{SHARED}/{shared.group}/{changed}"
        if changed != text:
            check_filter(changed)
        return changed


def _applied(rules: list[Rule], topic: str) -> str:
    if topic.startswith(_PRIVATE):
        return topic
    for each in rules:
        changed = each.applied(topic)
        if changed is not None:
            return changed
    return topic
