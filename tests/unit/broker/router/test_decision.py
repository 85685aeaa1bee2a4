"""What is refused; and what a change brings with it."""

import pytest

from entrepot.broker.router import decision
from entrepot.broker.router.event import (
    ExchangeDeleted,
    ExchangeType,
    QueueRemoved,
    Unbound,
)
from entrepot.core import limits
from entrepot.core.errors import (
    ExchangeInUse,
    ExchangeMismatch,
    ExchangeRefused,
    InvalidBinding,
    InvalidExchange,
    UnknownExchange,
    UnknownQueue,
)
from tests.unit.broker.router.places import Place, binding, exchange

DEFAULT = "operation not permitted on the default exchange"


def said(error: pytest.ExceptionInfo[Exception]) -> str:
    return str(error.value)


# --- declaring


def test_declaring_again_changes_nothing() -> None:
    place = Place()
    assert len(place.declare("x", "topic")) == 1
    assert place.declare("x", "topic") == ()
    assert place.declare("amq.topic", "topic") == ()
    assert place.declare("x", "topic", {"x-other": 1}) == ()  # RabbitMQ does not look either.


def test_declaring_otherwise() -> None:
    place = Place()
    place.declare("x", "direct")
    with pytest.raises(ExchangeMismatch, match="received 'topic' but current is 'direct'"):
        place.declare("x", "topic")


def test_names_that_are_refused() -> None:
    place = Place()
    with pytest.raises(InvalidExchange, match="an exchange's name has at most 255 bytes"):
        place.declare("x" * 256, "direct")
    with pytest.raises(ExchangeRefused, match="reserved prefix"):
        place.declare("amq.mine", "direct")
    with pytest.raises(ExchangeRefused, match=DEFAULT):
        place.declare("", "direct")


def test_finding() -> None:
    router = Place().router
    assert decision.find(router, "amq.fanout").type is ExchangeType.FANOUT
    with pytest.raises(UnknownExchange, match=r"^no exchange 'x' in vhost '/'$"):
        decision.find(router, "x")
    with pytest.raises(ExchangeRefused, match=DEFAULT):
        decision.find(router, "")


def test_there_may_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("q")
    monkeypatch.setattr(limits, "EXCHANGES_MAX", place.router.exchange_count + 1)
    monkeypatch.setattr(limits, "BINDINGS_MAX", 1)
    place.declare("x", "direct")
    with pytest.raises(InvalidExchange, match="exchange limit of 8 is reached"):
        place.declare("y", "direct")
    place.declare("x", "direct")
    place.bind("x", "q", "a")
    place.bind("x", "q", "a")
    with pytest.raises(InvalidBinding, match="binding limit of 1 is reached"):
        place.bind("x", "q", "b")


# --- deleting


def test_deleting_what_is_not_there() -> None:
    place = Place()
    assert place.delete("x") == ()
    assert place.remove_queue("q") == ()


def test_deleting_what_is_not_ones_own() -> None:
    place = Place()
    with pytest.raises(ExchangeRefused) as error:
        place.delete("amq.direct")
    assert said(error) == "deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    with pytest.raises(ExchangeRefused, match=DEFAULT):
        place.delete("")


def test_deleting_if_unused() -> None:
    place = Place("q")
    place.declare("x", "direct")
    place.bind("x", "q", "k")
    with pytest.raises(ExchangeInUse, match=r"^exchange 'x' in vhost '/' in use$"):
        place.delete("x", if_unused=True)
    place.unbind("x", "q", "k")
    place.bind("amq.topic", exchange("x"), "k")  # Being a destination is no use.
    assert len(place.delete("x", if_unused=True)) == 2
    assert place.router.bindings_from("amq.topic") == ()


def test_a_queue_takes_its_bindings_and_they_their_exchanges() -> None:
    place = Place("q", "other")
    place.declare("last", "direct", auto_delete=True)
    place.declare("shared", "direct", auto_delete=True)
    place.declare("kept", "direct")
    place.declare("before", "fanout", auto_delete=True)
    place.bind("before", exchange("last"))
    place.bind("last", "q", "a")
    place.bind("last", "q", "b")
    place.bind("shared", "q", "a")
    place.bind("shared", "other", "a")
    place.bind("kept", "q", "a")
    events = place.remove_queue("q")
    assert list(events) == [
        Unbound(binding("last", "q", "a")),
        Unbound(binding("last", "q", "b")),
        Unbound(binding("shared", "q", "a")),
        Unbound(binding("kept", "q", "a")),
        Unbound(binding("before", exchange("last"))),
        ExchangeDeleted("last"),
        ExchangeDeleted("before"),
        QueueRemoved("q"),
    ]
    assert place.router.exchange("shared") is not None
    assert place.router.exchange("kept") is not None


def test_an_auto_delete_exchange_waits_for_its_first_binding() -> None:
    place = Place("q")
    place.declare("x", "direct", auto_delete=True)
    assert place.unbind("x", "q") == ()
    place.bind("x", "q")
    assert len(place.unbind("x", "q")) == 2
    assert place.router.exchange("x") is None


def test_exchanges_bound_in_a_circle_go_together() -> None:
    place = Place()
    place.declare("a", "fanout", auto_delete=True)
    place.declare("b", "fanout", auto_delete=True)
    place.bind("a", exchange("b"))
    place.bind("b", exchange("a"))
    place.bind("a", exchange("a"))
    place.delete("b")
    assert place.router.exchange("b") is None
    assert place.router.exchange("a") is not None  # It is still bound to itself.
    place.delete("a")
    assert list(place.router.events()) == []


# --- binding


def test_binding_again_changes_nothing() -> None:
    place = Place("q")
    assert len(place.bind("amq.direct", "q", "k")) == 1
    assert place.bind("amq.direct", "q", "k") == ()
    assert len(place.bind("amq.direct", "q", "k", {"a": 1})) == 1  # Arguments are part of it.
    assert len(place.unbind("amq.direct", "q", "k")) == 1
    assert place.reached("amq.direct", "k") == ("q",)
    assert place.unbind("amq.direct", "q", "k") == ()
    assert place.unbind("nowhere", "q", "k") == ()


def test_binding_what_is_not_there() -> None:
    place = Place("q")
    with pytest.raises(UnknownExchange, match=r"^no exchange 'x' in vhost '/'$"):
        place.bind("x", "nowhere")
    with pytest.raises(UnknownQueue, match=r"^no queue 'nowhere' in vhost '/'$"):
        place.bind("amq.direct", "nowhere")
    with pytest.raises(UnknownExchange, match=r"^no exchange 'nowhere' in vhost '/'$"):
        place.bind("amq.direct", exchange("nowhere"))


def test_the_default_exchange_is_not_bound() -> None:
    place = Place("q")
    for source, to in (("", "q"), ("amq.direct", exchange(""))):
        with pytest.raises(ExchangeRefused, match=DEFAULT):
            place.bind(source, to)
        with pytest.raises(ExchangeRefused, match=DEFAULT):
            place.unbind(source, to)


def test_bindings_that_are_refused() -> None:
    place = Place("q")
    with pytest.raises(InvalidBinding, match="has at most 255 bytes"):
        place.bind("amq.direct", "q", "k" * 256)
    with pytest.raises(InvalidBinding, match="Invalid x-match"):
        place.bind("amq.match", "q", "", {"x-match": "some"})
    assert place.router.bindings_from("amq.match") == ()
