"""Parameters: each has its type, in JSON and in a form."""

import pytest

from entrepot.wire.sqs.errors import SqsError
from entrepot.wire.sqs.parameters import Parameters


def test_numbers_are_digits_in_a_form_only() -> None:
    assert Parameters({"n": 5}).number("n", 0, 9) == 5
    assert Parameters({"n": "5"}, are_texts=True).number("n", 0, 9) == 5
    assert Parameters({}).number("n", 1, 9) is None
    for value, are_texts in (("5", False), (True, False), (5.0, False), ("x", True), (10, False)):
        with pytest.raises(SqsError):
            Parameters({"n": value}, are_texts=are_texts).number("n", 0, 9)


def test_what_has_another_type_is_refused() -> None:
    for value in (1, None, [], {}):
        with pytest.raises(SqsError):
            Parameters({"a": value}).text("a")
    for value in (1, "x", {}, [1]):
        with pytest.raises(SqsError):
            Parameters({"a": value}).texts("a")
    for value in (1, "x", [], {"b": 1}):
        with pytest.raises(SqsError):
            Parameters({"a": value}).text_table("a")


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        (None, "EmptyBatchRequest"),
        ([], "EmptyBatchRequest"),
        ([{"Id": str(number)} for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a"}, {"Id": "a"}], "BatchEntryIdsNotDistinct"),
        ([{"Id": "a.b"}], "InvalidBatchEntryId"),
        ([{}], "MissingParameter"),
        ([1], "MalformedInput"),
        ("x", "MalformedInput"),
    ],
)
def test_batches(entries: object, code: str) -> None:
    with pytest.raises(SqsError) as caught:
        Parameters({"Entries": entries}).entries()
    assert caught.value.code.endswith(code)
    assert caught.value.is_senders
