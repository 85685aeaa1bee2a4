"""A message's own time or its queue's, whichever is less."""

import pytest

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.expiry import expiry_ms, has_own_times
from entrepot.broker.queue.message import Run
from tests.unit.broker.queue.bed import READER, envelope, properties

PLAIN, OWN = (envelope(), b""), (envelope(properties(expiration="50")), b"")


@pytest.mark.parametrize(
    ("place", "ttl_ms", "expected"),
    [(0, None, NEVER), (0, 70, 1_070), (1, None, 1_050), (1, 70, 1_050), (1, 0, 1_000)],
)
def test_expiry(place: int, ttl_ms: int | None, expected: int) -> None:
    assert expiry_ms(Run(1_000, [PLAIN, OWN]), place, ttl_ms, READER) == expected


def test_whether_any_brings_a_time() -> None:
    assert not has_own_times(Run(0, [PLAIN, PLAIN]), READER)
    assert has_own_times(Run(0, [PLAIN, OWN]), READER)
