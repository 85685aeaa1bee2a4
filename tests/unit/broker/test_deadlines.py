from random import Random

from entrepot.broker.deadlines import Deadlines


def test_what_is_due_comes_in_the_order_of_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, when_ms in (("b", 20), ("a", 10), ("c", 30), ("also a", 10)):
        deadlines.set(key, when_ms)
    assert deadlines.next_ms == 10
    assert deadlines.due(9) == []
    assert deadlines.due(20) == ["a", "also a", "b"]
    assert deadlines.next_ms == 30
    assert deadlines.due(100) == ["c"]
    assert deadlines.next_ms is None


def test_a_deadline_that_was_moved_comes_at_its_new_time() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("later", 10)
    deadlines.set("later", 50)
    deadlines.set("earlier", 90)
    deadlines.set("earlier", 20)
    assert deadlines.due(49) == ["earlier"]
    assert deadlines.due(50) == ["later"]
    assert deadlines.due(1_000) == []


def test_a_deadline_that_was_called_off_does_not_come() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    deadlines.cancel("never there")
    assert deadlines.get("a") is None
    assert deadlines.due(10) == []
    deadlines.set("a", 30)
    assert deadlines.due(30) == ["a"]


def test_as_a_list_that_is_searched_every_time(seed: int) -> None:
    random, deadlines = Random(seed), Deadlines[int]()
    model: dict[int, int] = {}
    for now_ms in range(300):
        key = random.randrange(8)
        if random.random() < 0.7:
            model[key] = now_ms + random.randrange(40)
            deadlines.set(key, model[key])
        else:
            model.pop(key, None)
            deadlines.cancel(key)
        expected = sorted(key for key, when_ms in model.items() if when_ms <= now_ms)
        assert sorted(deadlines.due(now_ms)) == expected
        for key in expected:
            del model[key]
        assert all(deadlines.get(key) == when_ms for key, when_ms in model.items())
        assert not model or (deadlines.next_ms or 0) <= min(model.values())
