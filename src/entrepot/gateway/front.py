"""The receiver of a link that may get another receiver later."""

from __future__ import annotations

from entrepot.core.ports import ServingReceiver, Unfinished


class Front:
    """Passes all calls of a link on to its present receiver."""

    __slots__ = ("receiver",)

    receiver: ServingReceiver

    def writable(self) -> memoryview:
        return self.receiver.writable()

    def received(self, size: int) -> None:
        self.receiver.received(size)

    def drained(self) -> None:
        self.receiver.drained()

    def closed(self, reason: str) -> None:
        self.receiver.closed(reason)

    def unfinished(self) -> Unfinished:
        return self.receiver.unfinished()

    def refuse(self, reason: str) -> None:
        self.receiver.refuse(reason)
