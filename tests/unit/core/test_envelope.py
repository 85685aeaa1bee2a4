"""Envelopes: what messages share."""

from entrepot.core.envelope import Envelope, distinct, kinds, routing_keys

A = Envelope("x", "a", b"p")
B = Envelope("x", "b", b"p")


def test_each_envelope_once_in_the_order_of_their_coming() -> None:
    assert list(distinct([(A, b"1")])) == [A]
    assert list(distinct([(A, b"1"), (Envelope(*A), b"2"), (A, b"3")])) == [A]
    assert list(distinct([(B, b"1"), (A, b"2"), (B, b"3"), (A, b"4")])) == [B, A]


def test_each_key_and_each_kind_of_properties_once() -> None:
    other = A._replace(properties=b"q")
    for envelopes, keys, properties in (
        ([A, A], ["a"], [b"p"]),
        ([B, A], ["b", "a"], [b"p"]),
        ([A, other, A], ["a"], [b"p", b"q"]),
        ([other, A, B, other], ["a", "b"], [b"q", b"p"]),
    ):
        messages = [(envelope, b"") for envelope in envelopes]
        assert list(routing_keys(messages)) == keys
        assert list(kinds(messages)) == properties
