"""The ledger beside a naive one, which has a word for every single message."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from entrepot.broker.ledger import NEVER, Lease, Ledger

OWNERS = ("ana", "ben")
SPANS = st.tuples(
    st.integers(0, 12), st.sampled_from([1, 1, 1, 2, 5]), st.sampled_from([1, 1, 2])
).map(lambda s: range(s[0], s[0] + s[1], s[2]))


class Naive:
    """Each message: fresh, returned, settled, (leased, owner, until) or (deferred, until)."""

    def __init__(self) -> None:
        self.states: list[tuple] = []  # type: ignore[type-arg]
        self.attempts: dict[int, int] = {}

    def ready(self) -> list[int]:
        kinds = [[o for o, s in enumerate(self.states) if s[0] == k] for k in ("back", "fresh")]
        return kinds[0] + kinds[1]

    def held(self, span: range, owner: str) -> list[int]:
        return [o for o in span if o < len(self.states) and self.states[o][:2] == ("has", owner)]

    def back(self, offset: int) -> None:
        self.states[offset] = ("back",)
        self.attempts[offset] = self.attempts.get(offset, 0) + 1


def flat(ranges: list[range]) -> list[int]:
    return [offset for each in ranges for offset in each]


def take(ledger: Ledger, count: int, end: int, lease: Lease) -> list[range]:
    taken = ledger.pop(count, end)
    for each in taken:
        ledger.lease(each, lease)
    return taken


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger, self.naive, self.now = Ledger(), Naive(), 0

    @property
    def end(self) -> int:
        return len(self.naive.states)

    @rule(count=st.integers(1, 8))
    def publish(self, count: int) -> None:
        self.naive.states += [("fresh",)] * count

    @rule(delay=st.integers(1, 9))
    def publish_for_later(self, delay: int) -> None:
        self.naive.states.append(("later", self.now + delay, "fresh"))
        self.ledger.defer(self.end - 1, self.now + delay)

    @rule(count=st.integers(1, 8), owner=st.sampled_from(OWNERS), lasts=st.integers(0, 6))
    def take(self, count: int, owner: str, lasts: int) -> None:
        until = self.now + lasts if lasts else NEVER
        taken = flat(take(self.ledger, count, self.end, Lease(owner, until)))
        assert taken == self.naive.ready()[:count]
        for offset in taken:
            self.naive.states[offset] = ("has", owner, until)

    @rule(count=st.integers(1, 9), consumers=st.integers(1, 3))
    def deal(self, count: int, consumers: int) -> None:
        """The first consumer needs no lease, the others take turns with it."""
        popped = self.ledger.pop(count, self.end)
        assert flat(popped) == self.naive.ready()[:count]
        for each in popped:
            for number in range(1, consumers):
                self.ledger.lease(each[number::consumers], Lease(OWNERS[number - 1]))
                for offset in each[number::consumers]:
                    self.naive.states[offset] = ("has", OWNERS[number - 1], NEVER)
        for each in popped:
            self.ledger.settle_popped(each[::consumers])
            for offset in each[::consumers]:
                self.naive.states[offset] = ("settled",)
                self.naive.attempts.pop(offset, None)

    @rule(span=SPANS, owner=st.sampled_from(OWNERS))
    def settle(self, span: range, owner: str) -> None:
        expected = self.naive.held(span, owner)
        assert flat(self.ledger.settle(span, owner)) == expected
        for offset in expected:
            self.naive.states[offset] = ("settled",)
            self.naive.attempts.pop(offset, None)

    @rule(span=SPANS, owner=st.sampled_from(OWNERS), seen=st.booleans())
    def release(self, span: range, owner: str, seen: bool) -> None:
        expected = self.naive.held(span, owner)
        assert flat(self.ledger.release(span, owner, is_attempt=seen)) == expected
        for offset in expected:
            self.naive.back(offset)
            if not seen:
                self.naive.attempts[offset] -= 1

    @rule(span=SPANS)
    def hand_over(self, span: range) -> None:
        old, new = OWNERS
        expected = self.naive.held(span, old)
        assert flat(self.ledger.hand_over(span, old, Lease(new))) == expected
        for offset in expected:
            self.naive.states[offset] = ("has", new, NEVER)

    @rule(offset=st.integers(0, 12), owner=st.sampled_from(OWNERS), lasts=st.integers(1, 9))
    def renew(self, offset: int, owner: str, lasts: int) -> None:
        held = bool(self.naive.held(range(offset, offset + 1), owner))
        assert self.ledger.renew(offset, Lease(owner, self.now + lasts)) == held
        if held:
            self.naive.states[offset] = ("has", owner, self.now + lasts)

    @rule(count=st.integers(1, 8))
    def discard(self, count: int) -> None:
        dropped = flat(self.ledger.discard(count, self.end))
        assert dropped == self.naive.ready()[:count]
        for offset in dropped:
            self.naive.states[offset] = ("settled",)
            self.naive.attempts.pop(offset, None)

    @rule(passes=st.integers(1, 5))
    def wait(self, passes: int) -> None:
        self.now += passes
        expected = []
        for offset, state in enumerate(self.naive.states):
            if state[0] == "has" and state[2] <= self.now:
                self.naive.back(offset)
                expected.append(offset)
            elif state[0] == "later" and state[1] <= self.now:
                passed = offset < self.ledger.offset_fresh
                self.naive.states[offset] = ("back",) if passed else ("fresh",)
                expected.append(offset)
        assert not expected or self.ledger.next_time_ms <= self.now
        assert flat(self.ledger.expire(self.now)) == expected

    @rule(back=st.integers(0, 12))
    def rewind(self, back: int) -> None:
        offset = min(back, self.end)
        self.ledger.rewind(offset)
        for each in range(offset, self.end):
            self.naive.attempts.pop(each, None)
            self.naive.states[each] = ("fresh",)

    @rule(back=st.integers(0, 12))
    def reset(self, back: int) -> None:
        offset = min(back, self.end)
        self.ledger.reset(offset)
        self.naive.attempts.clear()
        for each in range(self.end):
            self.naive.states[each] = ("settled",) if each < offset else ("fresh",)

    @precondition(lambda self: self.end > 0)
    @rule()
    def restart(self) -> None:
        """Leases are forgotten; all else is as before."""
        before = self.ledger
        self.ledger = Ledger(before.offset_low)
        attempts = {each: before.attempts(each) for each in self.naive.attempts}
        self.ledger.restore(before.offset_fresh, before.unsettled(), before.deferred, attempts)
        self._naive_restart()

    @precondition(lambda self: self.end > 0)
    @rule()
    def restart_from_records(self) -> None:
        """From what was settled, in the order of the queue; nothing else is known."""
        deferred = dict(self.ledger.deferred)
        self.ledger = Ledger()
        for offset, until in deferred.items():
            self.ledger.defer(offset, until)
        for offset, state in enumerate(self.naive.states):
            if state[0] == "settled":
                self.ledger.note_settled(range(offset, offset + 1))
        self.naive.attempts.clear()
        self._naive_restart()

    def _naive_restart(self) -> None:
        for offset, state in enumerate(self.naive.states):
            if state[0] in ("has", "back", "fresh"):
                passed = offset < self.ledger.offset_fresh
                self.naive.states[offset] = ("back",) if passed else ("fresh",)

    @invariant()
    def both_agree(self) -> None:
        states = self.naive.states
        assert self.ledger.ready_count(self.end) == len(self.naive.ready())
        for count in (1, 3, NEVER):
            assert flat(self.ledger.ready(count, self.end)) == self.naive.ready()[:count]
        assert sorted(self.ledger.leased) == [o for o, s in enumerate(states) if s[0] == "has"]
        assert sorted(self.ledger.deferred) == [o for o, s in enumerate(states) if s[0] == "later"]
        open_ones = [o for o, s in enumerate(states) if s[0] not in ("settled", "fresh")]
        assert flat([*self.ledger.unsettled()]) == [
            o for o in open_ones if o < self.ledger.offset_fresh
        ]
        assert self.ledger.offset_low == min([*open_ones, self.ledger.offset_fresh])
        for offset in range(self.end):
            assert self.ledger.is_settled(offset) == (states[offset][0] == "settled")
            assert self.ledger.attempts(offset) == self.naive.attempts.get(offset, 0)


Histories.TestCase.settings = settings(stateful_step_count=30)
TestHistories = Histories.TestCase


def test_a_long_queue_costs_no_more_than_a_short_one() -> None:
    ledger, lease = Ledger(), Lease("ana")
    end = 10_000_000
    assert ledger.ready_count(end) == end
    assert take(ledger, 3, end, lease) == [range(3)]
    ledger.release(range(1, 2), "ana")
    assert ledger.discard(end, end) == [range(1, 2), range(3, end)]
    ledger.settle(range(3), "ana")
    assert (ledger.offset_low, ledger.offset_fresh) == (end, end)


def test_a_lease_ends_at_its_own_time_not_at_that_of_an_earlier_one() -> None:
    ledger = Ledger()
    take(ledger, 1, 1, Lease("ana", until_ms=10))
    ledger.release(range(1), "ana")
    take(ledger, 1, 1, Lease("ben", until_ms=20))
    assert ledger.expire(15) == []
    assert ledger.expire(20) == [range(1)]
    assert ledger.attempts(0) == 2


def test_one_of_a_wider_step_is_only_one() -> None:
    """As it is dealt to one of several consumers: the range ends after another's."""
    ledger = Ledger()
    for each in ledger.pop(2, 2):
        ledger.lease(each[0:1:2], Lease("ana"))
        ledger.lease(each[1:2:2], Lease("ben"))
    assert ledger.release(range(0, 2, 2), "ana") == [range(1)]
    assert flat(ledger.pop(2, 2)) == [0]
    assert list(ledger.leased) == [1]


