"""Which topics the members of a modern group subscribe to: by name, or by regular expression.

A regular expression is matched against all topics once, and then against those that changed.
One heartbeat matches only one expression against all: a group may have hundreds, and its
members wait meanwhile. So after a start it takes some heartbeats until all are matched.

All of it is done in steps, between which topics come and go; those are matched the next time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.records import Subscription
from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.core.steps import Steps, parts

_WHOLE_MATCHES = 1  # Expressions matched against all topics by one heartbeat.
# Topic names matched in one step. Most take a microsecond, none more than half a millisecond.
_NAMES_A_STEP = 16
_INTERNAL = "__"  # The prefix of the broker's own topics, which regular expressions do not match.


class Topics(Protocol):
    """The part of the catalog that is needed here."""

    topics: dict[str, Topic]
    version: int  # Counts up whenever a topic changes.

    def changed_since(self, version: int) -> Iterable[str] | None: ...


class _Matched(NamedTuple):
    regex: Regex
    version: int  # The version of the topics that it was matched against.
    names: dict[str, None]


class Interest:
    def __init__(self) -> None:
        self._matched: dict[str, _Matched] = {}  # By regular expression.

    def wanted(
        self,
        subscriptions: Mapping[str, Subscription],
        topics: Topics,
        may_see: Callable[[str], bool],
    ) -> Steps[dict[str, tuple[Topic, ...]] | None]:
        """Return for each member the existing topics it subscribes to; None means: ask again later.

        Members with equal subscriptions get the same object.
        """
        matched: dict[str, _Matched] = {}
        room, is_complete = _WHOLE_MATCHES, True
        for regex in dict.fromkeys(each.regex for each in subscriptions.values()):
            if regex is None:
                continue
            known = self._matched.get(regex)
            changed = None if known is None else topics.changed_since(known.version)
            if known is not None and changed is not None:
                matched[regex] = yield from _match_again(known, changed, topics, may_see)
            elif room:
                room -= 1
                compiled = compile_regex(regex) if known is None else known.regex
                matched[regex] = yield from _match(compiled, topics, may_see)
            else:
                is_complete = False
                if known is not None:
                    matched[regex] = known
        self._matched = matched
        return (yield from self._by_member(subscriptions, topics)) if is_complete else None

    def _by_member(
        self, subscriptions: Mapping[str, Subscription], topics: Topics
    ) -> Steps[dict[str, tuple[Topic, ...]]]:
        found: dict[tuple[tuple[str, ...], str | None], tuple[Topic, ...]] = {}
        wanted: dict[str, tuple[Topic, ...]] = {}
        for member_id, each in subscriptions.items():
            alike = each.topics, each.regex
            if alike not in found:
                there = (topics.topics.get(name) for name in self._names(each))
                found[alike] = tuple([topic for topic in there if topic is not None])
            wanted[member_id] = found[alike]
            yield
        return wanted

    def covers(self, subscription: Subscription, topic: str) -> bool:
        """Return whether the subscription includes the topic."""
        return topic in self._names(subscription)

    def _names(self, subscription: Subscription) -> tuple[str, ...]:
        matched = self._matched.get(subscription.regex or "")
        if matched is None:
            return subscription.topics
        return tuple(sorted({*subscription.topics, *matched.names}))


def _match(regex: Regex, topics: Topics, may_see: Callable[[str], bool]) -> Steps[_Matched]:
    version, wanted = topics.version, dict[str, None]()
    for some in parts(list(topics.topics), _NAMES_A_STEP):
        wanted.update((name, None) for name in some if _is_wanted(regex, name, may_see))
        yield
    return _Matched(regex, version, wanted)


def _match_again(
    known: _Matched, changed: Iterable[str], topics: Topics, may_see: Callable[[str], bool]
) -> Steps[_Matched]:
    version = topics.version
    for name in changed:
        if name in topics.topics and _is_wanted(known.regex, name, may_see):
            known.names[name] = None
        else:
            known.names.pop(name, None)
        yield
    return known._replace(version=version)


def _is_wanted(regex: Regex, name: str, may_see: Callable[[str], bool]) -> bool:
    return not name.startswith(_INTERNAL) and regex.is_whole(name) and may_see(name)


def compile_regex(pattern: str) -> Regex:
    """Compile a regular expression. Raises GroupError."""
    try:
        return Regex(pattern)
    except InvalidRegex as error:
        raise GroupError(Fault.INVALID_REGULAR_EXPRESSION, str(error)) from None


def hash_of(topics: Iterable[Topic]) -> Steps[int]:
    """Return a hash of these topics and their partition counts."""
    total = 0
    for each in topics:
        row = each.id.bytes + each.partition_count.to_bytes(4, "big")
        total += int.from_bytes(hashlib.blake2b(row, digest_size=8).digest(), "big")
        yield
    return total % 2**64 - 2**63
