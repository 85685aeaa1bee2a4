"""The routing table of a queue manager.

Routes are set by hand, or learned: each manager tells its neighbours which managers it reaches in
how many steps, and which queues are where. It does not tell a neighbour what it reaches through
that one, so two managers never send a message to and fro. What a neighbour has not repeated for a
while is forgotten. A route that was set by hand counts more than one that was learned, and of those
the shortest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from entrepot.broker.links import RouteRow
from entrepot.core import limits

PREFIX = "link."  # Of the queues that links use.
ROUTES = PREFIX + "routes"  # The queue to which neighbours announce what they reach.
UNDELIVERABLE = PREFIX + "undeliverable"


class Announcement(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """What a manager tells a neighbour. Other versions may add fields."""

    manager: str
    # Of the managers that it reaches, itself included.
    distances: dict[str, int] = msgspec.field(default_factory=dict)
    # By name, the manager that has it.
    queues: dict[str, str] = msgspec.field(default_factory=dict)


class _Heard(NamedTuple):
    announcement: Announcement
    until_s: float


def transmission_queue(neighbour: str) -> str:
    return PREFIX + neighbour


class RoutingTable:
    def __init__(
        self,
        own: str,
        neighbours: Sequence[str],
        routes: Mapping[str, str],
        queues: Mapping[str, str],
    ) -> None:
        """`routes` and `queues` are set by hand: manager -> neighbour, and queue -> manager."""
        self.own = own
        self._neighbours = tuple(neighbours)
        self._set_routes = dict(routes)
        self._set_queues = dict(queues)
        self._announced: Sequence[str] = ()  # Queues of this manager that neighbours are told of.
        self._heard: dict[str, _Heard] = {}  # By neighbour.
        self._routes: dict[str, tuple[str, int]] = {}  # Learned: the neighbour, and the distance.
        self._queues: dict[str, str] = {}  # Learned.

    def add_neighbour(self, name: str) -> None:
        self._neighbours = (*self._neighbours, name)

    def remove_neighbour(self, name: str) -> None:
        """Forget a neighbour, and what it has announced."""
        self._neighbours = tuple(each for each in self._neighbours if each != name)
        self._heard.pop(name, None)
        self._learn()

    # --- learning

    def announce_queues(self, names: Sequence[str]) -> None:
        """Set which queues of this manager neighbours are told of."""
        self._announced = names[: limits.LINK_QUEUES_ANNOUNCED_MAX]

    def hear(self, announcement: Announcement, now_s: float) -> bool:
        """Learn from a neighbour. Returns False if it is none."""
        if announcement.manager not in self._neighbours or announcement.manager == self.own:
            return False
        until_s = now_s + limits.LINK_ROUTES_KEPT_MS / 1_000
        self._heard[announcement.manager] = _Heard(_bounded(announcement), until_s)
        self._learn()
        return True

    def expire(self, now_s: float) -> None:
        """Forget what neighbours have not repeated in time."""
        late = [name for name, heard in self._heard.items() if heard.until_s <= now_s]
        for name in late:
            del self._heard[name]
        if late:
            self._learn()

    def _learn(self) -> None:
        routes: dict[str, tuple[str, int]] = {}
        queues: dict[str, str] = {}
        for neighbour in sorted(self._heard):
            announcement = self._heard[neighbour].announcement
            for manager, distance in announcement.distances.items():
                _, best = routes.get(manager, ("", limits.LINK_HOPS_MAX + 1))
                if manager != self.own and distance + 1 < best:
                    routes[manager] = neighbour, distance + 1
            for name, manager in announcement.queues.items():
                if manager != self.own:
                    queues.setdefault(name, manager)
        self._routes, self._queues = routes, queues

    # --- asking

    def next_hop(self, manager: str) -> str | None:
        """Return the neighbour by way of which a manager is reached; None if it is not known."""
        if manager in self._set_routes:
            return self._set_routes[manager]
        if manager in self._neighbours:
            return manager
        found = self._routes.get(manager)
        return None if found is None else found[0]

    def target(self, key: str) -> tuple[str, str] | None:
        """Return the queue and the manager that a key names; None if it names no manager."""
        name, separator, manager = key.rpartition("@")
        if separator and name:
            return name, manager
        place = self._set_queues.get(key) or self._queues.get(key)
        return None if place is None else (key, place)

    def queue_for(self, key: str) -> str | None:
        """Return the queue here that a message with this key goes to, if it names a manager."""
        found = self.target(key)
        if found is None:
            return None
        name, manager = found
        if manager == self.own:
            return name
        hop = self.next_hop(manager)
        return None if hop is None else transmission_queue(hop)

    def announcement(self, neighbour: str) -> Announcement:
        """Return what a neighbour is told."""
        distances = {self.own: 0}
        for manager, via, distance in self._reached():
            if via != neighbour and manager != neighbour:
                distances[manager] = distance
        queues = dict.fromkeys(self._announced, self.own)
        for name, manager in (*self._set_queues.items(), *self._queues.items()):
            if manager in distances:
                queues.setdefault(name, manager)
        return Announcement(self.own, distances, queues)

    def _reached(self) -> Iterator[tuple[str, str, int]]:
        known = {**dict.fromkeys(self._routes), **dict.fromkeys(self._neighbours)}
        for manager in {**known, **dict.fromkeys(self._set_routes)}:
            via = self.next_hop(manager)
            if via is not None:
                learned = self._routes.get(manager)
                is_learned = learned is not None and learned[0] == via
                distance = learned[1] if learned is not None and is_learned else 1
                yield manager, via, distance

    def rows(self) -> list[RouteRow]:
        queues: dict[str, list[str]] = {self.own: [*self._announced]}
        for name, manager in {**self._queues, **self._set_queues}.items():
            queues.setdefault(manager, []).append(name)
        rows = [RouteRow(self.own, "", 0, "own", tuple(sorted(queues.pop(self.own))))]
        for manager, via, distance in sorted(self._reached()):
            source = "learned"
            if manager in self._set_routes:
                source = "set"
            elif manager in self._neighbours:
                source = "link"
            told = None if source == "set" and manager not in self._routes else distance
            rows.append(
                RouteRow(manager, via, told, source, tuple(sorted(queues.pop(manager, ()))))
            )
        return rows


def _bounded(announcement: Announcement) -> Announcement:
    """Return the announcement without what is too much, or cannot be."""
    distances = [
        (manager, distance)
        for manager, distance in announcement.distances.items()
        if 0 <= distance <= limits.LINK_HOPS_MAX and 0 < len(manager) <= limits.NAME_BYTES_MAX
    ]
    queues = [
        (name, manager)
        for name, manager in announcement.queues.items()
        if 0 < len(name) <= limits.NAME_BYTES_MAX and "@" not in name
    ]
    return Announcement(
        announcement.manager,
        dict(distances[: limits.LINK_MANAGERS_MAX]),
        dict(queues[: limits.LINK_QUEUES_ANNOUNCED_MAX]),
    )
