"""PUBLISH from clients: checked, published in runs, and answered after the commit.

A message of QoS 1 is answered with PUBACK, and one of QoS 2 with PUBREC, when it is committed
everywhere. The session knows the packet identifiers of QoS 2 until the client's PUBREL, so that
a message that is sent again is published once.

What a client has no right to publish is answered with a reason code in version 5. Before version
5 there is none, and an answer would promise what was not done: the connection is closed. Messages
of QoS 0 that must not be published are dropped. Topics that begin with `$` are the broker's own:
what is published there is refused in version 5, and dropped before. Mosquitto's bridges do that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.message import Publication
from entrepot.broker.session.ports import Receipt
from entrepot.core.errors import PeerError, StorageError, TopicDenied
from entrepot.core.message import Envelope, Message, distinct
from entrepot.gateway.mqtt.answers import Answer, Answers, InFlight, Uncommitted
from entrepot.gateway.mqtt.format import with_identity
from entrepot.gateway.mqtt.sharing import encoding_key
from entrepot.gateway.timing import timed
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.packets import V5
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.reasons import FAILURE, MqttError, Reason
from entrepot.wire.mqtt.scan import Publishes

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session
    from entrepot.gateway.mqtt.context import Context, MqttPeer, Terms

PRIVATE = "$"  # Begins the broker's own topics.
_NOTHING: dict[int, None] = {}


class Publishing:
    __slots__ = (
        "_adapter",
        "_after_repeats",
        "_clock",
        "_counted",
        "_exactly",
        "_is_limited",
        "_pubacks",
        "_pubcomps",
        "_pubrecs",
        "_session",
        "_subjects",
        "_terms",
        "repeats",
        "uncommitted",
    )

    def __init__(self, adapter: MqttPeer, context: Context, terms: Terms, session: Session) -> None:
        self._adapter = adapter
        self.uncommitted = Uncommitted(adapter.guard, adapter.wake)
        self._subjects = context.broker.vhosts.default.subjects
        self._clock = context.clock
        self._counted = context.messages
        self._terms = terms
        self._session = session
        self._is_limited = not terms.principal.is_unlimited
        send = adapter.outbox.send
        shared = terms.version, self.uncommitted, send, partial(_refuse, adapter)
        self._pubacks = Answers(PacketType.PUBACK, *shared)
        self._pubrecs = Answers(PacketType.PUBREC, *shared)
        self._pubcomps = Answers(PacketType.PUBCOMP, *shared)
        self._exactly: dict[int, None] = {}  # QoS 2, from PUBLISH to PUBCOMP, by identifier.
        self.repeats = 0  # Repeated runs whose receivers are still being looked for.
        self._after_repeats: asyncio.Future[None] | None = None

    # --- PUBLISH

    async def publish_after_repeats(self, run: Publishes) -> None:
        """Publish the messages of a run behind those that are repeated, not to overtake them."""
        while self.repeats:
            self._after_repeats = asyncio.get_running_loop().create_future()
            await self._after_repeats
        self.publish(run)

    def stop(self) -> None:
        """Publish nothing more: the connection is over, and the client will say it again."""
        if self._after_repeats is not None:
            self._after_repeats.cancel()

    def repeat_ended(self) -> None:
        """Note that a repeated run is stored wherever it belongs, or has failed."""
        self.repeats -= 1
        waiting = self._after_repeats
        if not self.repeats and waiting is not None and not waiting.done():
            waiting.set_result(None)

    def publish(self, run: Publishes) -> None:
        """Publish the messages of a run. Raises a PeerError."""
        self._counted.published += len(run.messages)
        if run.qos == 0:
            denied, messages = self._denied(run.messages), run.messages
            if denied:
                messages = [message for message in messages if id(message[0]) not in denied]
            if messages:
                is_shared = len(messages) > 1 and not denied and not run.is_retained
                encoded = _as_they_came(run) if is_shared else None
                self._send(messages, None, is_retained=run.is_retained, encoded=encoded)
            return
        if run.version == V5:
            waiting = self._pubacks.count + len(self._exactly) + len(run.ids)
            if waiting > mqtt_limits.RECEIVE_MAXIMUM:
                text = f"{waiting} messages that are not answered"
                raise MqttError(Reason.RECEIVE_MAXIMUM_EXCEEDED, text)
        if run.qos == 1:
            self._publish_acknowledged(run)
        else:
            self._publish_exactly(run)

    def _publish_acknowledged(self, run: Publishes) -> None:
        messages, ids = run.messages, run.ids
        denied = self._denied(messages)
        if not denied:
            self._send(messages, self._pubacks.expect(ids), is_retained=run.is_retained)
            return
        for message, packet_id in zip(messages, ids, strict=True):
            answer = self._pubacks.expect([packet_id])
            if id(message[0]) in denied:
                self._deny(answer, message[0])
            else:
                self._send([message], answer, is_retained=run.is_retained)

    def _publish_exactly(self, run: Publishes) -> None:
        """Publish messages of QoS 2 that were not published before, those in a row together."""
        denied = self._denied(run.messages)
        session = self._session
        ids: list[int] = []
        messages: list[Message] = []

        def send(*, is_repeated: bool = False) -> None:
            if ids:
                answer = self._pubrecs.expect(ids.copy(), self._stored)
                some = messages.copy()
                ids.clear()
                messages.clear()
                self._send(some, answer, is_retained=run.is_retained, is_repeated=is_repeated)

        for message, packet_id in zip(run.messages, run.ids, strict=True):
            if id(message[0]) in denied:
                send()
                self._deny(self._pubrecs.expect([packet_id]), message[0])
                continue
            receipt = session.receipt(packet_id, is_repeat=run.is_repeated)
            self._exactly[packet_id] = None
            if receipt is Receipt.PENDING:
                send()
                self._answer_when_stored(packet_id)
                continue
            if receipt is Receipt.KNOWN:
                send()
                self._pubrecs.expect([packet_id]).know()
                continue
            if receipt is Receipt.PERHAPS:
                send()
            ids.append(packet_id)
            messages.append(self._identified(message, packet_id))
            if receipt is Receipt.PERHAPS:
                send(is_repeated=True)
        send()

    def _answer_when_stored(self, packet_id: int) -> None:
        """Answer a message that an earlier packet publishes, perhaps of an earlier connection."""
        answer = self._pubrecs.expect([packet_id])

        def stored(is_stored: bool) -> None:
            if is_stored:
                answer.know()
            else:
                self._exactly.pop(packet_id, None)
                answer.know(StorageError("the message was refused"))

        self._session.when_stored(packet_id, partial(self.uncommitted.guard, stored))

    def _identified(self, message: Message, packet_id: int) -> Message:
        if not self._session.is_durable:
            return message
        envelope, body = message
        # A message that was refused may be stored in some places, and its packet number is free:
        # the next one with that number must not be taken for it.
        told = crc32(body, crc32(envelope.subject.encode("utf-8", "surrogateescape")))
        identity = self._session.identity(packet_id) + told.to_bytes(4, "big")
        return envelope.with_head(with_identity(envelope.head, identity)), body

    def _stored(self, answer: Answer) -> None:
        """Note that messages of QoS 2 are committed, or have failed."""
        reasons = answer.reasons or {}
        for place, packet_id in enumerate(answer.ids):
            if reasons.get(place, Reason.SUCCESS) >= FAILURE:
                self._exactly.pop(packet_id, None)
                self._session.refused(packet_id)
                self._subjects.look_again()
            else:
                self._session.stored(packet_id)

    def _send(
        self,
        messages: Sequence[Message],
        answer: Answer | None,
        *,
        is_retained: bool,
        is_repeated: bool = False,
        encoded: dict[object, bytes] | None = None,
    ) -> None:
        in_flight = InFlight(self.uncommitted) if answer is None else answer
        timing: Publication = in_flight
        if answer is not None and self._counted.answering.is_due:
            timing = timed(in_flight, self._counted.answering, self._clock)
        self.uncommitted.is_any = True
        if is_repeated:
            self.repeats += 1
            in_flight.on_end = self.repeat_ended
        nobody: Sequence[Message] | None = None
        try:
            if len(messages) == 1 and not is_retained and not is_repeated:
                nobody = self._subjects.publish_alone(messages, timing, self._session)
            if nobody is None:
                nobody = self._subjects.publish(
                    messages,
                    timing,
                    sender=self._session,
                    is_retained=is_retained,
                    is_repeated=is_repeated,
                    check=self._check if self._is_limited else None,
                    encoded=encoded,
                )
        except PeerError:
            if is_repeated:
                self.repeat_ended()
            raise
        except StorageError as error:
            if timing is not in_flight:
                timing.arrived(error)
            in_flight.arrived(error)
            return
        if nobody and answer is not None and self._terms.version == V5 and not is_repeated:
            answer.reasons = _places(messages, nobody)
        if timing is not in_flight:
            timing.arrived()
        in_flight.sent(messages)

    # --- PUBREL

    def release(self, ids: Sequence[int]) -> None:
        """Forget identifiers of QoS 2, and answer when that is committed."""
        for packet_id in ids:
            answer = self._pubcomps.expect([packet_id], self._completed)
            # Two have to arrive: the commit, and whether the identifier was known.
            answer.expect()
            is_known = self._session.released(packet_id, answer.arrived)
            if not is_known and self._terms.version == V5:
                answer.reasons = {0: Reason.PACKET_IDENTIFIER_NOT_FOUND}
            answer.arrived()

    def _completed(self, answer: Answer) -> None:
        for packet_id in answer.ids:
            self._exactly.pop(packet_id, None)

    # --- rights

    def _denied(self, messages: Sequence[Message]) -> dict[int, None]:
        """Return the envelopes that the client may not publish, by their identity.

        A message itself has none: a compiled tuple is made anew whenever it is looked at.
        """
        if len(messages) == 1 and not self._is_limited:  # Nearly always.
            envelope = messages[0][0]
            return {id(envelope): None} if envelope.subject.startswith(PRIVATE) else _NOTHING
        return {id(each): None for each in distinct(messages) if not self._may_publish(each)}

    def _may_publish(self, envelope: Envelope) -> bool:
        if envelope.subject.startswith(PRIVATE):
            return False
        return not self._is_limited or self._may_write(envelope.subject)

    def _may_write(self, subject: str) -> bool:
        return self._terms.principal.may(Operation.WRITE, ResourceKind.TOPIC, subject)

    def _deny(self, answer: Answer, envelope: Envelope) -> None:
        if self._terms.version == V5 or not envelope.subject.startswith(PRIVATE):
            answer.reasons = dict.fromkeys(range(len(answer.ids)), Reason.NOT_AUTHORIZED)
        answer.know()

    def _check(self, name: str) -> None:
        """Raise TopicDenied if the client may not write to a topic that its message lands in."""
        if not self._may_write(name):
            raise TopicDenied(f"no right to write to {name!r}")


def _refuse(adapter: MqttPeer, reason: Reason) -> None:
    adapter.end(MqttError(reason, "a message that could not be published"))


def _as_they_came(run: Publishes) -> dict[object, bytes] | None:
    """Return the packets of a run for those who get them as they are: most clients.

    None means: nobody gets them like that. A single message is encoded as fast.
    """
    packets = run.packets()
    if packets is None:
        return None
    is_5 = run.version == V5
    return {encoding_key(is_5, False): packets, encoding_key(is_5, True): packets}


def _places(messages: Sequence[Message], nobody: Sequence[Message]) -> dict[int, Reason]:
    """Return a reason for each message that nobody got, by its place."""
    if len(nobody) == len(messages):
        return dict.fromkeys(range(len(messages)), Reason.NO_MATCHING_SUBSCRIBERS)
    lost = {id(envelope): None for envelope in distinct(nobody)}
    return {
        place: Reason.NO_MATCHING_SUBSCRIBERS
        for place, (envelope, _) in enumerate(messages)
        if id(envelope) in lost
    }
