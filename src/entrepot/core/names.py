"""Types of names and ids, and the rule for topic names."""

import re
from typing import NamedTuple, NewType
from uuid import UUID

from entrepot.core import limits
from entrepot.core.errors import InvalidName

TopicName = NewType("TopicName", str)
TopicId = UUID
NodeId = NewType("NodeId", int)

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PartitionId(NamedTuple):
    """A partition: the topic's id and a number. A topic that is deleted and created again has a
    new id."""

    topic: TopicId
    number: int  # Which of the topic's partitions, from 0.


def is_short(text: str) -> bool:
    """Return whether a name or key is short enough for every protocol."""
    return len(text.encode("utf-8", "surrogateescape")) <= limits.NAME_BYTES_MAX


def check_topic_name(name: str) -> TopicName:
    """Return the name if it is legal for a topic, by Kafka's rule. Raises InvalidName."""
    if name in (".", "..") or not _LEGAL.fullmatch(name):
        raise InvalidName(
            f"topic name {name[:260]!r} is not legal: "
            "1 to 249 characters out of a-z A-Z 0-9 . _ - and not '.' or '..'"
        )
    return TopicName(name)
