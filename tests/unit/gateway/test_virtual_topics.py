"""Which queues are of a virtual topic, by their names."""

import pytest

from entrepot.gateway.virtual_topics import pattern_of


@pytest.mark.parametrize(
    ("queue", "pattern"),
    [
        ("Consumer.A.VirtualTopic.Orders", "VirtualTopic.Orders"),
        ("Consumer.A.VirtualTopic.Orders.New", "VirtualTopic.Orders.New"),
        ("Consumer.A.VirtualTopic.>", "VirtualTopic.#"),
        ("Consumer.A.VirtualTopic.*.New", "VirtualTopic.*.New"),
        ("Consumer.A.VirtualTopic", None),
        ("Consumer.VirtualTopic.Orders", None),
        ("Consumer.A.Orders.VirtualTopic", None),
        ("Consumers.A.VirtualTopic.Orders", None),
        ("Consumer..VirtualTopic.Orders", None),
        ("Consumer.A.VirtualTopic.", None),
        ("VirtualTopic.Orders", None),
    ],
)
def test_a_name(queue: str, pattern: str | None) -> None:
    assert pattern_of(queue) == pattern
