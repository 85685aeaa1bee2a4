"""Consistent hashing: RabbitMQ's placement, weights, and what moves when the ring changes."""

import pytest

from entrepot.broker.router.ring import jump, portable_hash, seed_of
from tests.unit.broker.router.places import Place


@pytest.mark.parametrize(
    ("data", "hashed", "of_ten", "of_many"),
    [
        (b"", 13708901, 9, 14052),
        (b"a", 112802447, 6, 59500),
        (b"order-1", 128070018, 9, 52036),
        (b"twelve bytes", 93359736, 3, 82166),
        (b"a routing key of more than twelve bytes", 119578654, 5, 27176),
        (b"\xff\x00\x80", 70739353, 9, 72720),
    ],
)
def test_erlang_says_the_same(data: bytes, hashed: int, of_ten: int, of_many: int) -> None:
    """Erlang/OTP 25: `erlang:phash2/1`, and the jump of RabbitMQ's plugin over it."""
    assert portable_hash(data) == hashed
    seed = seed_of(data.decode("utf-8", "surrogateescape"))
    assert (seed, jump(seed, 10), jump(seed, 100_000)) == (hashed, of_ten, of_many)


@pytest.mark.parametrize(
    ("value", "bucket"),
    [
        (0, 807),
        (1, 856),
        (-1, 220),
        (70_000, 424),
        (5_000_000_000, 52),
        (None, 491),
        (("bool", True), 393),
        (("bool", False), 709),
    ],
)
def test_erlang_says_the_same_of_other_values(value: object, bucket: int) -> None:
    assert jump(seed_of(value), 1_000) == bucket


def test_one_bucket_needs_no_choice() -> None:
    assert jump(seed_of("x"), 1) == 0


def ring(*weights: int, arguments: dict[str, object] | None = None) -> Place:
    place = Place(*(f"q{number}" for number in range(len(weights))))
    place.declare("ring", "x-consistent-hash", arguments)
    for number, weight in enumerate(weights):
        place.bind("ring", f"q{number}", str(weight))
    return place


def spread(place: Place, count: int = 2_000) -> list[str]:
    return [place.reached("ring", f"key-{number}")[0] for number in range(count)]


def test_a_message_goes_to_one_queue_and_always_the_same() -> None:
    place = ring(1, 1, 1)
    once = spread(place)
    assert once == spread(place)
    assert {len(place.reached("ring", f"{n}")) for n in range(100)} == {1}


def test_a_weight_is_a_share() -> None:
    queues = spread(ring(1, 3))
    assert 0.7 < queues.count("q1") / len(queues) < 0.8


def test_a_new_queue_takes_its_share_and_moves_nothing_else() -> None:
    place = ring(1, 1, 1)
    before = spread(place)
    place.add_queue("new")
    place.bind("ring", "new", "1")
    moves = [(old, new) for old, new in zip(before, spread(place), strict=True) if old != new]
    assert {new for _, new in moves} == {"new"}
    assert len(moves) < len(before) * 0.3


def test_an_empty_ring_leads_nowhere() -> None:
    place = ring(5)
    place.remove_queue("q0")
    assert place.reached("ring", "key") == ()


def test_the_older_binding_of_a_queue_counts() -> None:
    place = ring(1, 1)
    place.bind("ring", "q0", "1000")
    assert spread(place) == spread(ring(1, 1))
    place.unbind("ring", "q0", "1")
    assert spread(place).count("q0") > 1_900


def test_hashing_a_header() -> None:
    place = ring(1, 1, 1, 1, arguments={"hash-header": "customer"})
    assert place.router.reads_headers("ring")
    customers = {place.reached("ring", f"key-{n}", {"customer": n % 40}) for n in range(200)}
    assert len(customers) == 4
    for customer in ("ada", 7, True, None, 1.5, ["list"], {"k": 1}, b"bytes"):
        same = {place.reached("ring", f"{n}", {"customer": customer}) for n in range(50)}
        assert len(same) == 1
    assert len({place.reached("ring", f"{n}", {}) for n in range(50)}) == 1


@pytest.mark.parametrize("name", ["message_id", "correlation_id", "timestamp"])
def test_hashing_a_property(name: str) -> None:
    place = ring(1, 1, 1, 1, arguments={"hash-property": name})
    kind = int if name == "timestamp" else str
    found = {place.reached("ring", "key", None, {name: kind(n)}) for n in range(100)}
    assert len(found) == 4
    assert len({place.reached("ring", f"{n}", None, {name: kind(7)}) for n in range(50)}) == 1
    assert len({place.reached("ring", f"{n}") for n in range(50)}) == 1


def test_of_several_keys_the_first_decides() -> None:
    place = ring(1, 1, 1, 1)
    for number in range(50):
        alone = place.reached("ring", f"key-{number}")
        assert place.reached("ring", f"key-{number}", {"CC": ["other"]}) == alone
