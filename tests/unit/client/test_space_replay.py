"""A tuple space's records, read again: also when compaction has left only some of them."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from entrepot.client.messaging.spaces import Space
from entrepot.client.messaging.topics import Entry, TopicVerbs

WRITE = (b"t", b'["job",1]', {"space-expires-ms": b"10000"})
TAKE = (b"t", b"", {"space-taker": b"me"})


def renewal(was: int, until: int) -> tuple[bytes, bytes, dict[str, bytes]]:
    headers = {"space-renews": b"t", "space-expired-ms": str(was).encode()}
    return b"lease/t", b"{}", {**headers, "space-expires-ms": str(until).encode()}


@pytest.mark.parametrize(
    ("records", "is_taken"),
    [
        ([(WRITE, 0), (TAKE, 9_000)], True),
        ([(WRITE, 0), (TAKE, 10_000)], False),
        ([(WRITE, 0), (renewal(10_000, 20_000), 9_000), (TAKE, 19_000)], True),
        ([(WRITE, 0), (renewal(10_000, 20_000), 10_000), (TAKE, 19_000)], False),
        # Of two renewals the topic keeps the last.
        ([(WRITE, 0), (renewal(20_000, 30_000), 15_000), (TAKE, 29_000)], True),
        # One that shortens changes nothing; nor does one of a tuple that is gone.
        ([(WRITE, 0), (renewal(10_000, 5_000), 4_000), (TAKE, 9_000)], True),
        ([(WRITE, 0), (TAKE, 1), (renewal(10_000, 90_000), 2), (TAKE, 3)], False),
        ([(WRITE, 0), ((b"lease/t", b"", {}), 1), (TAKE, 3)], True),
        ([(WRITE, 0), ((b"lease/t", b"x", {"space-renews": b"t"}), 1), (TAKE, 3)], True),
    ],
)
def test_leases(records: list[tuple[Any, int]], is_taken: bool) -> None:
    async def replay() -> object:
        space = Space(cast("TopicVerbs", None), "replayed", 1)
        outcome: object = None
        for offset, ((key, body, headers), timestamp_ms) in enumerate(records):
            outcome = space._apply(Entry("t", 0, offset, key, body, headers, timestamp_ms))
        return outcome

    assert (asyncio.run(replay()) is not None) is is_taken
