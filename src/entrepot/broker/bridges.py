"""The bridges of this broker to others, for those who ask what they do."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class BridgeFacts(NamedTuple):
    name: str
    address: str  # Of the other broker.
    is_connected: bool
    problem: str | None  # Why it is not connected, or what the other side has refused.
    waiting: int  # Messages that are to go to the other side.
    received: int  # Messages that came from there since the start.
    connections: int  # That were made since the start.


class HasBridgeFacts(Protocol):
    def facts(self) -> BridgeFacts: ...


class Bridges:
    """A registry."""

    def __init__(self) -> None:
        self._bridges: list[HasBridgeFacts] = []

    def add(self, bridge: HasBridgeFacts) -> None:
        self._bridges.append(bridge)

    def facts(self) -> list[BridgeFacts]:
        return [each.facts() for each in self._bridges]
