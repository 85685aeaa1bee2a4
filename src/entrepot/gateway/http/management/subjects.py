"""Sessions and retained messages of the first virtual host, where subjects are.

Administrators and monitors see all sessions, others their own; administrators delete all of them,
others their own. Retained messages are read and deleted by those who may read and write the topics
of their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.served_partition import heard
from entrepot.broker.session.session import Session
from entrepot.broker.subject.filter import Filter, check_path_filter, of_path_filter
from entrepot.broker.subject.name import to_path
from entrepot.broker.subject.retained import RetainedMessage
from entrepot.core.steps import Steps
from entrepot.gateway.http.management.call import Call, denied
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]

_EVERYTHING = "#"
_STEP_MESSAGES = 100


async def list_sessions(call: Call) -> list[Row]:
    return await call.in_turns(map(describe, visible(call)))


def visible(call: Call) -> Iterator[Session]:
    """Yield the sessions that the user may see."""
    sessions = call.broker.vhosts.default.sessions
    return (each for each in sessions if _is_visible(call, each))


def show_session(call: Call) -> Row:
    session = _find(call)
    details = [
        {"filter": text, "qos": each.quality, "no_local": each.no_local}
        for text, each in session.subscriptions.items()
    ]
    return describe(session) | {"subscription_details": details}


async def delete_session(call: Call) -> None:
    session = _find(call)
    if not call.principal.is_administrator and session.user != call.user:
        raise denied("Not administrator user")
    if not await call.broker.vhosts.default.sessions.delete(session.client_id):
        raise HttpError(404, "Not Found")


def _find(call: Call) -> Session:
    found = call.broker.vhosts.default.sessions.find(call.path["client_id"])
    if found is None or not _is_visible(call, found):
        raise HttpError(404, f"there is no session {call.path['client_id']!r}")
    return found


def _is_visible(call: Call, session: Session) -> bool:
    return call.sees_all or session.user == call.user


def describe(session: Session) -> Row:
    queue = session.queue
    is_there = queue is not None and not queue.is_gone
    return {
        "client_id": session.client_id,
        "user": session.user,
        "connected": session.receiver is not None,
        "durable": session.is_durable,
        "expiry_ms": session.expiry_ms,
        "ended_ms": session.ended_ms,
        "subscriptions": len(session.subscriptions),
        "messages_ready": queue.ready_count if queue is not None and is_there else 0,
        "messages_unacknowledged": queue.unacked_count if queue is not None and is_there else 0,
    }


def everything() -> Filter:
    """Return the filter that all topics match."""
    return of_path_filter(_EVERYTHING)


def _filter(call: Call) -> Filter:
    """Return the filter of the query. Raises InvalidName."""
    text = call.query.get("filter", _EVERYTHING)
    check_path_filter(text)
    return of_path_filter(text)


async def list_retained(call: Call) -> list[Row]:
    retained = call.broker.vhosts.default.retained
    found = await call.broker.turns.run(retained.matching(_filter(call)))
    return await call.in_turns(_listed(call, found))


def _listed(call: Call, found: Iterable[RetainedMessage]) -> Iterable[Row]:
    return (
        {
            "topic": to_path(each.subject),
            "bytes": len(each.message[1]),
            "published_ms": each.time_ms,
        }
        for each in found
        if call.principal.may(Operation.READ, ResourceKind.TOPIC, each.subject)
    )


async def clear_retained(call: Call) -> Row:
    if "filter" not in call.query:
        raise HttpError(400, "the query says which: filter=#, for all")
    count = await call.broker.turns.run(_clear(call, _filter(call)))
    if count:
        await heard(call.broker.vhosts.default.retained.when_committed)
    return {"deleted": count}


def _clear(call: Call, filter: Filter) -> Steps[int]:
    retained = call.broker.vhosts.default.retained
    found = yield from retained.matching(filter)
    count = 0
    for number, each in enumerate(found):
        if call.principal.may(Operation.WRITE, ResourceKind.TOPIC, each.subject):
            count += retained.clear(each.subject)
        if number % _STEP_MESSAGES == 0:
            yield
    return count
