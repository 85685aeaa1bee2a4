"""Where a message goes that is published on a subject, besides to the queues that are bound to it.

It lands in the queue or topic of its own name, if there is one, and goes to all who listen to a
filter that matches. A route is found once for each name, and is the same object until something
about it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from entrepot.broker.queue.queue import Queue
from entrepot.broker.router.router import Route, Router
from entrepot.broker.subject.apart import Apart
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.name import is_short, landing_names
from entrepot.core import limits
from entrepot.core.errors import PeerError


class _Known:
    """What is known of one subject."""

    __slots__ = ("bound", "landing", "listeners", "only", "route", "version")

    def __init__(
        self, bound: Route, listeners: tuple[Listener, ...], route: Route, landing: str | None
    ) -> None:
        self.bound = bound  # By bindings.
        self.listeners = listeners
        self.route = route  # Both together, and where it lands.
        self.landing = landing  # Where it lands, if the sender may write there.
        # Those who get what is published there, if they all listen and are few; otherwise None.
        self.only: tuple[Listener, ...] | None = None
        self.version = -1  # Of router and listeners together, when `only` was found.


class SubjectRoutes:
    def __init__(
        self,
        exchange: str,
        router: Router,
        queues: Mapping[str, Queue],
        listeners: Listeners[Listener],
        apart: Apart | None = None,
    ) -> None:
        """`apart` refuses some subjects. None means: it refuses none."""
        self.exchange = exchange  # Whose keys are subjects.
        self._router = router
        self._queues = queues
        self._listeners = listeners
        self._apart = apart
        self._known: dict[str, _Known] = {}
        self._names_version = -1  # Of the router's queues, when `_known` was emptied.

    def heard_version(self) -> int:
        """Return a number that is greater after each change of bindings, names or listeners; -1 if
        where a message goes depends on more than its subject."""
        router = self._router
        return (
            -1 if router.reads_headers(self.exchange) else router.version + self._listeners.version
        )

    def only_listeners(self, subject: str) -> tuple[Listener, ...] | None:
        """Return those who get a message without copies on this subject, if all of them listen.

        None means: it may also go elsewhere, or to very many, and `route` has to be asked.
        """
        if self._apart is not None:
            self._apart.check(subject)
        known = self._known.get(subject)
        if known is None or known.version != self._router.version + self._listeners.version:
            return self._find_only(subject)
        return known.only

    def _find_only(self, subject: str) -> tuple[Listener, ...] | None:
        router = self._router
        if router.reads_headers(self.exchange):
            return None
        queues, held, listeners = self.route(subject, router.route(self.exchange, subject), None)
        known = self._known.get(subject)
        if known is None:  # It is too long.
            return None
        is_few = len(listeners) <= limits.DESTINATIONS_AT_ONCE_MAX
        known.only = listeners if is_few and not queues and not held else None
        known.version = router.version + self._listeners.version
        return known.only

    def route(self, subject: str, bound: Route, check: Callable[[str], None] | None) -> Route:
        """Return where a message on this subject goes; `bound` is what bindings lead to.

        `check` is asked whether the topic or queue of that name may be written to.
        """
        if self._apart is not None:
            self._apart.check(subject)
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
