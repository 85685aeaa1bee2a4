"""A connection to an MQTT broker, for the command line and for bridges.

It is `ClientProtocol` on a link of the net. Whatever ends the connection is remembered, and is
what everybody hears who asks for anything afterwards. Messages wait in a bounded inbox: while it
is full, the link is not read from. A connection that was lost is not opened again by itself; who
wants the session to go on opens another with the same `ClientSession`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

from entrepot.client.cluster import parse_bootstrap
from entrepot.client.errors import BadAnswer, ClientError, Unreachable, explain
from entrepot.client.mqtt_protocol import (
    Arrived,
    ClientEvent,
    ClientProtocol,
    ClientSession,
    Published,
)
from entrepot.core.limits import BACKLOG_BYTES_HIGH
from entrepot.core.ports import Buffer, Link, Net, Receiver
from entrepot.wire.mqtt.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Pingresp,
    Suback,
    Subscription,
    Unsuback,
)
from entrepot.wire.mqtt.properties import NO_PROPERTIES, Properties
from entrepot.wire.mqtt.reasons import FAILURE, MqttError, Reason

TIMEOUT_S = 30.0
INBOX_MESSAGES_MAX = 1_000  # That nobody has taken yet; then the link is not read from.

_WORDS = {
    Reason.BAD_USER_NAME_OR_PASSWORD: "wrong user or password",
    Reason.NOT_AUTHORIZED: "no permission",
    Reason.CLIENT_IDENTIFIER_NOT_VALID: "the broker does not accept this client identifier",
    Reason.UNSUPPORTED_PROTOCOL_VERSION: "the broker does not speak this version of MQTT",
    Reason.SESSION_TAKEN_OVER: "another client has connected with this client identifier",
    Reason.SERVER_SHUTTING_DOWN: "the broker shuts down",
    Reason.PACKET_TOO_LARGE: "the message is larger than the broker accepts",
    Reason.TOPIC_NAME_INVALID: "the broker does not accept this topic",
    Reason.TOPIC_FILTER_INVALID: "the broker does not accept this filter",
}
_PASSING = (
    Reason.SERVER_BUSY,
    Reason.SERVER_UNAVAILABLE,
    Reason.SERVER_SHUTTING_DOWN,
    Reason.QUOTA_EXCEEDED,
    Reason.CONNECTION_RATE_EXCEEDED,
    Reason.KEEP_ALIVE_TIMEOUT,
)


class MqttRefused(ClientError):
    """The broker's answer is a reason code that is a failure."""

    def __init__(self, reason: Reason, about: str = "", said: str | None = None) -> None:
        words = said or _WORDS.get(reason) or reason.name.replace("_", " ").lower()
        text = f"{words} (0x{reason:02x})"
        super().__init__(f"{about}: {text}" if about else text)
        self.reason = reason
        self.retriable = reason in _PASSING


