"""Envelopes: what messages share, and what is worked out for each once."""

import pytest

from entrepot.core.message import OPAQUE, Envelope, Handling, OpaqueFormat, distinct, subjects

A = Envelope("x", "a", b"p", OPAQUE)
B = Envelope("x", "b", b"p", OPAQUE)


def test_each_envelope_once_in_the_order_of_their_coming() -> None:
    assert list(distinct([(A, b"1")])) == [A]
    assert list(distinct([(A, b"1"), (A, b"2")])) == [A]
    assert list(distinct([(B, b"1"), (A, b"2"), (B, b"3"), (A, b"4")])) == [B, A]
    equal = A.with_head(b"p")
    assert [id(each) for each in distinct([(A, b"1"), (equal, b"2"), (A, b"3")])] == [
        id(A),
        id(equal),
    ]


def test_each_subject_once() -> None:
    other = A.with_head(b"q")
    for envelopes, found in (
        ([A], ["a"]),
        ([A, A], ["a"]),
        ([B, A], ["b", "a"]),
        ([A, other, A], ["a"]),
        ([other, A, B, other], ["a", "b"]),
    ):
        assert list(subjects([(envelope, b"") for envelope in envelopes])) == found


def test_envelopes_are_equal_by_what_they_say() -> None:
    assert A.with_head(b"p") == A
    assert hash(A) == hash(A.with_head(b"p"))
    assert A.with_head(b"q") != A
    assert A != B
    assert Envelope("y", "a", b"p", OPAQUE) != A
    assert Envelope("x", "a", b"p", OpaqueFormat()) != A
    assert A != ("x", "a", b"p")


@pytest.mark.pure
def test_handling_is_worked_out_once() -> None:
    class Counting(OpaqueFormat):
        asked = 0

        def handling(self, head: bytes) -> Handling:
            self.asked += 1
            return Handling(priority=5)

    counting = Counting()
    envelope = Envelope("x", "a", b"p", counting)
    assert [envelope.handling.priority, envelope.handling.priority, counting.asked] == [5, 5, 1]
    known = Envelope("x", "a", b"p", counting)
    known.handling = Handling(priority=6)
    assert (known.handling.priority, counting.asked) == (6, 1)