def test_what_was_kept_back_and_then_settled_does_not_come_again() -> None:
    ledger = Ledger()
    ledger.defer(1, 10)
    ledger.note_settled(range(2))
    assert ledger.expire(10) == []
    assert (ledger.offset_low, ledger.ready_count(3)) == (2, 1)


def test_times_of_what_is_over_do_not_pile_up() -> None:
    ledger = Ledger()
    for number in range(10_000):
        take(ledger, 1, number + 1, Lease("ana", until_ms=1_000_000 + number))
        ledger.settle(range(number, number + 1), "ana")
    assert ledger.next_time_ms < NEVER
    assert len(ledger.times) < 200


def test_what_is_kept_back_and_not_committed_yet_is_not_counted_twice() -> None:
    ledger = Ledger()
    for offset in (1, 5, 6, 8):
        ledger.defer(offset, 10)
    assert [ledger.ready_count(end) for end in (0, 1, 2, 5, 6, 7, 9)] == [0, 1, 1, 4, 4, 4, 5]
    assert flat(ledger.pop(9, 6)) == [0, 2, 3, 4]
    assert [ledger.ready_count(end) for end in (6, 7, 8, 9)] == [0, 0, 1, 1]
    ledger.expire(10)
    assert ledger.ready_count(9) == 5
