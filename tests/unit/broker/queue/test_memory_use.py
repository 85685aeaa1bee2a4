"""Those who publish are told when there is too much, and when it is well again."""

from entrepot.broker.queue.memory_use import MemoryUse


def test_the_mark_is_crossed_up_and_down() -> None:
    use, told = MemoryUse(100), list[bool]()
    use.listen("g", told.append)
    for size in (100, 1, -1, -20, -5, -1, 20, 10):
        use.change(size)
    assert told == [True, False, True]
    assert (use.size, use.is_high) == (104, True)
    use.unlisten("g")
    use.change(-104)
    assert (use.is_high, len(told)) == (False, 3)
