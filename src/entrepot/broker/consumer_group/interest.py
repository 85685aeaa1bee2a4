"""Which topics the members of a modern group want: by name, or by regular expression.

A regular expression is held against all topics once, and then against those that changed.
Only one at a time is held against all: a group may have hundreds, and everybody else waits
meanwhile. So after a start it takes some heartbeats until it is known what a group wants.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.records import Subscription
from entrepot.broker.regex import InvalidRegex, Regex

_WHOLE_MATCHES = 1  # Expressions that are held against all topics at once.
_INTERNAL = "__"  # Topics of the broker's own are not what a regular expression means.


class Topics(Protocol):
    """The catalog, as far as it counts here."""

    topics: dict[str, Topic]
    version: int  # One more whenever a topic has changed.

    def changed_since(self, version: int) -> Iterable[str] | None: ...


class _Matched(NamedTuple):
    regex: Regex
    version: int  # Of the topics it was looked for among.
    names: dict[str, None]


class Interest:
    def __init__(self) -> None:
        self._matched: dict[str, _Matched] = {}  # By regular expression.

    def wanted(
        self,
        subscriptions: Mapping[str, Subscription],
        topics: Topics,
        may_see: Callable[[str], bool],
    ) -> dict[str, list[Topic]] | None:
        """By member: of the topics it wants, those that there are. None: ask again later."""
        matched: dict[str, _Matched] = {}
        room, is_complete = _WHOLE_MATCHES, True
        for regex in dict.fromkeys(each.regex for each in subscriptions.values()):
            if regex is None:
                continue
            known = self._matched.get(regex)
            changed = None if known is None else topics.changed_since(known.version)
            if known is not None and changed is not None:
                matched[regex] = _match_again(known, changed, topics, may_see)
            elif room:
                room -= 1
                compiled = compile_regex(regex) if known is None else known.regex
                matched[regex] = _match(compiled, topics, may_see)
            else:
                is_complete = False
                if known is not None:
                    matched[regex] = known
        self._matched = matched
        if not is_complete:
            return None
        return {
            member_id: [topics.topics[name] for name in self._names(each) if name in topics.topics]
            for member_id, each in subscriptions.items()
        }

    def covers(self, subscription: Subscription, topic: str) -> bool:
        return topic in self._names(subscription)

    def _names(self, subscription: Subscription) -> tuple[str, ...]:
        matched = self._matched.get(subscription.regex or "")
        if matched is None:
            return subscription.topics
        return tuple(sorted({*subscription.topics, *matched.names}))


def _match(regex: Regex, topics: Topics, may_see: Callable[[str], bool]) -> _Matched:
    names = (name for name in topics.topics if _is_wanted(regex, name, may_see))
    return _Matched(regex, topics.version, dict.fromkeys(names))


def _match_again(
    known: _Matched, changed: Iterable[str], topics: Topics, may_see: Callable[[str], bool]
) -> _Matched:
    for name in changed:
        if name in topics.topics and _is_wanted(known.regex, name, may_see):
            known.names[name] = None
        else:
            known.names.pop(name, None)
    return known._replace(version=topics.version)


def _is_wanted(regex: Regex, name: str, may_see: Callable[[str], bool]) -> bool:
    return not name.startswith(_INTERNAL) and regex.is_whole(name) and may_see(name)


def compile_regex(pattern: str) -> Regex:
    """Raises GroupError."""
    try:
        return Regex(pattern)
    except InvalidRegex as error:
        raise GroupError(Fault.INVALID_REGULAR_EXPRESSION, str(error)) from None


def hash_of(topics: Iterable[Topic]) -> int:
    """Another number when other topics are wanted, or they have other partitions."""
    rows = sorted([(each.name, each.id.bytes, each.partition_count) for each in topics])
    digest = hashlib.blake2b(repr(rows).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
