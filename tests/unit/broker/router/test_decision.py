"""What is refused, in which words; and what a change brings with it."""

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


@pytest.mark.parametrize(
    ("kind", "arguments", "facts", "difference"),
    [
        ("topic", {}, {}, "'type' for X: received 'topic' but current is 'direct'"),
        (
            "x-consistent-hash",
            {},
            {},
            "'type' for X: received ''x-consistent-hash'' but current is 'direct'",
        ),
        (
            "direct",
            {},
            {"durable": False},
            "'durable' for X: received 'false' but current is 'true'",
        ),
        (
            "direct",
            {},
            {"auto_delete": True},
            "'auto_delete' for X: received 'true' but current is 'false'",
        ),
        (
            "direct",
            {},
            {"internal": True},
            "'internal' for X: received 'true' but current is 'false'",
        ),
        (
            "direct",
            {},
            {},
            "'alternate-exchange' for X: received none "
            "but current is the value 'other' of type 'longstr'",
        ),
        (
            "direct",
            {"alternate-exchange": "new"},
            {},
            "'alternate-exchange' for X: received 'new' but current is 'other'",
        ),
        (
            "direct",
            {"alternate-exchange": 7},
            {},
            "'alternate-exchange' for X: received '7' but current is 'other'",
        ),
    ],
)
def test_declaring_otherwise(
    kind: str, arguments: dict[str, object], facts: dict[str, bool], difference: str
) -> None:
    place = Place()
    place.declare("x", "direct", {"alternate-exchange": "other"})
    with pytest.raises(ExchangeMismatch) as error:
        place.declare("x", kind, arguments, **facts)
    assert said(error) == "inequivalent arg " + difference.replace("X", "exchange 'x' in vhost '/'")


def test_declaring_with_an_alternate_where_there_was_none() -> None:
    place = Place()
    place.declare("x", "direct")
    with pytest.raises(ExchangeMismatch) as error:
        place.declare("x", "direct", {"alternate-exchange": "a"})
    assert said(error).endswith("received the value 'a' of type 'longstr' but current is none")


NO_SIZE = "Missing or invalid argument, 'x-cache-size' must be an integer greater than 0"


@pytest.mark.parametrize(
    ("name", "kind", "arguments", "text"),
    [
        ("x", "direct", {"alternate-exchange": 7}, "invalid type 'signedint' for arg "
         "'alternate-exchange' in exchange 'x' in vhost '/'"),
        ("x", "x-delayed-message", {}, "Invalid argument, 'x-delayed-type' must be an existing "
         "exchange type"),
        ("x", "x-delayed-message", {"x-delayed-type": "x-delayed-message"}, "Invalid argument, "
         "'x-delayed-message' can't be used for 'x-delayed-type'"),
        ("x", "x-delayed-message", {"x-delayed-type": "odd"}, "unknown exchange type 'odd'"),
        ("x", "x-delayed-message", {"x-delayed-type": "x-message-deduplication"}, "Invalid "
         "argument, 'x-message-deduplication' can't be used for 'x-delayed-type'"),
        ("x", "x-message-deduplication", {}, NO_SIZE),
        ("x", "x-message-deduplication", {"x-cache-size": 0}, NO_SIZE),
        ("x", "x-message-deduplication", {"x-cache-size": True}, NO_SIZE),
        ("x", "x-message-deduplication", {"x-cache-size": "many"}, NO_SIZE),
        ("x", "x-message-deduplication", {"x-cache-size": "9" * 5_000}, NO_SIZE),
        ("x", "x-message-deduplication", {"x-cache-size": 1_000_001},
         "Invalid argument, 'x-cache-size' must not exceed 1000000"),
        ("x", "x-message-deduplication", {"x-cache-size": 5, "x-cache-ttl": -1},
         "Invalid argument, 'x-cache-ttl' must be an integer greater than 0"),
        ("x", "x-message-deduplication", {"x-cache-size": 5, "x-cache-persistence": "tape"},
         "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"),
        ("x", "x-consistent-hash", {"hash-header": "a", "hash-property": "message_id"},
         "hash-header and hash-property are mutually exclusive"),
        ("x", "x-consistent-hash", {"hash-property": "user_id"}, "Unsupported property: user_id"),
        ("x", "x-consistent-hash", {"hash-property": 7}, "Unsupported property: 7"),
        ("x", "x-consistent-hash", {"hash-header": 7},
         "invalid type 'signedint' for arg 'hash-header'"),
    ],
)  # fmt: skip
def test_arguments_that_are_refused(
    name: str, kind: str, arguments: dict[str, object], text: str
) -> None:
    with pytest.raises(InvalidExchange) as error:
        Place().declare(name, kind, arguments)
    assert said(error) == text


def test_names_that_are_refused() -> None:
    place = Place()
    with pytest.raises(ExchangeRefused) as error:
        place.declare("amq.mine", "direct")
    assert said(error) == "exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with pytest.raises(ExchangeRefused, match=DEFAULT):
        place.declare("", "direct")


def test_types() -> None:
    assert decision.exchange_type("x-consistent-hash") is ExchangeType.CONSISTENT_HASH
    with pytest.raises(InvalidExchange, match=r"^unknown exchange type 'odd'$"):
        decision.exchange_type("odd")


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


@pytest.mark.parametrize(
    ("source", "key", "arguments", "text"),
    [
        ("amq.match", "", {"x-match": "some"}, 'Invalid x-match field value <<"some">>; '
         "expected all, any, all-with-x, or any-with-x"),
        ("amq.match", "", {"x-match": 3}, "Invalid x-match field type signedint (value 3); "
         "expected longstr"),
        ("amq.match", "", {"x-match": None}, "Invalid x-match field type void (value undefined); "
         "expected longstr"),
        ("ring", "", {}, 'The binding key must be an integer: <<>>'),
        ("ring", "1.5", {}, 'The binding key must be an integer: <<"1.5">>'),
        ("ring", "0", {}, "The binding key must be greater than 0"),
        ("ring", "-3", {}, "The binding key must be greater than 0"),
        ("ring", "10001", {}, "The binding key must not exceed 10000"),
        ("late ring", "x", {}, 'The binding key must be an integer: <<"x">>'),
    ],
)  # fmt: skip
def test_bindings_that_are_refused(
    source: str, key: str, arguments: dict[str, object], text: str
) -> None:
    place = Place("q")
    place.declare("ring", "x-consistent-hash")
    place.declare("late ring", "x-delayed-message", {"x-delayed-type": "x-consistent-hash"})
    with pytest.raises(InvalidBinding) as error:
        place.bind(source, "q", key, arguments)
    assert said(error) == text
