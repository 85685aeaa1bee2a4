"""A node that routes events, on an event loop: start it, then subscribe and publish.

Whom it is told of events is the agent's `deliver`. What it subscribes and advertises, the nodes of
its cluster learn by the strategy that all of them have.
"""

from __future__ import annotations

from entrepot.cluster.gossip.node import DatagramNode
from entrepot.cluster.routing.agent import RoutingAgent
from entrepot.cluster.routing.matching import Event, Filter
from entrepot.core.faults import Faults
from entrepot.core.ports import Clock


class RoutingNode(DatagramNode):
    def __init__(self, agent: RoutingAgent, clock: Clock, faults: Faults) -> None:
        super().__init__(agent, clock, faults)
        self.agent = agent

    def subscribe(self, filter: Filter) -> None:
        """Want what matches. Raises ValueError if the strategy cannot do with such a filter."""
        self._send(self.agent.subscribe(filter, self._clock.now_ms()))

    def unsubscribe(self, filter: Filter) -> None:
        """Want it no more. Raises ValueError if there is no such subscription."""
        self.agent.unsubscribe(filter)

    def advertise(self, filter: Filter) -> None:
        """Announce what will be published here. Raises ValueError if there are too many."""
        self._send(self.agent.advertise(filter, self._clock.now_ms()))

    def publish(self, event: Event) -> None:
        self._send(self.agent.publish(event, self._clock.monotonic(), self._clock.now_ms()))
