"""The replicated space after Xu and Liskov, in simulation: messages get lost, and nodes die."""

from __future__ import annotations

from collections import Counter

import pytest

from entrepot.client.messaging.xu_liskov import (
    LOCK_MS,
    Accepted,
    Done,
    Found,
    Read,
    Reading,
    Rejected,
    Release,
    Remove,
    Removed,
    Site,
    Take,
    Taking,
    Write,
    Writing,
)
from entrepot.lab.tuple_spaces import STEPS, Replicas, costs, in_turn, steps

JOB = ("job", int)


def full_site(count: int) -> Site:
    site = Site()
    for number in range(count):
        assert site.receive(Write(f"w{number}", f"t{number}", ("job", number)), 0) == Done(
            f"w{number}"
        )
    return site


def test_a_site_locks_the_set_of_tuples() -> None:
    site = full_site(2)
    both = {"t0": ("job", 0), "t1": ("job", 1)}
    assert site.receive(Read("r", ("job", 1)), 0) == Found("r", ("job", 1))
    assert site.receive(Read("r", ("other", 1)), 0) == Found("r", None)
    assert site.receive(Take("a/1", JOB), 0) == Accepted("a/1", both)
    assert site.receive(Take("a/1", JOB), 1) == Accepted("a/1", both)  # Repeated.
    assert site.receive(Take("b/1", ("job", 1)), 1) == Rejected("b/1")
    assert site.receive(Take("b/1", (str, int)), 1) == Rejected("b/1")
    assert site.receive(Take("c/1", ("other", int)), 1) == Accepted("c/1", {})
    assert site.receive(Take("d/1", ("job",)), 1) == Accepted("d/1", {})
    site.receive(Release("a/1"), 2)
    assert site.receive(Take("a/1", JOB), 3) == Rejected("a/1")  # Comes late: it is over.
    assert site.receive(Take("b/2", JOB), 3) == Accepted("b/2", both)
    assert site.receive(Remove("b/2", "t0", False), 4) == Removed("b/2", True)
    assert site.receive(Remove("b/2", "t0", False), 5) == Removed("b/2", True)  # Repeated.
    assert site.receive(Write("w0", "t0", ("job", 0)), 6) == Done("w0")  # Repeated, and gone.
    assert site.receive(Take("e/1", JOB), 7) == Accepted("e/1", {"t1": ("job", 1)})


def test_an_old_lock_is_broken() -> None:
    site = full_site(1)
    site.receive(Take("a/1", JOB), 0)
    assert site.receive(Take("b/1", JOB), LOCK_MS - 1) == Rejected("b/1")
    assert site.receive(Take("b/1", JOB), LOCK_MS) == Accepted("b/1", {"t0": ("job", 0)})
    assert site.receive(Remove("a/1", "t0", False), LOCK_MS) == Removed("a/1", False)
    assert site.receive(Remove("b/1", "t0", False), LOCK_MS) == Removed("b/1", True)


def test_two_who_broke_each_others_locks_do_not_both_get_it() -> None:
    """Each holds a lock at one of two sites, and was accepted at both."""
    first, second = full_site(1), full_site(1)
    late = LOCK_MS + 1
    for site, one, other in ((first, "a/1", "b/1"), (second, "b/1", "a/1")):
        assert isinstance(site.receive(Take(one, JOB), 0), Accepted)
        assert isinstance(site.receive(Take(other, JOB), late), Accepted)
    outcomes = [first.receive(Remove(name, "t0", False), late) for name in ("a/1", "b/1")]
    assert [each.is_so for each in outcomes] == [False, True]
    assert second.receive(Remove("b/1", "t0", True), late) == Removed("b/1", True)
    assert not first.tuples
    assert not second.tuples


@pytest.mark.parametrize("case", range(40))
def test_no_tuple_is_taken_twice_and_none_is_lost(case: int) -> None:
    """Clients write and take; messages get lost, a site is away for a while, a client dies."""
    replicas = Replicas(3 + case % 3, case, loss=0.1)
    random = replicas.entropy.random
    for client in range(3):
        writes = [replicas.write(("job", 10 * client + number)) for number in range(10)]
        replicas.add_client(in_turn(*writes))
    takers = [
        replicas.add_client(in_turn(*(replicas.take(JOB) for _ in range(10)))) for _ in range(4)
    ]
    away = random.randrange(len(replicas.sites))
    replicas.world.at(0.05, lambda: replicas.world.down.update({away: None}))
    replicas.world.at(0.6, lambda: replicas.world.down.pop(away))
    victim = len(replicas.sites) + 3  # The first taker.
    replicas.world.at(0.7 + random.random(), lambda: replicas.world.down.update({victim: None}))
    for _ in range(10_000):
        replicas.world.run_until(replicas.world.now + 0.1)
        if all(each.now is None for each in replicas.clients if each is not takers[0]):
            break
    else:
        pytest.fail("it does not end")
    for client in replicas.clients[:3]:
        assert len(client.done) == 10  # Every write was acknowledged by all.
    taken = [each.result for client in takers for each in client.done if each.result]
    assert max(Counter(taken).values()) == 1
    common = set.intersection(*({*site.tuples.values()} for site in replicas.sites))
    missing = {("job", number) for number in range(30)} - set(taken) - common
    assert len(missing) <= 1  # What the dead one had taken, and did not live to tell.
    assert not common & set(taken)
    finder = replicas.add_client(in_turn(*(replicas.take(JOB) for _ in range(len(common) + 1))))
    replicas.run(replicas.world.now + 600)
    found = [each.result for each in finder.done]
    assert {each for each in found if each} == common  # Also what the dead one had locked.
    assert found[-1] is None


