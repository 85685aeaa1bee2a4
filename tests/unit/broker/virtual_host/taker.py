"""A consumer for tests: takes what it has room for."""

from entrepot.broker.queue.message import Taken


class Taker:
    tag = "taker"
    auto_ack = False
    is_exclusive = False
    priority = 0

    def __init__(self, room: int = 1_000) -> None:
        self._room = room
        self.taken: list[tuple[int, Taken]] = []
        self.is_cancelled = False

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(body) for _, taken in self.taken for _, body in taken.run.messages]

    def room(self) -> int:
        return self._room

    def deliver(self, lane: int, taken: Taken) -> None:
        self.taken.append((lane, taken))

    def cancelled(self) -> None:
        self.is_cancelled = True

    def activated(self, is_active: bool) -> None:
        pass
