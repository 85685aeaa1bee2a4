"""Dealing in slices beside dealing one by one."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.queue.deal import Deal


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
def test_the_order_is_that_of_dealing_one_by_one(rooms: list[int], runs: list[int]) -> None:
    deal = Deal(list(enumerate(rooms)))
    dealt: list[int] = []
    for count in runs:
        if len(dealt) + count > sum(rooms):
            break
        hands = [-1] * count
        for player, hand in deal.hands(count):
            assert set(hands[hand]) == {-1}
            hands[hand] = [player] * len(hands[hand])
        dealt += hands
        assert deal.last == dealt[-1]
    assert dealt == one_by_one(rooms, len(dealt))


def test_a_thousand_with_equal_room_are_one_stretch() -> None:
    deal = Deal([("a", 500), ("b", 500)])
    assert list(deal.hands(1_000)) == [("a", slice(0, 1_000, 2)), ("b", slice(1, 1_000, 2))]


def test_one_alone_gets_everything_as_it_is() -> None:
    deal = Deal([("a", 9)])
    assert list(deal.hands(9)) == [("a", slice(0, 9, 1))]
    assert deal.last == "a"
