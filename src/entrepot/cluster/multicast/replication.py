"""Replication from the source: it sends each receiver a copy. What all other ways compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, Sends
from entrepot.wire.gossip.messages import Carried


class Replication:
    hears: ClassVar[tuple[type, ...]] = (Carried,)
    is_active: ClassVar[bool] = False

    def __init__(self, me: Peer, deliver: Callable[[Carried], None]) -> None:
        self.period_s = PERIOD_S
        self._me = me
        self._deliver = deliver
        self._number = 0

    def send(self, body: bytes, receivers: Iterable[Peer]) -> Sends:
        self._number += 1
        message = Carried(self._me, self._number, 0, 0, body)
        self._deliver(message)
        return [(peer, message) for peer in receivers if peer != self._me]

    def tick(self, now: float) -> Sends:
        return ()

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        self._deliver(message)
        return ()
