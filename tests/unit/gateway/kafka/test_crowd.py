"""Very many clients that ask at the same time."""

from collections.abc import Awaitable
from typing import Any

import pytest

from entrepot.core import limits
from entrepot.gateway.kafka import apis
from entrepot.gateway.kafka.serving import Serve
from tests.end_to_end.bare import framed
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.test_adapter import (
    connected,
    feed,
    find_coordinator,
    settle,
    versions,
)


class Counted:
    """Counts the requests that are begun, with the handlers that there are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        find = apis.find

        def found(api_key: int, version: int) -> Serve | None:
            handler = find(api_key, version)
            if handler is None or api_key not in apis.AWAITED:
                return handler

            def serve(*arguments: Any) -> Awaitable[None] | None:
                self.begun += 1
                return handler(*arguments)

            return serve

        monkeypatch.setattr(apis, "find", found)


@on_node()
async def test_of_a_crowd_that_asks_at_once_some_are_served_in_each_iteration(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who asks for little waits for none of them."""
    counted = Counted(monkeypatch)
    most = limits.REQUESTS_AT_ONCE_MAX
    crowd = [connected(node) for _ in range(3 * most)]
    for adapter, _ in crowd:
        feed(adapter, find_coordinator(1), versions(2))
    assert counted.begun == most
    other, link = connected(node)
    feed(other, versions(3))
    assert link.answered == [3]
    await settle()
    assert counted.begun == 3 * most
    assert all(each.answered == [1, 2] for _, each in crowd)


@on_node()
async def test_one_of_a_crowd_that_is_gone_before_its_turn_is_not_served(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    most = limits.REQUESTS_AT_ONCE_MAX
    crowd = [connected(node) for _ in range(most + 2)]
    for adapter, _ in crowd:
        feed(adapter, find_coordinator(1))
    gone, _ = crowd[most]
    gone.closed("gone")
    await settle()
    assert counted.begun == most + 1
    assert [bool(link.answered) for _, link in crowd[most:]] == [False, True]


@on_node()
async def test_one_of_a_crowd_that_makes_no_sense_is_refused(node: Node) -> None:
    crowd = [connected(node) for _ in range(limits.REQUESTS_AT_ONCE_MAX + 1)]
    for adapter, _ in crowd[:-1]:
        feed(adapter, find_coordinator(1))
    last, link = crowd[-1]
    whole = find_coordinator(1)
    feed(last, framed(whole[4:-3]))
    await settle()
    assert link.closed is not None
    assert all(each.answered == [1] for _, each in crowd[:-1])
