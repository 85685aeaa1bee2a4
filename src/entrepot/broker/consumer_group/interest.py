"""Which topics the members of a modern group want: by name, or by regular expression."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.records import Subscription
from entrepot.broker.consumer_group.topic_regex import InvalidRegex, TopicRegex

_INTERNAL = "__"  # Topics of the broker's own are not what a regular expression means.


class Topics(Protocol):
    """The catalog, as far as it counts here."""

    topics: dict[str, Topic]
    version: int  # Another one whenever topics have changed.


class _Matched(NamedTuple):
    regex: TopicRegex
    version: int  # Of the topics it was looked for among.
    names: tuple[str, ...]


class Interest:
    def __init__(self) -> None:
        self._matched: dict[str, _Matched] = {}  # By regular expression.

    def wanted(
        self,
        subscriptions: Mapping[str, Subscription],
        topics: Topics,
        may_see: Callable[[str], bool],
    ) -> dict[str, list[Topic]]:
        """By member: of the topics it wants, those that there are."""
        matched: dict[str, _Matched] = {}
        for subscription in subscriptions.values():
            regex = subscription.regex
            if regex is not None and regex not in matched:
                matched[regex] = self._match(regex, topics, may_see)
        self._matched = matched
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

    def _match(self, regex: str, topics: Topics, may_see: Callable[[str], bool]) -> _Matched:
        known = self._matched.get(regex)
        if known is not None and known.version == topics.version:
            return known
        compiled = known.regex if known is not None else compile_regex(regex)
        names = tuple(
            name
            for name in topics.topics
            if not name.startswith(_INTERNAL) and compiled.matches(name) and may_see(name)
        )
        return _Matched(compiled, topics.version, names)


def compile_regex(pattern: str) -> TopicRegex:
    """Raises GroupError."""
    try:
        return TopicRegex(pattern)
    except InvalidRegex as error:
        raise GroupError(Fault.INVALID_REGULAR_EXPRESSION, str(error)) from None


def hash_of(topics: Iterable[Topic]) -> int:
    """Another number when other topics are wanted, or they have other partitions."""
    rows = sorted((topic.name, str(topic.id), topic.partition_count) for topic in topics)
    digest = hashlib.blake2b(repr(rows).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)
