"""Push topics and subscriptions are folded from records, and survive as such."""

from entrepot.broker.push import (
    PushSubscription,
    PushTopic,
    PushTopics,
    subscription_deleted_record,
    subscription_record,
    topic_deleted_record,
    topic_record,
)
from entrepot.core.record import Record


def apply(topics: PushTopics, record: Record) -> None:
    assert record.key is not None
    kind, _, name = record.key.decode().partition(":")
    view = topics if kind == "push-topic" else topics.subscriptions
    view.apply(name, record.value)


def test_topics_and_subscriptions_come_and_go() -> None:
    topics = PushTopics()
    topic = PushTopic("news", {"a": "b"}, {"c": "d"})
    one = PushSubscription("1", "news", "work", "ana", {"raw": "true"})
    two = PushSubscription("2", "news", "other")
    for record in (topic_record(topic), subscription_record(one), subscription_record(two)):
        apply(topics, record)
    assert (topics.get("news"), topics.names()) == (topic, ["news"])
    assert topics.subscriptions.of("news") == topics.subscriptions.all() == [one, two]
    changed = PushSubscription("1", "news", "work", "ana", {"raw": "false"})
    apply(topics, subscription_record(changed))
    assert topics.subscriptions.get("1") == changed
    for record in (subscription_deleted_record("1"), subscription_deleted_record("1")):
        apply(topics, record)
    assert topics.subscriptions.of("news") == [two]
    apply(topics, subscription_deleted_record("2"))
    apply(topics, topic_deleted_record("news"))
    assert (topics.names(), topics.subscriptions.of("news")) == ([], [])
