"""What a publisher is told, when several queues have something to say."""

import pytest

from entrepot.broker.queue.message import Failure, Pending, Publication, Refused, Run
from entrepot.core import limits
from entrepot.core.errors import StorageError
from tests.unit.broker.queue.bed import envelope


def told(*failures: Failure | None) -> Failure | None:
    answers: list[Failure | None] = []
    publication = Publication(answers.append)
    for _ in failures:
        publication.expect()
    publication.arrived()
    for failure in failures:
        assert answers == []
        publication.arrived(failure)
    [answer] = answers
    return answer


def test_once_and_when_all_have_answered() -> None:
    assert told() is None
    assert told(None, None) is None


@pytest.mark.parametrize(
    ("failures", "places"),
    [
        ([Refused("x", [1])], [1]),
        ([Refused("x", [3, 1]), None, Refused("x", [2, 1])], [1, 2, 3]),
        ([Refused("x", [1]), Refused("x")], None),
        ([Refused("x"), Refused("x", [1])], None),
    ],
)
def test_what_one_queue_has_not_got_is_lost(
    failures: list[Failure | None], places: list[int] | None
) -> None:
    answer = told(*failures)
    assert isinstance(answer, Refused)
    assert (answer.places if places is None else list(answer.places or ())) == places


def test_a_disk_s_failure_is_the_worst() -> None:
    assert isinstance(told(Refused("x", [1]), StorageError("y")), StorageError)
    assert isinstance(told(StorageError("y"), Refused("x", [1])), StorageError)


@pytest.mark.parametrize(
    ("failure", "places"), [(Refused("x", [0, 2]), [4, 6]), (Refused("x"), [4, 5, 6])]
)
def test_a_part_is_told_with_its_places_in_the_whole(failure: Refused, places: list[int]) -> None:
    answers: list[Failure | None] = []
    publication = Publication(answers.append)
    part = publication.part(range(4, 7))
    part.expect()
    part.arrived()
    publication.arrived()
    part.arrived(failure)
    [answer] = answers
    assert isinstance(answer, Refused)
    assert list(answer.places or ()) == places


def test_a_part_that_arrives() -> None:
    answers: list[Failure | None] = []
    publication = Publication(answers.append)
    part = publication.part(range(2))
    publication.arrived()
    assert answers == []
    part.arrived()
    assert answers == [None]


def test_what_can_be_appended_as_it_is() -> None:
    def one(size: int, **fields: object) -> Pending:
        return Pending(Run(0, [(envelope(), bytes(size))]), None, **fields)  # type: ignore[arg-type]

    plain = one(limits.LARGE_BYTES)
    plain.arrived()  # Nobody is told.
    assert plain.is_plain
    assert not one(1, due_ms=1).is_plain
    assert not one(1, until_settled=True).is_plain
    assert not one(limits.LARGE_BYTES + 1).is_plain


def test_nobody_need_be_told() -> None:
    Publication(None).arrived()
