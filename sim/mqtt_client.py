"""A client of MQTT on the simulated network: one connection, packet by packet.

It sends what it is told, hands every packet that comes to whoever listens, and says `Gone` when
the connection is over. What both sides remember between connections is not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Self

from entrepot.core.ports import Link, Receiver
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingresp,
    write,
)
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Event, PacketBuffer, Scanner
from sim.history import Violation
from sim.net import ENDED, SimLink, SimNet

PATIENCE_S = 1.5
# What a broker may say that stops, or whose disk fails.
_ORDINARY = (Reason.SERVER_SHUTTING_DOWN, Reason.SESSION_TAKEN_OVER, Reason.KEEP_ALIVE_TIMEOUT)
_REFUSALS = (Reason.SERVER_UNAVAILABLE, Reason.SERVER_BUSY)

Heard = Callable[[Event], None]


class Gone(Exception):
    """The connection is over, or was never made."""


class MqttClient:
    def __init__(self, link: SimLink, version: int, heard: Heard) -> None:
        self._link = link
        self.version = version
        self._heard = heard
        scanner = Scanner(is_client=True, version=version)
        self._inbox = PacketBuffer(scanner)
        self._inbox.accept(topic_aliases_max=0)
        self._connack: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        self._gone: str | None = None
        self._is_deaf = False
        self.was_closed = False  # By the broker, after all that was sent to it.

    @classmethod
    async def open(
        cls, net: SimNet, address: tuple[str, int], connect: Connect, heard: Heard
    ) -> tuple[Self, Connack]:
        """Connect and log in. Raises Gone."""
        made: list[Self] = []

        def attach(link: Link) -> Receiver:
            assert isinstance(link, SimLink)
            made.append(cls(link, connect.version, heard))
            return made[0]

        try:
            async with asyncio.timeout(PATIENCE_S):
                await net.connect(*address, attach)
                client = made[0]
                client.send(connect)
                answer = await client._connack
        except (OSError, TimeoutError) as error:
            for each in made:
                each.die()
            raise Gone(str(error)) from None
        if answer.reason:
            if answer.reason not in _REFUSALS:
                raise Violation(f"refused for {answer}")
            client.die()
            raise Gone(str(answer.reason))
        return client, answer

    @property
    def is_open(self) -> bool:
        return self._gone is None

    def check_open(self) -> None:
        """Raises Gone."""
        if self._gone is not None:
            raise Gone(self._gone)

    # --- speaking

    def send(self, *packets: Packet | bytes) -> None:
        """Raises Gone."""
        self.check_open()
        data = [each if isinstance(each, bytes) else write(each, self.version) for each in packets]
        self._link.send(data)

    def publish(
        self,
        topic: str,
        body: bytes,
        qos: int,
        packet_id: int,
        *,
        is_retained: bool = False,
        is_again: bool = False,
    ) -> None:
        """Raises Gone."""
        raw = b"" if self.version == V5 else None
        message = Outgoing(qos, is_retained, topic.encode(), raw, body)
        self.send(head(message, packet_id, is_again=is_again) + body)

    def leave(self) -> None:
        """Politely. Raises Gone."""
        self.send(Disconnect())

    def die(self) -> None:
        """Without a word."""
        self._lose("it died")
        self._link.abort("gone")

    def fall_silent(self) -> None:
        """Neither listen nor speak."""
        self._is_deaf = True

    # --- listening

    def writable(self) -> memoryview:
        return self._inbox.writable()

    def received(self, size: int) -> None:
        for event in self._inbox.received(size):
            if self._gone is not None or self._is_deaf:
                return
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case MqttError():
                raise Violation(f"a broker must not say that: {event}")
            case Connack():
                if not self._connack.done():
                    self._connack.set_result(event)
            case Disconnect(reason, properties):
                is_broken = properties.reason_string == "internal error"
                is_ordinary = reason in _ORDINARY or reason is Reason.UNSPECIFIED_ERROR
                if is_broken or not is_ordinary:
                    raise Violation(f"disconnected for {event}")
                self._lose(reason.name)
                self._link.close("disconnected by the broker")
            case Pingresp():
                return
            case _:
                self._heard(event)

    def drained(self) -> None:
        """Do nothing: it never has much to say."""

    def closed(self, reason: str) -> None:
        self.was_closed = reason == ENDED
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self._gone is None:
            self._gone = reason
            if not self._connack.done():
                self._connack.set_exception(OSError(reason))