class MqttClient:
    """A `Receiver` of the net."""

    def __init__(self, link: Link, protocol: ClientProtocol) -> None:
        self._link = link
        self.protocol = protocol
        self.messages: deque[Arrived] = deque()  # That came and nobody has taken.
        self._answers: dict[int, asyncio.Future[Suback | Unsuback | Published]] = {}
        self._opened: asyncio.Future[Connack] = asyncio.get_running_loop().create_future()
        self._failure: ClientError | None = None
        self._changed = asyncio.Event()  # A message came, there is room, or it is over.
        self._gone = asyncio.Event()  # The link is closed.
        self._is_paused = False
        self._has_heard = True  # Something came since the last PINGREQ.
        self._heart: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        net: Net,
        address: str,
        connect: Connect,
        session: ClientSession | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> Self:
        """Connect and log in. Raises Unreachable, MqttRefused, BadAnswer.

        The address is like localhost:1883.
        """
        ((host, port),) = parse_bootstrap(address)[:1]
        made: list[Self] = []

        def attach(link: Link) -> Receiver:
            made.append(cls(link, ClientProtocol(connect, session)))
            return made[0]

        try:
            async with asyncio.timeout(timeout_s):
                await net.connect(host, port, attach)
                made[0]._flush()
                await made[0]._greeted(connect)
        except BaseException as error:
            for each in made:
                each._link.abort("it could not be opened")
            explain(error, f"{host}:{port}")
        return made[0]

    async def _greeted(self, connect: Connect) -> None:
        connack = await self._opened
        if connack.reason:
            about = f"login of {connect.user}" if connect.user else f"broker {self._link.peer}"
            raise MqttRefused(connack.reason, about, connack.properties.reason_string)
        keep_alive_s = connack.properties.server_keep_alive
        if keep_alive_s is None:
            keep_alive_s = connect.keep_alive_s
        if keep_alive_s:
            self._heart = asyncio.create_task(self._beat(keep_alive_s / 2))

    @property
    def connack(self) -> Connack:
        assert self.protocol.connack is not None
        return self.protocol.connack

    @property
    def failure(self) -> ClientError | None:
        """Return why the connection is over; None while it is not."""
        return self._failure

    # --- what it is asked for

    async def publish(
        self,
        topic: str,
        payload: Buffer,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | bytes = NO_PROPERTIES,
    ) -> None:
        """Publish, and wait for the acknowledgement if there will be one.

        Raises MqttRefused, Unreachable. Before version 5 a refusal is the connection's end.
        """
        sent = await self.send(topic, payload, qos, retain=retain, properties=properties)
        if sent is not None:
            answer = await self._wait(sent)
            if isinstance(answer, Published) and answer.is_refused:
                raise MqttRefused(answer.reason, topic)

    async def send(
        self,
        topic: str,
        payload: Buffer,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | bytes = NO_PROPERTIES,
    ) -> asyncio.Future[Suback | Unsuback | Published] | None:
        """Publish as soon as there is room; return the future acknowledgement, None for QoS 0."""
        protocol = self.protocol
        while True:
            self._check()
            if self._link.backlog <= BACKLOG_BYTES_HIGH and (not qos or protocol.room):
                break
            self._changed.clear()
            await self._changed.wait()
        packet_id = protocol.publish(topic, payload, qos, retain=retain, properties=properties)
        answer = self._expect(packet_id) if qos else None
        self._flush()
        return answer

    async def subscribe(
        self, subscriptions: Sequence[Subscription], properties: Properties = NO_PROPERTIES
    ) -> tuple[Reason, ...]:
        """Subscribe; return what was granted, one reason for each. Raises Unreachable."""
        self._check()
        answer = self._expect(self.protocol.subscribe(subscriptions, properties))
        self._flush()
        found = await self._wait(answer)
        assert isinstance(found, Suback)
        return found.reasons

    async def unsubscribe(self, filters: Sequence[str]) -> tuple[Reason, ...]:
        """Unsubscribe; return a reason for each in version 5. Raises Unreachable."""
        self._check()
        answer = self._expect(self.protocol.unsubscribe(filters))
        self._flush()
        found = await self._wait(answer)
        assert isinstance(found, Unsuback)
        return found.reasons

    async def receive(self) -> Arrived:
        """Return the next message, which is to be acknowledged. Raises Unreachable, MqttRefused."""
        while not self.messages:
            self._check()
            self._changed.clear()
            await self._changed.wait()
        message = self.messages.popleft()
        if self._is_paused and len(self.messages) <= INBOX_MESSAGES_MAX // 2:
            self._is_paused = False
            self._link.resume()
        return message

    def acknowledge(self, message: Arrived) -> None:
        """Tell the broker that a message is safe here."""
        if self._failure is None:
            self.protocol.acknowledge(message)
            self._flush()

    def close(self, reason: Reason = Reason.SUCCESS) -> None:
        """Say DISCONNECT and go."""
        if self._failure is None and not self.protocol.is_over:
            self.protocol.disconnect(reason)
            self._flush()
        self._link.close("done")

    async def leave(self) -> None:
        """Say DISCONNECT, and wait until all that was published is sent."""
        self.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await self._gone.wait()

    # --- for both

    def _flush(self) -> None:
        output = self.protocol.take_output()
        if output:
            self._link.send(output)

    def _expect(self, packet_id: int) -> asyncio.Future[Suback | Unsuback | Published]:
        answer: asyncio.Future[Suback | Unsuback | Published]
        answer = asyncio.get_running_loop().create_future()
        self._answers[packet_id] = answer
        return answer

    async def _wait(
        self, answer: asyncio.Future[Suback | Unsuback | Published]
    ) -> Suback | Unsuback | Published:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await answer
        except TimeoutError:
            self._link.abort("no answer came")
            raise Unreachable(f"{self._link.peer} does not answer") from None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _fail(self, failure: ClientError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        waiting: list[asyncio.Future[Any]] = [self._opened, *self._answers.values()]
        for answer in waiting:
            if not answer.done():
                answer.set_exception(failure)
                answer.exception()  # Nobody may be waiting; then it is no mistake.
        self._answers.clear()
        self._changed.set()
        if self._heart is not None:
            self._heart.cancel()

    async def _beat(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            if self._is_paused:
                self._has_heard = True  # It is we who do not listen.
            if not self._has_heard:
                self._link.abort("nothing was heard for too long")
                return
            self._has_heard = False
            self.protocol.ping()
            self._flush()

    # --- what the net calls

    def writable(self) -> memoryview:
        return self.protocol.writable()

    def received(self, size: int) -> None:
        self._has_heard = True
        for event in self.protocol.received(size):
            self._hear(event)
        self._flush()
        self._changed.set()
        if len(self.messages) > INBOX_MESSAGES_MAX and not self._is_paused:
            self._is_paused = True
            self._link.pause()

    def drained(self) -> None:
        self._changed.set()

    def closed(self, reason: str) -> None:
        self._gone.set()
        self._fail(Unreachable(f"connection to {self._link.peer} lost: {reason}"))

    def _hear(self, event: ClientEvent) -> None:
        match event:
            case Arrived():
                self.messages.append(event)
            case Published() | Suback() | Unsuback():
                answer = self._answers.pop(event.packet_id, None)
                if answer is not None and not answer.done():
                    answer.set_result(event)
            case Connack():
                if not self._opened.done():
                    self._opened.set_result(event)
            case Pingresp():
                pass
            case Auth():
                self._end(BadAnswer(f"{self._link.peer} wants to authenticate in another way"))
            case Disconnect(reason, properties):
                said = properties.reason_string
                about = f"{self._link.peer} has closed the connection"
                if reason >= FAILURE:
                    self._end(MqttRefused(reason, about, said))
                else:
                    self._end(Unreachable(about))
            case MqttError():
                self._end(BadAnswer(f"{self._link.peer} does not speak MQTT: {event}"))

    def _end(self, failure: ClientError) -> None:
        self._fail(failure)
        self._link.close("it is over")
