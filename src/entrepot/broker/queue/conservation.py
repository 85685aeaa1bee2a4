"""Conservation: a queue neither loses a message nor has one twice.

Whenever no method of the queue is running, each message that it accepted is exactly one of these:

    ready           can be delivered
    unacked         leased to a consumer, a channel or a timed lease
    deferred        not to be delivered before a certain time
    dying           its dead letter is published, but not yet committed
    consumed        settled by its consumer
    dead-lettered   its dead letter is committed, and it was settled for that
    dropped         settled by a policy, and counted under the name of the policy

The ledger has the first four and treats every other message as settled. So a message that was
lost by a bug would look like one that was consumed. Therefore every settlement is counted here,
and the messages that are not in the ledger must be as many as were counted.

Counts begin when the queue is opened. A lane in the log also records which offsets are settled,
and these are compared with the ledger offset by offset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from entrepot.broker.ledger import Ledger
from entrepot.broker.queue.dead_letter import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from entrepot.broker.queue.front import Front
from entrepot.core import limits
from entrepot.core.ranges import Ranges

CONSUMED, DEAD_LETTERED = "consumed", "dead_lettered"
PURGED = "purged"
CANCELLED = "cancelled"  # A deferred message that is not to be delivered.
LOST = "lost"  # Transient and older than the process, or deleted by retention.
REFUSED = "dead_letter_refused"  # A queue refused its dead letter.
UNROUTABLE = "dead_letter_unroutable"  # No queue gets its dead letter.
UNSELECTED = "unselected"  # The only consumer that the queue is for does not want it.
DROPS = (
    *(EXPIRED, MAXLEN, REJECTED, DELIVERY_LIMIT, PURGED, CANCELLED, LOST, REFUSED, UNROUTABLE),
    UNSELECTED,
)

_SHOWN = 5  # How many ranges of offsets a text lists.


class Account(NamedTuple):
    """How many messages a queue has in each state. The first three add up to all the others."""

    found: int  # Not settled when the queue was opened.
    accepted: int  # Committed since.
    rewound: int  # Settled, and then made ready again.
    ready: int
    unacked: int
    deferred: int
    dying: int
    consumed: int
    dead_lettered: int
    dropped: Mapping[str, int]  # By reason, those that occurred.
    wrong: Sequence[str] = ()  # Descriptions of contradictions; empty if there are none.

    @property
    def settled(self) -> int:
        """Return how many messages were settled, without those that were dropped."""
        return self.consumed + self.dead_lettered

    @property
    def missing(self) -> int:
        """Return how many messages are in no state; less than 0 if some were counted twice."""
        came = self.found + self.accepted + self.rewound
        present = self.ready + self.unacked + self.deferred + self.dying
        return came - present - self.settled - sum(self.dropped.values())


class Turnover(NamedTuple):
    """How many messages came and went since the queue was opened."""

    accepted: int
    consumed: int
    dead_lettered: int
    dropped: int


class Conservation:
    """Counts what becomes of one queue's messages, and finds what is missing."""

    def __init__(self, fronts: Sequence[Front], dead_letters: object) -> None:
        """Begin to count. `dead_letters` owns the leases of dying messages."""
        self._fronts = fronts
        self._dead_letters = dead_letters
        self._found = self.present_count
        self._ends = sum(map(_end, fronts))
        self._rewound = 0
        self._settled = dict.fromkeys((CONSUMED, DEAD_LETTERED, *DROPS), 0)

    @property
    def present_count(self) -> int:
        """Return how many messages are not settled."""
        return sum(_present(front) for front in self._fronts)

    @property
    def dropped(self) -> Mapping[str, int]:
        return {reason: self._settled[reason] for reason in DROPS if self._settled[reason]}

    def settled(self, offsets: Sequence[range], reason: str) -> None:
        """Count messages that were settled, under that reason."""
        count = len(offsets[0]) if len(offsets) == 1 else sum(map(len, offsets))
        self._settled[reason] += count

    def rewound(self, present_before: int) -> None:
        """Count the messages that a rewind made ready again, given `present_count` before it."""
        self._rewound += self.present_count - present_before

    @property
    def turnover(self) -> Turnover:
        """Return what came and went. Unlike the account, it takes no time to speak of."""
        settled = self._settled
        consumed, dead_lettered = settled[CONSUMED], settled[DEAD_LETTERED]
        dropped = sum(settled.values()) - consumed - dead_lettered
        accepted = sum([_end(front) for front in self._fronts]) - self._ends
        return Turnover(accepted, consumed, dead_lettered, dropped)

    def account(self, dying_count: int) -> Account:
        """Return the account. `dying_count` is how many messages the queue counts as dying."""
        fronts = self._fronts
        account = Account(
            found=self._found,
            accepted=sum(map(_end, fronts)) - self._ends,
            rewound=self._rewound,
            ready=sum(front.ready_count for front in fronts),
            unacked=sum(len(front.ledger.leased) for front in fronts) - dying_count,
            deferred=sum(front.ledger.deferred_count(_end(front)) for front in fronts),
            dying=dying_count,
            consumed=self._settled[CONSUMED],
            dead_lettered=self._settled[DEAD_LETTERED],
            dropped=self.dropped,
        )
        wrong = [*self._offsets_wrong(dying_count)]
        if account.missing > 0:
            wrong.insert(0, f"missing: {_messages(account.missing)}")
        elif account.missing < 0:
            wrong.insert(0, f"counted twice: {_messages(-account.missing)}")
        return account._replace(wrong=wrong)

    def _offsets_wrong(self, dying_count: int) -> Iterator[str]:
        """Check single offsets, unless there are too many. Yields what is wrong."""
        ledgers = [front.ledger for front in self._fronts]
        out_of_order = sum(
            len(each.leased) + len(each.deferred) + each.returned.range_count for each in ledgers
        )
        if out_of_order > limits.QUEUE_OFFSETS_CHECKED_MAX:
            return
        leases = (lease for ledger in ledgers for lease in ledger.leased.values())
        dying = sum(lease.owner is self._dead_letters for lease in leases)
        if dying != dying_count:
            yield f"dying: {_messages(dying)}, and {dying_count} were counted"
        for number, front in enumerate(self._fronts):
            where = f"in lane {number}: " if len(self._fronts) > 1 else ""
            for text in (*_contradictions(front.ledger), *_differences(front)):
                yield where + text


