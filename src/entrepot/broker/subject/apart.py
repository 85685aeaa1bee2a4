"""Refuses subjects that name a topic, in a cluster.

On a node alone a topic and the subject of its name are one thing. In a cluster topics are led by
many nodes, and subjects are where the queues are: what is published on one side would not be heard
on the other. So nobody gets to publish there, or to listen, who would not notice.
"""

from __future__ import annotations

from collections.abc import Mapping

from entrepot.broker.catalog import INTERNAL_NAMES, Topic
from entrepot.broker.subject.filter import QUEUE, SHARED, of_path_filter
from entrepot.broker.subject.name import landing_names
from entrepot.core.errors import ExchangeRefused


class Apart:
    def __init__(self, topics: Mapping[str, Topic]) -> None:
        """The topics are looked at whenever a subject is checked."""
        self._topics = topics

    def check(self, subject: str) -> None:
        """Raise ExchangeRefused if the subject names a topic that is no queue."""
        for name in landing_names(subject):
            topic = self._topics.get(name)
            if topic is not None and not topic.is_queue and name not in INTERNAL_NAMES:
                raise ExchangeRefused(
                    f"{name!r} is a topic of Kafka's; in a cluster it cannot be reached in "
                    "another protocol, and nothing else can have its name"
                )

    def check_filter(self, text: str) -> None:
        """Raise ExchangeRefused if a path filter without wildcards names such a topic."""
        if text.startswith(SHARED):
            text = text.split("/", 2)[-1]
        if "+" not in text and "#" not in text and not text.startswith(QUEUE):
            self.check(".".join(map(str, of_path_filter(text))))
