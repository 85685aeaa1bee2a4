"""What a message carries with it that died: where, why, and how often.

A dead letter is the message again, with one more entry in its header `x-death`: newest
first, one for each pair of queue and reason, with a count. The header is what RabbitMQ
writes, so that applications that look into it find what they know.

It also ends circles: a message that came back to a queue where it died before, without
anybody having rejected it on the way, would go round for ever. Where that is so is told
with the letters, as the queues that they must avoid.

Only the newest deaths are told. A message that has died as often, and was never rejected, goes
no further: whether it goes round could not be said any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from entrepot.broker.queue.message import PropertyReader, Run
from entrepot.core import limits
from entrepot.core.envelope import Envelope, Message, distinct

EXPIRED, REJECTED, MAXLEN, DELIVERY_LIMIT = "expired", "rejected", "maxlen", "delivery_limit"

_DEATHS = "x-death"
_COPIES = "CC"  # Further routing keys.
_COUNT_MAX = 2**63 - 1  # A publisher may have written it.


class Death(NamedTuple):
    queue: str
    reason: str
    time_ms: int
    exchange: str  # The dead letter exchange,
    key: str | None  # and the key; None: the message's own.


class Letters(NamedTuple):
    run: Run
    avoided: Sequence[str]  # Queues where they must not go.

    @property
    def may_go(self) -> bool:
        return len(self.avoided) < limits.DEAD_LETTER_DEATHS_MAX


def letters(run: Run, death: Death, reader: PropertyReader) -> Iterator[Letters]:
    """The run's messages as dead letters, in their order, by where they may go."""
    made = {each: _letter(each, death, reader) for each in distinct(run.messages)}
    pairs = ((made[envelope], body) for envelope, body in run.messages)
    for avoided, group in groupby(pairs, lambda pair: pair[0][1]):
        messages: list[Message] = [(letter, body) for (letter, _), body in group]
        yield Letters(Run(death.time_ms, messages), avoided)


def _letter(
    envelope: Envelope, death: Death, reader: PropertyReader
) -> tuple[Envelope, Sequence[str]]:
    exchange, key, properties = envelope
    headers = dict(reader.headers(properties))
    before = _deaths(headers)
    deaths = _recorded(before, envelope, headers, death)[: limits.DEAD_LETTER_DEATHS_MAX]
    ttl_ms = reader.facts(properties).ttl_ms
    if ttl_ms is not None and deaths[0].get("count") == 1:
        deaths[0] = {"original-expiration": str(ttl_ms), **deaths[0]}
    headers[_DEATHS] = deaths
    facts = {"reason": death.reason, "queue": death.queue, "exchange": exchange}
    for name, value in facts.items():
        if not before:
            headers[f"x-first-death-{name}"] = value
        headers[f"x-last-death-{name}"] = value
    if death.key is not None:
        headers.pop(_COPIES, None)  # They were the old key's; nobody routes by them again.
        key = death.key
    properties = reader.with_headers(properties, headers, expires=False)
    return Envelope(death.exchange, key, properties), _avoided(deaths)


def _deaths(headers: Mapping[str, object]) -> list[Mapping[str, object]]:
    """A publisher may have written the header: what cannot be ours is left out."""
    found = headers.get(_DEATHS)
    if not isinstance(found, list | tuple):
        return []
    return [
        each
        for each in found
        if isinstance(each, Mapping)
        and isinstance(each.get("queue"), str)
        and isinstance(each.get("reason"), str)
    ]


def _recorded(
    before: Sequence[Mapping[str, object]],
    envelope: Envelope,
    headers: Mapping[str, object],
    death: Death,
) -> list[Mapping[str, object]]:
    here = (death.queue, death.reason)
    place = itemgetter("queue", "reason")
    rest = [each for each in before if place(each) != here]
    same = next((each for each in before if place(each) == here), None)
    if same is not None:
        count = same.get("count")
        count = min(count + 1, _COUNT_MAX) if isinstance(count, int) else 1
        return [{**same, "count": count}, *rest]
    copies = headers.get(_COPIES)
    copies = copies if isinstance(copies, list | tuple) else ()
    newest = {
        "count": 1,
        "reason": death.reason,
        "queue": death.queue,
        "time": datetime.fromtimestamp(death.time_ms // 1_000, UTC),
        "exchange": envelope.exchange,
        "routing-keys": [envelope.routing_key, *(key for key in copies if isinstance(key, str))],
    }
    return [newest, *rest]


def _avoided(deaths: Sequence[Mapping[str, object]]) -> Sequence[str]:
    """The queues of all deaths since somebody rejected the message."""
    names: list[str] = []
    for each in deaths:
        if each["reason"] == REJECTED:
            break
        names.append(str(each["queue"]))
    return names
