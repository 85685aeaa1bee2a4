"""Makes dead letters: the same message, with where, why and how often it became a dead letter.

A dead letter has one more entry in its list of deaths. The list has the newest death first, and
one entry with a count for each pair of queue and reason. How receivers see the list depends on
the message's format.

The list also prevents cycles: a message that comes back to a queue where it died before, and
that no consumer has rejected since, would go round for ever. So dead letters are made together
with the names of the queues that they must avoid.

Only the newest deaths are kept. If the list is full and has no rejection, the message is not
published again: a cycle could no longer be noticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from entrepot.broker.queue.message import Run
from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.message import Envelope, Message, distinct
from entrepot.core.properties import Death

EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"

_TIMES_MAX = 2**63 - 1


class Cause(NamedTuple):
    """Why messages of a queue die, and where their dead letters go."""

    queue: str
    reason: str
    time_ms: int
    exchange: str  # The dead letter exchange,
    subject: str | None  # and the subject. None means: the message's own.


class DeadLetters(NamedTuple):
    """Dead letters of neighbouring messages of a run, which must avoid the same queues."""

    places: slice  # The places of the messages in that run.
    run: Run
    avoided: Sequence[str]  # Queues that must not get them.

    @property
    def may_go(self) -> bool:
        """Return whether they may be published: not if a cycle could no longer be noticed."""
        return len(self.avoided) < limits.DEAD_LETTER_DEATHS_MAX


def dead_letters(run: Run, cause: Cause, faults: Faults) -> Iterator[DeadLetters]:
    """Make dead letters of a run's messages, in their order, grouped by the queues they avoid.

    A message for which that fails is left out: its queue keeps it leased, and tries again after
    the next start.
    """
    try:
        made = {id(each): _letter(each, cause) for each in distinct(run.messages)}
    except Exception as error:
        if len(run.messages) == 1:
            faults.caught(f"a message of queue {cause.queue} is set aside", error)
            return
        for place, message in enumerate(run.messages):  # Try them one by one: not all may fail.
            for alone in dead_letters(run._replace(messages=[message]), cause, faults):
                yield alone._replace(places=slice(place, place + 1))
        return
    pairs = ((made[id(envelope)], body) for envelope, body in run.messages)
    start = 0
    for avoided, group in groupby(pairs, lambda pair: pair[0][1]):
        messages: list[Message] = [(letter, body) for (letter, _), body in group]
        places = slice(start, start + len(messages))
        yield DeadLetters(places, Run(cause.time_ms, messages), avoided)
        start = places.stop


def _letter(envelope: Envelope, cause: Cause) -> tuple[Envelope, Sequence[str]]:
    """Return the envelope of a dead letter, and the queues that it must avoid."""
    found, head, handling = envelope.format, envelope.head, envelope.handling
    deaths = _with_newest(found.deaths(head), envelope, cause)[: limits.DEAD_LETTER_DEATHS_MAX]
    keeps_subject = cause.subject is None
    head = found.with_deaths(head, deaths, envelope.exchange, keeps_copies=keeps_subject)
    subject = envelope.subject if cause.subject is None else cause.subject
    letter = Envelope(cause.exchange, subject, head, found)
    copies = handling.copies if keeps_subject else ()
    # So that it need not be decoded again.
    letter.handling = handling._replace(ttl_ms=None, copies=copies)
    return letter, _avoided(deaths)


def _with_newest(before: Sequence[Death], envelope: Envelope, cause: Cause) -> list[Death]:
    """Return the deaths with a new one first, or with the count of the same one increased."""
    here = (cause.queue, cause.reason)
    rest = [each for each in before if (each.queue, each.reason) != here]
    same = next((each for each in before if (each.queue, each.reason) == here), None)
    if same is not None:
        return [same._replace(times=min(same.times + 1, _TIMES_MAX)), *rest]
    handling = envelope.handling
    newest = Death(
        cause.queue,
        cause.reason,
        time_ms=cause.time_ms,
        exchange=envelope.exchange,
        subjects=(envelope.subject, *handling.copies),
        ttl_ms=handling.ttl_ms,
    )
    return [newest, *rest]


def _avoided(deaths: Sequence[Death]) -> Sequence[str]:
    """Return the queues of all deaths since a consumer last rejected the message."""
    names: list[str] = []
    for each in deaths:
        if each.reason == REJECTED:
            break
        names.append(each.queue)
    return names
