"""Virtual topics, as ActiveMQ has them: queues whose names say which topic they are of.

Whoever consumes the queue `Consumer.NAME.VirtualTopic.TOPIC` gets what is published on the topic
`VirtualTopic.TOPIC`, together with all others of that NAME: a queue for each of them, and a topic
for publishers. A `>` at the end stands for all that begins like that.
"""

from __future__ import annotations

_CONSUMER, _TOPIC, _REST = "Consumer", "VirtualTopic", ">"
_PARTS_MIN = 4  # Consumer, its name, VirtualTopic, and at least one more.


def pattern_of(queue: str) -> str | None:
    """Return the pattern of subjects that a queue of that name is bound to; None if to none."""
    if not queue.startswith(_CONSUMER):
        return None
    first, *rest = queue.split(".")
    if first != _CONSUMER or len(rest) + 1 < _PARTS_MIN or rest[1] != _TOPIC or "" in rest:
        return None
    *levels, last = rest[1:]
    return ".".join([*levels, "#" if last == _REST else last])