def test_the_first_answer_to_a_read_wins() -> None:
    reading = Reading("r", 3, Read("r", JOB))
    assert len(reading.start()) == 3
    reading.receive(0, Found("r", None))
    assert not reading.is_over
    reading.receive(2, Found("r", ("job", 1)))
    reading.receive(1, Found("r", ("job", 2)))
    assert (reading.is_over, reading.result) == (True, ("job", 1))
    nothing = Reading("s", 1, Read("s", JOB))
    nothing.receive(0, Found("s", None))
    assert (nothing.is_over, nothing.result) == (True, None)


def test_a_write_is_repeated_until_all_have_acknowledged() -> None:
    writing = Writing("w", 3, Write("w", "t", ("job", 1)))
    assert [site for site, _ in writing.start()] == [0, 1, 2]
    writing.receive(1, Done("w"))
    assert [site for site, _ in writing.tick()] == [0, 2]
    for site in (0, 2):
        assert not writing.is_over
        writing.receive(site, Done("w"))
    assert writing.is_over


class First:
    def below(self, end: int) -> int:
        return 0


def test_a_minority_releases_and_a_majority_asks_again() -> None:
    taking = Taking("t", 3, JOB, First())
    assert [site for site, _ in taking.start()] == [0, 1, 2]
    taking.receive(0, Accepted("t/1", {}))
    taking.receive(1, Rejected("t/1"))
    assert taking.receive(2, Rejected("t/1")) == [(0, Release("t/1"))]
    assert taking.tick() == [(0, Release("t/1"))]
    taking.receive(0, Done("t/1"))
    assert taking.tick() == [(site, Take("t/2", JOB)) for site in range(3)]
    tuples = {"a": ("job", 1), "b": ("job", 2)}
    taking.receive(0, Accepted("t/1", tuples))  # Late, and of another attempt.
    taking.receive(0, Accepted("t/2", tuples))
    taking.receive(1, Accepted("t/2", {"b": ("job", 2)}))
    assert taking.receive(2, Rejected("t/2")) == ()
    assert taking.tick() == [(2, Take("t/2", JOB))]
    assert taking.receive(2, Accepted("t/2", tuples)) == [(0, Remove("t/2", "b", False))]
    assert taking.tick() == [(0, Remove("t/2", "b", False))]
    rest = [(site, Remove("t/2", "b", True)) for site in (1, 2)]
    assert taking.receive(0, Removed("t/2", True)) == rest
    taking.receive(1, Removed("t/2", True))
    assert not taking.is_over
    assert taking.tick() == rest[1:]
    taking.receive(2, Removed("t/2", True))
    assert (taking.is_over, taking.result) == (True, ("job", 2))


def test_the_steps_are_those_of_the_lecture() -> None:
    table = steps(3, 1)
    assert [row[0] for row in table.rows] == [*STEPS]
    assert sum(step.startswith("write") for step in STEPS) == 3
    assert sum(step.startswith("read") for step in STEPS) == 4
    assert sum(step.startswith("take 1") for step in STEPS) == 6
    assert sum(step.startswith("take 2") for step in STEPS) == 3
    assert all(row[3] > 0 for row in table.rows), table.text()
    assert "Taken: [0, 1, 2, 3, 4, 5]; left at the sites: [0, 0, 0]." in table.notes


def test_what_they_cost() -> None:
    rows = {row[:3]: row[3:] for row in costs((3, 5), 20, 1).rows}
    for sites in (3, 5):
        assert rows[sites, "write", 1][0] == 2 * sites
        assert rows[sites, "read", 1][0] == 2 * sites
        assert rows[sites, "take", 1][0] == 4 * sites
        assert rows[sites, "read", 1][1] < rows[sites, "write", 1][1] < rows[sites, "take", 1][1]
        assert rows[sites, "take", 4][0] > rows[sites, "take", 1][0]  # They collide.
