"""Where a message goes that is published on a subject, besides to the queues that are bound to it.

It lands in the queue or topic of its own name, if there is one, and goes to all who listen to a
filter that matches. A route is found once for each name, and is the same object until something
about it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.router import Route, Router
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.name import is_short, landing_names
from entrepot.core import limits
from entrepot.core.errors import PeerError


class _Known(NamedTuple):
    bound: Route  # By bindings.
    listeners: tuple[Listener, ...]
    route: Route  # Both together, and where it lands.
    landing: str | None  # Where it lands, if the sender may write there.


class SubjectRoutes:
    def __init__(
        self,
        exchange: str,
        router: Router,
        queues: Mapping[str, Queue],
        listeners: Listeners[Listener],
    ) -> None:
        self.exchange = exchange  # Whose keys are subjects.
        self._router = router
        self._queues = queues
        self._listeners = listeners
        self._known: dict[str, _Known] = {}
        self._names_version = -1  # Of the router's queues, when `_known` was emptied.

    def route(self, subject: str, bound: Route, check: Callable[[str], None] | None) -> Route:
        """Return where a message on this subject goes; `bound` is what bindings lead to.

        `check` is asked whether the topic or queue of that name may be written to.
        """
        if self._names_version != self._router.names_version:
            self._names_version = self._router.names_version
            self._known.clear()
        listeners = self._listeners.of(subject)
        known = self._known.get(subject)
        if known is None or known.bound is not bound or known.listeners is not listeners:
            known = self._find(subject, bound, listeners)
        landing = known.landing
        if landing is not None and check is not None:
            try:
                check(landing)
            except PeerError:
                return _joined(known.bound, listeners)
        return known.route

    def _find(self, subject: str, bound: Route, listeners: tuple[Listener, ...]) -> _Known:
        landing: str | None = None
        joined = bound
        if not is_short(subject):  # Not every protocol could tell it.
            joined = Route(())
        else:
            place = self._place(subject)
            if place is not None and place not in bound.queues:
                joined = bound._replace(queues=(*bound.queues, place))
                landing = place
        known = _Known(bound, listeners, _joined(joined, listeners), landing)
        if len(subject) <= limits.SUBJECT_REMEMBERED_CHARACTERS_MAX:
            if len(self._known) >= limits.SUBJECTS_REMEMBERED_MAX:
                self._known.clear()
            self._known[subject] = known
        return known

    def _place(self, subject: str) -> str | None:
        """Return the queue or topic in which the subject lands."""
        for name in landing_names(subject):
            if self._router.has_queue(name):
                queue = self._queues.get(name)
                return name if queue is None or queue.owner is None else None
        return None


def _joined(route: Route, listeners: tuple[Listener, ...]) -> Route:
    if not listeners:
        return route
    if not route.listeners:
        return route._replace(listeners=listeners)
    return route._replace(listeners=tuple(dict.fromkeys((*route.listeners, *listeners))))
