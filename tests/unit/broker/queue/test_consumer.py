"""Whose turn it is, and who gets which."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.queue.consumer import Consumers, Ring, RoundRobin, Seat
from tests.unit.broker.queue.bed import Eater


def ring_of(text: str) -> Ring:
    ring = Ring()
    ring.seats += [Seat(Eater(tag)) for tag in text]
    return ring


def order(ring: Ring) -> str:
    return "".join(seat.consumer.tag for seat, _ in ring.candidates(99))


def remove(ring: Ring, tag: str) -> bool:
    consumer = next(seat.consumer for seat in ring.seats if seat.consumer.tag == tag)
    return ring.remove(consumer)


def test_the_one_after_the_last_served_is_next() -> None:
    ring = ring_of("abc")
    assert order(ring) == "abc"
    ring.served(ring.seats[1])
    assert order(ring) == "cab"
    ring.served(ring.seats[2])
    assert order(ring) == "abc"
    ring.served(Seat(Eater("gone")))
    assert order(ring) == "abc"


def test_turns_stay_when_somebody_leaves() -> None:
    for gone, expected in (("a", "cdb"), ("b", "cda"), ("c", "dab"), ("d", "cab")):
        ring = ring_of("abcd")
        ring.served(ring.seats[1])
        assert remove(ring, gone)
        assert order(ring) == expected
    ring = ring_of("ab")
    ring.served(ring.seats[0])
    remove(ring, "b")
    assert order(ring) == "a"
    assert not ring.remove(Eater("a"))


def test_only_as_many_are_asked_as_there_are_messages() -> None:
    ring = ring_of("abcd")
    full = ring.seats[0].consumer
    assert isinstance(full, Eater)
    full.prefetch = 0
    assert [seat.consumer.tag for seat, _ in ring.candidates(2)] == ["b", "c"]


def test_rings_by_priority() -> None:
    consumers = Consumers("queue", single_active=False)
    low, high = Eater("low", priority=-3), Eater("high", room=1, priority=4)
    for eater in (low, high):
        consumers.add(eater)
    assert [each.tag for each in consumers] == ["high", "low"]
    assert consumers.room() == low.prefetch + 1
    found = consumers.next_ones(5)
    assert found is not None
    assert [(seat.consumer.tag, room) for seat, room in found[1]] == [("high", 1)]
    high.prefetch = 0
    found = consumers.next_ones(5)
    assert found is not None
    assert found[1][0][0].consumer is low
    assert consumers.remove(low)
    assert not consumers.remove(low)
    assert consumers.next_ones(5) is None
    assert consumers.count == 1


# --- serving in slices beside serving one by one


def one_by_one(rooms: list[int], count: int) -> list[int]:
    """Who gets the first, the second, and so on."""
    left, turn, given_to = list(rooms), 0, []
    while len(given_to) < count:
        if left[turn]:
            left[turn] -= 1
            given_to.append(turn)
        turn = (turn + 1) % len(rooms)
    return given_to


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.lists(st.integers(1, 12)))
def test_the_order_is_that_of_serving_one_by_one(rooms: list[int], runs: list[int]) -> None:
    seats = [Seat(Eater(str(number))) for number in range(len(rooms))]
    turns = RoundRobin([*zip(seats, rooms, strict=True)])
    served: list[int] = []
    for count in runs:
        if len(served) + count > sum(rooms):
            break
        shares = [-1] * count
        for seat, places in turns.shares(count):
            assert set(shares[places]) == {-1}
            shares[places] = [seats.index(seat)] * len(shares[places])
        served += shares
        assert turns.last is seats[served[-1]]
    assert served == one_by_one(rooms, len(served))


def test_a_thousand_with_equal_room_are_one_stretch() -> None:
    one, other = Seat(Eater("a")), Seat(Eater("b"))
    turns = RoundRobin([(one, 500), (other, 500)])
    assert turns.shares(1_000) == [(one, slice(0, 1_000, 2)), (other, slice(1, 1_000, 2))]
