"""A protocol is a codec and a handful of verbs: here is one with three.

    PUT queue text   answered `OK` when the message is permanent, or `NO reason`
    GET queue        answered `MSG number text`, or `NONE`
    ACK number       answered `OK`

It imports no other protocol, and nothing below the broker and the core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from entrepot.broker.broker import Broker
from entrepot.broker.queue.message import Failure, Publication
from entrepot.broker.queue.queue import Queue
from entrepot.core.errors import PeerError
from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, Head
from entrepot.core.ports import NOTHING_UNFINISHED, Clock, Link, Unfinished
from entrepot.core.properties import Properties
from entrepot.gateway.pump import Pump

LINE_BYTES_MAX = 4_096
PERSISTENT = NEUTRAL.write(Head(Properties(is_persistent=True)))


class Lines:
    """The codec: bytes in, lines of words out."""

    def __init__(self) -> None:
        self._area = bytearray(LINE_BYTES_MAX)
        self._filled = 0

    def writable(self) -> memoryview:
        return memoryview(self._area)[self._filled :]

    def received(self, size: int) -> list[list[str]]:
        self._filled += size
        *lines, rest = bytes(self._area[: self._filled]).split(b"\n")
        if len(rest) == LINE_BYTES_MAX:
            raise PeerError("a line that is too long")
        self._area[: len(rest)] = rest
        self._filled = len(rest)
        return [line.decode("utf-8", "replace").split(" ", 2) for line in lines]


class ToyAdapter(Pump[list[str]]):
    """The verbs."""

    def __init__(self, link: Link, broker: Broker, clock: Clock) -> None:
        super().__init__(link, Lines(), self._serve, clock, broker.faults)
        self._vhost = broker.vhosts.default
        self._answers: list[bytes] = []
        self._taken: dict[int, tuple[Queue, int, range]] = {}  # By number: where each is.
        self._number = 0

    def _serve(self, words: list[str]) -> Awaitable[None] | None:
        match words:
            case ["PUT", name, text]:
                return self._put(name, text.encode())
            case ["GET", name]:
                self._get(self._vhost.queue(name))
            case ["ACK", number] if number.isdigit() and int(number) in self._taken:
                queue, lane, offsets = self._taken.pop(int(number))
                queue.settle(self, lane, offsets)
                self._answer("OK")
            case _:
                raise PeerError(f"not understood: {' '.join(words)}")
        return None

    async def _put(self, name: str, body: bytes) -> None:
        done: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()
        publication = Publication(done.set_result)
        message = Envelope("", name, PERSISTENT, NEUTRAL), body
        nowhere = self._vhost.publish("", [message], publication)
        publication.arrived()
        failure = await done
        self._answer("NO such queue" if nowhere else "OK" if failure is None else f"NO {failure}")

    def _get(self, queue: Queue) -> None:
        found = queue.get(self, auto_ack=False)
        if found is None:
            self._answer("NONE")
            return
        lane, taken = found
        self._number += 1
        self._taken[self._number] = queue, lane, taken.offsets
        [(_, body)] = taken.run.messages
        self._answer(f"MSG {self._number} {bytes(body).decode()}")

    # --- what the pump asks

    def _answer(self, text: str) -> None:
        self._answers.append(text.encode() + b"\n")

    def output(self) -> Sequence[bytes]:
        answers, self._answers = self._answers, []
        return answers

    def pace(self) -> None:
        self.pause(bool(self._events))

    def failed(self, error: PeerError | None) -> None:
        self._answer(f"NO {error or 'internal error'}")

    def unfinished(self) -> Unfinished:
        return NOTHING_UNFINISHED

    def refuse(self, reason: str) -> None:
        self.link.close(reason)

    def closed(self, reason: str) -> None:
        super().closed(reason)
        for queue, _, _ in self._taken.values():
            queue.release(self)
