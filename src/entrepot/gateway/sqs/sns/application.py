"""The actions of SNS."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from entrepot.gateway.sqs.call import Call, Result
from entrepot.gateway.sqs.sns import publishing, subscriptions, topics

ACTIONS: dict[str, Callable[[Call], Awaitable[Result]]] = {
    "ConfirmSubscription": subscriptions.confirm,
    "CreateTopic": topics.create,
    "DeleteTopic": topics.delete,
    "GetSubscriptionAttributes": subscriptions.get_attributes,
    "GetTopicAttributes": topics.get_attributes,
    "ListSubscriptions": subscriptions.list_all,
    "ListSubscriptionsByTopic": subscriptions.list_of_topic,
    "ListTagsForResource": topics.list_labels,
    "ListTopics": topics.list_all,
    "Publish": publishing.publish,
    "PublishBatch": publishing.publish_batch,
    "SetSubscriptionAttributes": subscriptions.set_attributes,
    "SetTopicAttributes": topics.set_attributes,
    "Subscribe": subscriptions.subscribe,
    "TagResource": topics.label,
    "Unsubscribe": subscriptions.unsubscribe,
    "UntagResource": topics.remove_labels,
}
