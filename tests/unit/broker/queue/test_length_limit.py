"""What is too much for a queue that refuses."""

import pytest

from entrepot.broker.queue.length_limit import LengthLimit
from entrepot.broker.queue.settings import QueueSettings, WhenFull
from tests.unit.broker.queue.bed import envelope

SIZES = (3, 1, 4, 1, 5)
MESSAGES = [(envelope(), b"x" * size) for size in SIZES]


@pytest.mark.parametrize(
    ("length", "size", "waiting", "waiting_bytes", "room", "refused"),
    [
        (9, None, 0, 0, 0, []),
        (3, None, 0, 0, 0, [3, 4]),
        (3, None, 2, 0, 0, [1, 2, 3, 4]),
        (3, None, 7, 0, 0, [0, 1, 2, 3, 4]),
        (3, None, 2, 0, 1, [2, 3, 4]),  # One of the two goes before they come.
        (0, None, 0, 0, 2, [2, 3, 4]),
        (None, 5, 0, 0, 0, [2, 4]),
        (None, 5, 1, 4, 0, [0, 2, 3, 4]),
        (None, 0, 0, 0, 3, [3, 4]),
        (2, 100, 1, 1, 0, [1, 2, 3, 4]),
        (None, 5, 1, 9, 2, [3, 4]),  # What waits goes, and the first.
    ],
)
def test_refused(
    length: int | None,
    size: int | None,
    waiting: int,
    waiting_bytes: int,
    room: int,
    refused: list[int],
) -> None:
    limit = LengthLimit(
        QueueSettings(length_max=length, length_bytes_max=size, when_full=WhenFull.REFUSE)
    )
    assert limit.refuses
    assert not limit.drops
    assert list(limit.refused(MESSAGES, waiting, waiting_bytes, room)) == refused


def test_excess() -> None:
    limit = LengthLimit(QueueSettings(length_max=3, length_bytes_max=10))
    assert limit.drops
    assert not limit.refuses
    assert [limit.excess(count) for count in (0, 3, 5)] == [0, 0, 2]
    assert [limit.is_too_large(size) for size in (10, 11)] == [False, True]
    unlimited = LengthLimit(QueueSettings())
    assert (unlimited.drops, unlimited.refuses, unlimited.counts_bytes) == (False,) * 3
    assert (unlimited.excess(9), unlimited.is_too_large(9)) == (0, False)
