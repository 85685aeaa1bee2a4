"""An event channel, as CORBA's event service has it: push and pull, on both of its sides.

A robot finds its way by what its sensors say on one channel. Suppliers push, or are asked; the
consumers are called, or ask. Then the laser is replaced by a camera, and nobody else notices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
from examples.interaction.room import WAIT_S, Connect, eventually, room


class EventChannel:
    """A subject for who is called, and a queue for each who asks."""

    def __init__(self, client: entrepot.Client, name: str) -> None:
        self._client = client
        self._name = name

    def push(self, event: Any) -> None:
        """Of a supplier that pushes."""
        self._client.publish(self._name, event)

    def connect_pull_supplier(self, supplier: str, pull: Callable[[], Any]) -> Any:
        """Of a supplier that is asked: `fetch` asks it."""
        return self._client.serve(f"{self._name}.{supplier}", lambda request: pull())

    def fetch(self, supplier: str) -> None:
        """Ask a supplier, and tell everybody what it said."""
        asked = self._client.request(f"{self._name}.{supplier}", None, timeout_s=WAIT_S)
        self.push(asked.value)

    def connect_push_consumer(self, called: Callable[[Any], object]) -> None:
        self._client.subscribe(self._name, lambda _, event: called(event.value))

    def connect_pull_consumer(self, consumer: str) -> Callable[[], Any]:
        """Return what a consumer asks with: the next event, or None if there is none."""
        queue = f"{self._name}.for.{consumer}"
        self._client.subscribe(self._name, lambda _, event: self._client.put(queue, event.value))

        def pull() -> Any:
            found = self._client.poll(queue)
            return None if found is None else found.value

        return pull


def channel(connect: Connect) -> EventChannel:
    """Return the channel as one component has it: the name is all that they share."""
    return EventChannel(connect(), "robot")


def main() -> None:
    with room() as (_, connect):
        navigation: list[str] = []
        log: list[str] = []
        channel(connect).connect_push_consumer(navigation.append)
        pull = channel(connect).connect_pull_consumer("log")
        laser = channel(connect)
        laser.push("laser: wall at 3 m")
        channel(connect).connect_pull_supplier("battery", lambda: "battery: 80 %")
        channel(connect).fetch("battery")
        eventually(lambda: len(navigation) == 2)
        camera = channel(connect)  # Instead of the laser.
        camera.push("camera: wall at 2 m")
        eventually(lambda: len(navigation) == 3)

        def has_all() -> bool:
            found = pull()
            if found is not None:
                log.append(found)
            return len(log) == 3

        eventually(has_all)
        print("navigation is called:", "; ".join(navigation))
        print("the log asks:", "; ".join(sorted(log)))


if __name__ == "__main__":
    main()
