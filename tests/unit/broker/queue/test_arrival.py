"""Which lane gets what of a run."""

from entrepot.broker.queue.arrival import Arrival, by_priority
from entrepot.broker.queue.message import Publication, Run
from tests.unit.broker.queue.bed import READER, envelope, properties


def test_a_run_comes_apart_by_priority() -> None:
    answers: list[object] = []
    publication = Publication(answers.append)
    publication.expect()
    heads = [properties(priority=priority) for priority in (0, 9, 1, 0)]
    messages = [(envelope(head), str(place).encode()) for place, head in enumerate(heads)]
    arrival = Arrival(Run(5, messages), publication, False, 7)
    assert by_priority([arrival], 0, READER) == {0: [arrival]}
    lanes = by_priority([arrival], 3, READER)
    found = {lane: [body for _, body in part.run.messages] for lane, [part] in lanes.items()}
    assert found == {0: [b"0", b"3"], 3: [b"1"], 1: [b"2"]}
    assert all(part.due_ms == 7 for [part] in lanes.values())
    publication.arrived()
    for [part] in lanes.values():
        assert answers == []
        part.arrived()
    assert answers == [None]


def test_who_waits_for_more_than_the_commit() -> None:
    simple = Arrival(Run(0, []), None, False, None)
    simple.arrived()  # Nobody is told.
    assert simple.is_simple
    assert not simple._replace(due_ms=1).is_simple
    assert not simple._replace(until_settled=True).is_simple
