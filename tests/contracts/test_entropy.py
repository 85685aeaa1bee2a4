import pytest

from entrepot.core.ports import Entropy


def test_a_token_has_its_size_and_is_not_repeated(entropy: Entropy) -> None:
    assert [len(entropy.token(size)) for size in (0, 1, 16)] == [0, 1, 16]
    assert len({entropy.token(16) for _ in range(100)}) == 100


def test_below_reaches_every_number_and_no_other(entropy: Entropy) -> None:
    drawn = [entropy.below(5) for _ in range(1_000)]
    assert set(drawn) == {0, 1, 2, 3, 4}
    assert max(drawn.count(number) for number in range(5)) < 400
    assert entropy.below(1) == 0


def test_below_zero_is_refused(entropy: Entropy) -> None:
    with pytest.raises(ValueError, match=r"."):
        entropy.below(0)
