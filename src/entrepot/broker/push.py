"""Push topics and their subscriptions: what is published there is copied to queues by a gateway,
and from some of these queues sent on.

A push topic is a topic like any other, which has subscriptions beside its readers. What the
gateway needs to know of both are texts by name, in its own words; the broker stores them in the
catalog, and finds them again.
"""

from __future__ import annotations

import msgspec

from entrepot.broker.catalog import CatalogView
from entrepot.core.record import Record


class PushTopic(msgspec.Struct, frozen=True, omit_defaults=True):
    """A topic with subscriptions. Persisted: never change a name."""

    name: str
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class PushSubscription(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where copies go. Persisted: never change a name."""

    id: str
    topic: str
    queue: str
    owner: str = ""  # The user who made it.
    settings: dict[str, str] = msgspec.field(default_factory=dict)
    endpoint: str = ""  # Where the messages of the queue are sent on to. Empty means: nowhere.
    token: str = ""  # By which whoever is there confirms that they want them.
    is_pending: bool = False  # It is not confirmed yet, so nothing is copied.
    made_ms: int = 0


class PushSubscriptions:
    """All subscriptions, by topic and id."""

    def __init__(self) -> None:
        self._all: dict[str, PushSubscription] = {}
        self._by_topic: dict[str, dict[str, PushSubscription]] = {}

    def apply(self, name: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        old = self._all.pop(name, None)
        if value is None:
            if old is not None:
                rest = self._by_topic[old.topic]
                del rest[name]
                if not rest:
                    del self._by_topic[old.topic]
            return
        found = msgspec.json.decode(value, type=PushSubscription)
        self._all[name] = found
        self._by_topic.setdefault(found.topic, {})[name] = found

    def get(self, subscription_id: str) -> PushSubscription | None:
        return self._all.get(subscription_id)

    def all(self) -> list[PushSubscription]:
        return [*self._all.values()]

    def of(self, topic: str) -> list[PushSubscription]:
        return [*self._by_topic.get(topic, {}).values()]


class PushTopics:
    """All push topics, by name."""

    def __init__(self) -> None:
        self._topics: dict[str, PushTopic] = {}
        self.subscriptions = PushSubscriptions()

    def apply(self, name: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        if value is None:
            self._topics.pop(name, None)
        else:
            self._topics[name] = msgspec.json.decode(value, type=PushTopic)

    def views(self) -> dict[str, CatalogView]:
        """Return who folds which kind of records."""
        return {"push-topic": self, "push-subscription": self.subscriptions}

    def get(self, name: str) -> PushTopic | None:
        return self._topics.get(name)

    def names(self) -> list[str]:
        return [*self._topics]


def topic_record(topic: PushTopic) -> Record:
    return Record(f"push-topic:{topic.name}".encode(), msgspec.json.encode(topic))


def topic_deleted_record(name: str) -> Record:
    return Record(f"push-topic:{name}".encode(), None)


def subscription_record(subscription: PushSubscription) -> Record:
    key = f"push-subscription:{subscription.id}".encode()
    return Record(key, msgspec.json.encode(subscription))


def subscription_deleted_record(subscription_id: str) -> Record:
    return Record(f"push-subscription:{subscription_id}".encode(), None)
