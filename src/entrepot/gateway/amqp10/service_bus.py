"""What clients of Azure Service Bus say beside AMQP 1.0.

They write an address as a URL, `amqps://host/orders`, and by that they are known. Before anything
else they send a token to the node `$cbs` (claims-based security). Their dead letters are in
`orders/$DeadLetterQueue`, and what AMQP has no word for they ask of `orders/$management`.

Those two nodes answer requests: a client attaches a link for its requests and one for the answers
to the same node, on one session. The token is accepted from everybody who is logged in, and says
nothing: such clients log in as ANONYMOUS, which is offered only where nobody is asked for a
password. Of the requests to a queue, to renew a lock is the only one that is granted, for nothing
is locked for a time here: a message stays with its receiver as long as the link is attached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.gateway.amqp10.sender import ACCEPTED, Delivery, SenderLink
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10 import message as wire
from entrepot.wire.amqp10 import types
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.frames import frame
from entrepot.wire.amqp10.message import APPLICATION_PROPERTIES, VALUE
from entrepot.wire.amqp10.performatives import Flow, Transfer
from entrepot.wire.amqp10.types import Array, Int, Symbol, Timestamp, Value

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.session import Session

CBS = "$cbs"
_MANAGEMENT = "/$management"
_RENEW = "com.microsoft:renew-lock"
_LOCK_MS = 60_000  # How long a lock is said to be renewed for.
_TIMESTAMP = b"\x83"  # Its constructor.
_ANSWERS_MAX = 100  # That wait for credit.
_NUMBERS = 2**32
_ACCEPTED, _REFUSED = 202, 501  # Statuses, as in HTTP.


def is_node(address: str) -> bool:
    """Return whether an address is one of a node that answers requests."""
    return address == CBS or address.endswith(_MANAGEMENT)


class AnswerLink:
    """The link on which a client gets answers. They are sent as settled."""

    def __init__(self, session: Session, handle: int, node: str) -> None:
        self.session = session
        self.handle = handle
        self.node = node
        self._credit = 0
        self._count = 0
        self._waiting: deque[bytes] = deque()

    def start(self) -> None:
        """Wait for credit."""

    def answer(self, message: bytes) -> None:
        if len(self._waiting) >= _ANSWERS_MAX:
            text = "answers that the client does not take"
            raise Amqp10Error(Condition.LIMIT_EXCEEDED, text, Scope.LINK)
        self._waiting.append(message)
        self._send_waiting()

    def flow(self, flow: Flow) -> None:
        """Take the client's credit."""
        if flow.link_credit is not None:
            behind = (self._count - (flow.delivery_count or 0)) % _NUMBERS
            self._credit = max(0, flow.link_credit - behind) if behind < _NUMBERS // 2 else 0
            self._send_waiting()
        if flow.drain:
            self._count += self._credit
            self._credit = 0
        if flow.echo or flow.drain:
            self.session.send_flow(self.handle, self._count, self._credit, 0, drain=flow.drain)

    def _send_waiting(self) -> None:
        while self._waiting and self._credit > 0:
            message = self._waiting.popleft()
            self._credit -= 1
            self._count += 1
            number = self.session.next_deliveries(1) % _NUMBERS
            tag = number.to_bytes(4, "big")
            transfer = Transfer(self.handle, number, tag, 0, settled=True)
            self.session.send_transfers([[frame(self.session.channel, transfer, message)]], 1)

    def stop(self) -> None:
        self._waiting.clear()

    def release(self) -> None:
        """Do nothing: all that is sent is settled."""

    async def detached(self, *, is_closed: bool) -> None:
        """Do nothing: the link has made nothing."""


class RequestLink(SenderLink):
    """The link on which a client sends requests to a node."""

    def __init__(self, session: Session, handle: int, name: str, node: str) -> None:
        super().__init__(session, handle, name, None)
        self._node = node

    def serve(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            parts = wire.split(b"".join(delivery.chunks))
            _, properties, asked = wire.read_middle(parts.middle)
            link = self._answer_link()
            if link is not None:
                now_ms = self.session.connection.context.clock.now_ms()
                told, body = _answer(self._node, asked.get("operation"), _value_of(parts), now_ms)
                link.answer(_message(properties.message_id, told, body))
            if not delivery.is_settled:
                self.session.settle(delivery.number, ACCEPTED)

    def _answer_link(self) -> AnswerLink | None:
        for link in self.session.links.values():
            if isinstance(link, AnswerLink) and link.node == self._node:
                return link
        return None


def _answer(
    node: str, operation: Value, asked: Value, now_ms: int
) -> tuple[dict[Value, Value], Value]:
    """Return the answer to a request: application properties, and a body."""
    if node == CBS:
        if operation == "put-token":
            return {"status-code": Int(_ACCEPTED), "status-description": "Accepted"}, ""
        told = {"status-code": Int(_REFUSED), "status-description": "only put-token is known"}
        return {**told}, ""
    tokens = asked.get("lock-tokens") if isinstance(asked, dict) else None
    if operation == _RENEW and isinstance(tokens, list):
        until: list[Value] = [Timestamp(now_ms + _LOCK_MS)] * len(tokens)
        return {"statusCode": Int(200)}, {"expirations": Array(until, _TIMESTAMP)}
    return {
        "statusCode": Int(_REFUSED),
        "statusDescription": f"{str(operation)[:100]} is not supported",
        "errorCondition": Symbol(Condition.NOT_IMPLEMENTED.value),
    }, None


def _value_of(parts: wire.Parts) -> Value:
    """Return the body of a message that is one value; None for any other."""
    if parts.body_kind.section:
        return None
    found = types.decode(parts.body)
    return found.value if isinstance(found, types.Described) else None


def _message(id: Value, told: dict[Value, Value], body: Value) -> bytes:
    properties = wire.write_properties(wire.Properties(correlation_id=id))
    value = types.described(VALUE, types.encode(body))
    return properties + wire.write_map(APPLICATION_PROPERTIES, told) + value


assert _ANSWERS_MAX <= amqp_limits.CREDIT