def _end(front: Front) -> int:
    """Return the end of the offsets that are counted.

    After a start on a failing disk, the ledger may have offsets beyond the lane's end.
    """
    return max(front.lane.offset_end, front.ledger.offset_fresh)


def _present(front: Front) -> int:
    ledger = front.ledger
    return front.ready_count + len(ledger.leased) + ledger.deferred_count(_end(front))


def _contradictions(ledger: Ledger) -> Iterator[str]:
    """Yield texts about messages that are in two states, or in an impossible one."""
    leased, deferred, returned = ledger.leased, ledger.deferred, ledger.returned
    for text, both in (
        ("leased and ready", [each for each in leased if each in returned]),
        ("leased and deferred", [each for each in leased if each in deferred]),
        ("deferred and ready", [each for each in deferred if each in returned]),
        ("leased and never handed out", [each for each in leased if each >= ledger.offset_fresh]),
        ("leased and settled", [each for each in leased if each < ledger.offset_low]),
        ("deferred and settled", [each for each in deferred if each < ledger.offset_low]),
    ):
        if both:
            yield f"{text}: {_shown(Ranges(range(each, each + 1) for each in both))}"


def _differences(front: Front) -> Iterator[str]:
    """Yield texts about messages that are settled in the ledger or in the lane, but not in both."""
    recorded = front.lane.unsettled()
    held = front.ledger.unsettled()
    if recorded is None or [*recorded] == [*held]:
        return
    if lost := _without(recorded, held):
        yield f"nobody has them, and nobody settled them: {_shown(lost)}"
    if settled := _without(held, recorded):
        yield f"recorded as settled, and not settled: {_shown(settled)}"


def _without(these: Ranges, others: Ranges) -> Ranges:
    """Return the offsets that are not among the others. In one pass: there may be very many."""
    rest, passing = Ranges(), iter(others)
    other = next(passing, None)
    for each in these:
        start = each.start
        while other is not None and other.start < each.stop:
            rest.add(start, other.start)
            start = max(start, other.stop)
            if other.stop > each.stop:
                break  # It reaches into the next one.
            other = next(passing, None)
        rest.add(start, each.stop)
    return rest


def _shown(offsets: Ranges) -> str:
    ends = ((each.start, each.stop - 1) for each in islice(offsets, _SHOWN))
    some = [f"{first}" if first == last else f"{first}-{last}" for first, last in ends]
    return f"{_messages(offsets.count)}, at offsets {', '.join(some)}"


def _messages(count: int) -> str:
    return f"{count} message{'' if count == 1 else 's'}"
