"""The headers of dead letters, as RabbitMQ writes them.

`x-death` is a list with an entry for each pair of queue and reason, the newest first; queue,
reason and exchange of the first and the last death are in headers of their own. Applications
that read these headers from RabbitMQ can read them here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from entrepot.core.properties import Death

DEATHS = "x-death"
_TIMES_MAX = 2**63 - 1  # A publisher may have written a larger count.


def read_deaths(headers: Mapping[str, object]) -> list[Death]:
    """Return the deaths in the headers, without entries that the broker cannot have written."""
    found = headers.get(DEATHS)
    if not isinstance(found, list | tuple):
        return []
    return [
        _death(each)
        for each in found
        if isinstance(each, Mapping)
        and isinstance(each.get("queue"), str)
        and isinstance(each.get("reason"), str)
    ]


def death_headers(deaths: Sequence[Death], exchange: str, *, is_first: bool) -> dict[str, object]:
    """Return the headers for these deaths, at least one, the newest first.

    `exchange` is where the message was published to before the newest one. `is_first` means: the
    newest death is also the first.
    """
    newest = deaths[0]
    facts = {"reason": newest.reason, "queue": newest.queue, "exchange": exchange}
    headers: dict[str, object] = {DEATHS: [_entry(each) for each in deaths]}
    for name, value in facts.items():
        if is_first:
            headers[f"x-first-death-{name}"] = value
        headers[f"x-last-death-{name}"] = value
    return headers


def _death(entry: Mapping[str, object]) -> Death:
    count, time, exchange = entry.get("count"), entry.get("time"), entry.get("exchange")
    keys, expiration = entry.get("routing-keys"), entry.get("original-expiration")
    return Death(
        str(entry["queue"]),
        str(entry["reason"]),
        min(int(count), _TIMES_MAX) if isinstance(count, int) else 0,
        _time_ms(time),
        exchange if isinstance(exchange, str) else None,
        tuple(each for each in keys if isinstance(each, str)) if isinstance(keys, list) else (),
        int(expiration) if isinstance(expiration, str) and _is_number(expiration) else None,
    )


def _time_ms(time: object) -> int | None:
    if isinstance(time, datetime):
        return int(time.timestamp()) * 1_000
    return int(time) * 1_000 if isinstance(time, int) else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _entry(death: Death) -> dict[str, object]:
    entry: dict[str, object] = {}
    if death.ttl_ms is not None:
        entry["original-expiration"] = str(death.ttl_ms)
    entry |= {"count": death.times, "reason": death.reason, "queue": death.queue}
    if death.time_ms is not None:
        entry["time"] = datetime.fromtimestamp(death.time_ms // 1_000, UTC)
    if death.exchange is not None:
        entry["exchange"] = death.exchange
        entry["routing-keys"] = [*death.subjects]
    return entry
