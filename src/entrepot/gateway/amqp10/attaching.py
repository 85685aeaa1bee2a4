"""Attach: which queue a link is about, and how the link is answered.

A queue for a temporary address is made when a client attaches with `dynamic`, and deleted when
it closes that link. A receiver may have a selector, a filter that JMS's clients ask for: what it
does not select stays in a queue that others read, too, and is dropped from a queue of its own. With
the distribution mode `copy` a receiver of a queue browses: it gets copies.

A receiver from a topic that is to be kept (`expiry-policy: never`) has a
queue that is found again by the client's container and the link's name; closing the link deletes
it, detaching leaves it. That is how JMS's durable subscriptions work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.selection import Everything, Selection
from entrepot.broker.selector import Selector
from entrepot.core.errors import InvalidSelector
from entrepot.gateway.amqp10 import declaring
from entrepot.gateway.amqp10.address import Kind, is_url, parse
from entrepot.gateway.amqp10.receiver import ReceiverLink
from entrepot.gateway.amqp10.sender import SenderLink, check_target
from entrepot.gateway.amqp10.service_bus import AnswerLink, RequestLink, is_node
from entrepot.gateway.amqp10.transaction import CoordinatorLink
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.performatives import Attach, Coordinator, Source, Target
from entrepot.wire.amqp10.types import Described

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.session import Session

_SETTLED = 1  # Of a link's sender: every message is settled when it is sent.
_SELECTOR = ("apache.org:selector-filter:string", 0x0000_468C_0000_0004)  # Its descriptors.
_COPY = "copy"
_NEVER = "never"
_OUTCOMES = (
    "amqp:accepted:list",
    "amqp:rejected:list",
    "amqp:released:list",
    "amqp:modified:list",
)

OnClosed = Callable[[], Awaitable[None]]
AnyLink = SenderLink | ReceiverLink | AnswerLink


async def attach(session: Session, wanted: Attach) -> tuple[AnyLink, Attach]:
    """Make a link and the answer to its attach. Raises PeerError."""
    if wanted.is_receiver:
        source = wanted.source
        if isinstance(source, Source) and source.address and is_node(source.address):
            return _attach_answers(session, wanted, source.address)
        return await _attach_receiver(session, wanted)
    return await _attach_sender(session, wanted)


async def _attach_sender(session: Session, wanted: Attach) -> tuple[SenderLink, Attach]:
    connection, target = session.connection, wanted.target
    bytes_max = connection.context.message_bytes_max
    answer = Attach(
        wanted.name,
        wanted.handle,
        True,
        wanted.snd_settle_mode,
        source=wanted.source,
        target=target,
        max_message_size=bytes_max,
    )
    if isinstance(target, Coordinator):
        return CoordinatorLink(session, wanted.handle, wanted.name), answer
    if not isinstance(target, Target):
        raise _wrong("a link without a target")
    if target.address is not None and is_node(target.address):
        return RequestLink(session, wanted.handle, wanted.name, target.address), answer
    on_closed: OnClosed | None = None
    if target.dynamic:
        queue = await declaring.temporary_queue(connection)
        on_closed = partial(declaring.delete, connection, queue.name)
        target = target._replace(address=declaring.address_of(queue))
        answer = answer._replace(target=target)
    if target.address is None:
        return SenderLink(session, wanted.handle, wanted.name, None), answer
    address = parse(target.address, target.capabilities)
    check_target(connection, address)
    vhost = connection.vhost
    is_elsewhere = vhost.stream(address.key) is not None or vhost.router.is_elsewhere(address.key)
    if address.kind is Kind.QUEUE and not is_elsewhere:
        await declaring.queue_named(connection, address)
    return SenderLink(session, wanted.handle, wanted.name, address, on_closed), answer


def _attach_answers(session: Session, wanted: Attach, node: str) -> tuple[AnswerLink, Attach]:
    answer = Attach(
        wanted.name,
        wanted.handle,
        False,
        _SETTLED,
        source=wanted.source,
        target=wanted.target,
        initial_delivery_count=0,
    )
    return AnswerLink(session, wanted.handle, node), answer


async def _attach_receiver(session: Session, wanted: Attach) -> tuple[ReceiverLink, Attach]:
    connection, source = session.connection, wanted.source
    if source is not None and not isinstance(source, Source):
        raise _wrong("a link without a source")
    selector = None if source is None else _selector(source)
    queue, source, on_closed = await _source(session, wanted.name, source)
    connection.check(Operation.READ, ResourceKind.QUEUE, queue.name)
    queue.check_up()
    is_own = on_closed is not None and not source.dynamic
    browses = source.distribution_mode == _COPY and not is_own
    selection = None
    if selector is not None or browses:
        selection = Selection(selector or Everything(), drops_others=is_own, browses=browses)
    link = ReceiverLink(
        session,
        wanted.handle,
        wanted.name,
        queue,
        is_settled=wanted.snd_settle_mode == _SETTLED,
        selection=selection,
        on_closed=on_closed,
        is_service_bus=is_url(source.address),
    )
    answer = Attach(
        wanted.name,
        wanted.handle,
        False,
        wanted.snd_settle_mode,
        source=source._replace(outcomes=_OUTCOMES, default_outcome=None),
        target=wanted.target,
        initial_delivery_count=0,
    )
    return link, answer


async def _source(
    session: Session, name: str, source: Source | None
) -> tuple[Queue, Source, OnClosed | None]:
    """Return the queue that a receiver reads, its source as it is, and what closing deletes."""
    connection = session.connection
    kept_name = declaring.subscription_name(connection.terms.container, name)
    if source is None:  # The client asks for a subscription that it has, to end it.
        found = declaring.find(connection, kept_name)
        if found is None:
            text = f"no subscription '{name[:300]}'"
            raise Amqp10Error(Condition.NOT_FOUND, text, Scope.LINK)
        kept = Source(declaring.address_of(found), 2, _NEVER)
        return found, kept, partial(declaring.delete, connection, kept_name)
    if source.dynamic:
        queue = await declaring.temporary_queue(connection)
        made = source._replace(address=declaring.address_of(queue))
        return queue, made, partial(declaring.delete, connection, queue.name)
    if source.address is None:
        raise _wrong("a source without an address")
    address = parse(source.address, source.capabilities)
    if address.kind is not Kind.EXCHANGE:
        return await declaring.consumed_queue(connection, address), source, None
    is_kept = source.durable > 0 and source.expiry_policy == _NEVER
    queue = await declaring.subscription_queue(connection, address, kept_name if is_kept else None)
    return queue, source, partial(declaring.delete, connection, queue.name)


def _selector(source: Source) -> Selector | None:
    """Return the selector among the source's filters. Raises Amqp10Error for any other filter:
    it would change which messages come."""
    found = None
    for name, each in (source.filter or {}).items():
        if not isinstance(each, Described) or each.descriptor not in _SELECTOR:
            text = f"the filter {str(name)[:100]} is not supported"
            raise Amqp10Error(Condition.NOT_IMPLEMENTED, text, Scope.LINK)
        if not isinstance(each.value, str) or found is not None:
            raise _wrong("a selector that is no text, or two of them")
        try:
            found = Selector(each.value)
        except InvalidSelector as error:
            raise _wrong(f"invalid selector, {error}") from None
    return found


def _wrong(text: str) -> Amqp10Error:
    return Amqp10Error(Condition.INVALID_FIELD, text, Scope.LINK)
