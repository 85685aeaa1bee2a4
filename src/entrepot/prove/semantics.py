"""The six semantics: what the lectures predict of each, and which protocols offer it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

HIDDEN_S = 3  # The visibility timeout of trials.


class Semantics(Enum):
    AT_MOST_ONCE = "at-most-once"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"
    TRANSACTION = "transaction"
    TIMEOUT = "timeout"
    NUMBERED = "numbered"


LOSSLESS = [each for each in Semantics if each is not Semantics.AT_MOST_ONCE]

OFFERS: dict[Semantics, tuple[str, ...]] = {
    Semantics.AT_MOST_ONCE: ("kafka", "amqp", "mqtt", "stomp", "sqs"),
    Semantics.AT_LEAST_ONCE: ("kafka", "amqp", "mqtt", "stomp"),
    Semantics.EXACTLY_ONCE: ("kafka", "amqp", "mqtt", "stomp", "sqs"),
    Semantics.TRANSACTION: ("kafka", "amqp", "stomp"),
    Semantics.TIMEOUT: ("sqs",),
    Semantics.NUMBERED: ("kafka",),
}
PROTOCOLS = OFFERS[Semantics.AT_MOST_ONCE]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a trial."""

    sent: int
    delivered: Sequence[int]  # As they came to the consumer.
    done: Sequence[int]  # What the consumer's work has left, in order.
    hidden_s: float | None = None  # For how long nobody got what a killed consumer had received.

    @property
    def lost(self) -> int:
        """Return how many were sent and not worked on, whether they came or not."""
        return self.sent - len({*self.done})

    @property
    def unfinished(self) -> int:
        """Return how many came and were not worked on: they died with a consumer."""
        return len({*self.delivered} - {*self.done})

    @property
    def duplicated(self) -> int:
        return len(self.done) - len({*self.done})

    @property
    def reordered(self) -> int:
        return _behind(self.done)

    @property
    def redelivered(self) -> int:
        return len(self.delivered) - len({*self.delivered})

    @property
    def came_late(self) -> int:
        return _behind(self.delivered)


def _behind(numbers: Sequence[int]) -> int:
    """Return how many come behind a larger one."""
    largest, count = -1, 0
    for number in numbers:
        count += number < largest
        largest = max(largest, number)
    return count


PREDICTIONS: dict[Semantics, str] = {
    Semantics.AT_MOST_ONCE: "some lost, none twice",
    Semantics.AT_LEAST_ONCE: "none lost, some twice",
    Semantics.EXACTLY_ONCE: "none lost, none twice",
    Semantics.TRANSACTION: "none lost, none twice",
    Semantics.TIMEOUT: "none lost, some twice, hidden meanwhile",
    Semantics.NUMBERED: "come twice and late; none lost, none twice, in order",
}


def holds(semantics: Semantics, outcome: Outcome) -> bool:
    """Return whether it came as predicted."""
    lost, twice = outcome.lost, outcome.duplicated
    match semantics:
        case Semantics.AT_MOST_ONCE:
            return lost > 0 and twice == 0
        case Semantics.AT_LEAST_ONCE:
            return lost == 0 and twice > 0
        case Semantics.EXACTLY_ONCE | Semantics.TRANSACTION:
            return lost == 0 and twice == 0
        case Semantics.TIMEOUT:
            is_hidden = outcome.hidden_s is not None and outcome.hidden_s > HIDDEN_S / 2
            return lost == 0 and twice > 0 and is_hidden
        case Semantics.NUMBERED:
            was_needed = outcome.redelivered > 0 and outcome.came_late > 0
            return was_needed and lost == 0 and twice == 0 and outcome.reordered == 0
