"""The way of a message through exchanges, and what the router remembers of it."""

import pytest

from entrepot.broker.router.event import ExchangeDeleted, QueueRemoved
from entrepot.broker.router.router import Held, Route
from entrepot.core import limits
from entrepot.core.errors import ExchangeRefused, UnknownExchange
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from tests.unit.broker.router.places import Place, binding, exchange, queue, said

# --- from one exchange


def test_the_default_exchange_knows_every_queue() -> None:
    place = Place("q")
    assert place.reached("", "q") == ("q",)
    assert place.reached("", "other") == ()
    place.add_queue("other")
    assert place.reached("", "other") == ("other",)
    place.remove_queue("q")
    assert place.reached("", "q") == ()


def test_direct() -> None:
    place = Place("a", "b")
    place.bind("amq.direct", "a", "k")
    place.bind("amq.direct", "b", "k")
    place.bind("amq.direct", "b", "other")
    assert place.reached("amq.direct", "k") == ("a", "b")
    assert place.reached("amq.direct", "other") == ("b",)
    assert place.reached("amq.direct", "K") == ()


def test_fanout_does_not_look() -> None:
    place = Place("a", "b")
    place.bind("amq.fanout", "a", "k", {"x": 1})
    place.bind("amq.fanout", "b")
    place.bind("amq.fanout", "b", "again")
    assert place.reached("amq.fanout", "whatever") == ("a", "b")
    place.unbind("amq.fanout", "b")
    assert place.reached("amq.fanout", "") == ("a", "b")
    place.unbind("amq.fanout", "b", "again")
    assert place.reached("amq.fanout", "") == ("a",)


def test_the_predeclared() -> None:
    found = {x.name: (x.type.value, x.durable, x.internal) for x in Place().router.exchanges()}
    assert found == {
        "": ("direct", True, False),
        "amq.direct": ("direct", True, False),
        "amq.fanout": ("fanout", True, False),
        "amq.headers": ("headers", True, False),
        "amq.match": ("headers", True, False),
        "amq.rabbitmq.trace": ("topic", True, True),
        "amq.topic": ("topic", True, False),
    }


def test_no_exchange() -> None:
    with pytest.raises(UnknownExchange, match=r"^no exchange 'x' in vhost '/'$"):
        Place().router.route("x", "k")


def test_an_internal_exchange_is_reached_from_inside() -> None:
    place = Place("q")
    place.declare("hidden", "fanout", internal=True)
    place.bind("hidden", "q")
    place.bind("amq.fanout", exchange("hidden"))
    with pytest.raises(ExchangeRefused) as error:
        place.router.route("hidden", "k")
    assert str(error.value) == "cannot publish to internal exchange 'hidden' in vhost '/'"
    assert place.router.route("hidden", "k", inside=True).queues == ("q",)
    assert place.reached("amq.fanout", "k") == ("q",)


# --- from one to the next


def test_exchanges_lead_to_exchanges() -> None:
    place = Place("a", "b", "c")
    place.bind("amq.fanout", exchange("amq.topic"))
    place.bind("amq.fanout", "a")
    place.bind("amq.topic", exchange("amq.direct"), "x.#")
    place.bind("amq.topic", "b", "x.*")
    place.bind("amq.direct", "c", "x.y")
    place.bind("amq.direct", "a", "x.y")
    assert place.reached("amq.fanout", "x.y") == ("a", "b", "c")
    assert place.reached("amq.fanout", "y") == ("a",)


def test_a_circle_ends() -> None:
    place = Place("q")
    place.bind("amq.fanout", exchange("amq.topic"))
    place.bind("amq.topic", exchange("amq.fanout"), "#")
    place.bind("amq.topic", exchange("amq.topic"), "#")
    place.bind("amq.fanout", "q")
    assert place.router.route("amq.topic", "k").queues == ("q",)


def test_an_alternate_takes_what_nobody_wants() -> None:
    place = Place("wanted", "rest")
    place.declare("x", "direct", {"alternate-exchange": "others"})
    place.bind("x", "wanted", "k")
    assert place.reached("x", "odd") == ()  # There is no such exchange yet.
    place.declare("others", "fanout")
    place.bind("others", "rest")
    assert place.reached("x", "odd") == ("rest",)
    assert place.reached("x", "k") == ("wanted",)
    place.declare("empty", "fanout")
    place.bind("x", exchange("empty"), "odd")
    assert place.reached("x", "odd") == ()  # A binding matched, wherever it leads.
    place.delete("others")
    assert place.reached("x", "other") == ()


def test_alternates_in_a_circle() -> None:
    place = Place("q")
    place.declare("a", "direct", {"alternate-exchange": "b"})
    place.declare("b", "direct", {"alternate-exchange": "a"})
    assert place.reached("a", "k") == ()
    place.bind("b", "q", "k")
    assert place.reached("a", "k") == ("q",)


def test_the_default_exchange_as_alternate_is_empty() -> None:
    """As in RabbitMQ: only who publishes to it directly reaches a queue by its name."""
    place = Place("q")
    place.declare("x", "direct", {"alternate-exchange": ""})
    assert place.reached("x", "q") == ()


# --- more than one key


def test_copies() -> None:
    place = Place("a", "b", "c", "rest")
    place.declare("x", "direct", {"alternate-exchange": "amq.fanout"})
    place.bind("amq.fanout", "rest")
    for name in ("a", "b", "c"):
        place.bind("x", name, name)
    copies = {"CC": ["b", 7, "a"], "BCC": ["c"]}
    assert place.router.route("x", "a", said(copies)).queues == ("a", "b", "c")
    assert place.reached("x", "odd", {"BCC": ["c"]}) == ("c",)  # Not unwanted, so no alternate.
    assert place.reached("x", "odd", {"CC": []}) == ("rest",)
    assert place.reached("", "a", copies) == ("a", "b", "c")
    assert place.router.route("", "a", said({"CC": ["a"]})).queues == ("a",)
    place.bind("amq.topic", "a", "k.*")
    assert place.router.route("amq.topic", "k.1", said({"CC": ["k.2"]})).queues == ("a",)


# --- waiting


def test_a_delayed_exchange_holds_and_then_matches() -> None:
    place = Place("q", "rest")
    arguments = {"x-delayed-type": "topic", "alternate-exchange": "amq.fanout"}
    place.declare("late", "x-delayed-message", arguments)
    place.bind("amq.fanout", "rest")
    place.bind("late", "q", "k.*")
    early, late = said({"x-delay": 5_000}), said({"x-delay": -5_000})
    assert place.router.route("late", "k.1", early) == Route((), (Held("late", 5_000),))
    assert place.router.route("late", "k.1", late) == Route(("q",))
    assert place.router.route("late", "k.1") == Route(("q",))
    assert place.router.route("late", "odd", early).queues == ()
    assert place.router.route("late", "odd", late).queues == ("rest",)
    assert place.router.reads_headers("late")


def test_only_what_lies_behind_a_delayed_exchange_waits() -> None:
    place = Place("now", "later")
    place.declare("late", "x-delayed-message", {"x-delayed-type": "fanout"})
    place.bind("late", "later")
    place.bind("amq.fanout", "now")
    place.bind("amq.fanout", exchange("late"))
    early = said({"x-delay": 10})
    assert place.router.route("amq.fanout", "", early) == Route(("now",), (Held("late", 10),))
    assert place.reached("late", "", {"x-delay": -10}) == ("later",)


# --- remembering


def test_the_same_answer_is_the_same_object() -> None:
    place = Place("q")
    place.bind("amq.topic", "q", "#")
    first = place.router.route("amq.topic", "k")
    assert place.router.route("amq.topic", "k", said({"a": 1})) is first
    place.add_queue("other")
    first = place.router.route("amq.topic", "k")
    place.bind("amq.topic", "other", "k")
    assert place.router.route("amq.topic", "k") != first


def test_what_depends_on_headers_is_not_remembered() -> None:
    place = Place("a", "b")
    place.bind("amq.topic", exchange("amq.match"), "#")
    place.bind("amq.match", "a", "", {"to": "a"})
    place.bind("amq.match", "b", "", {"to": "b"})
    assert place.reached("amq.topic", "k", {"to": "a"}) == ("a",)
    assert place.reached("amq.topic", "k", {"to": "b"}) == ("b",)


def test_who_reads_headers() -> None:
    place = Place("q")
    place.declare("x", "direct", {"alternate-exchange": "y"})
    place.declare("ring", "x-consistent-hash")
    router = place.router
    assert not any(map(router.reads_headers, ("", "x", "amq.topic", "ring", "nowhere")))
    assert router.reads_headers("amq.match")
    place.bind("amq.topic", exchange("x"), "#")
    place.declare("y", "headers")
    assert router.reads_headers("x")
    assert router.reads_headers("amq.topic")
    place.delete("y")
    assert not router.reads_headers("amq.topic")


def test_a_route_that_is_known_is_the_route() -> None:
    place = Place("q")
    place.bind("amq.topic", "q", "#")
    place.bind("amq.match", "q", "", {"to": "q"})
    router = place.router
    assert router.known_route("", "q") is router.route("", "q")
    assert router.known_route("", "other") is None
    assert router.known_route("amq.topic", "k") is None
    route = router.route("amq.topic", "k")
    assert not router.reads_headers("amq.topic")
    assert router.known_route("amq.topic", "k") is route
    place.bind("amq.topic", exchange("amq.match"), "#")  # Now it depends on headers.
    router.route("amq.topic", "k")
    assert router.reads_headers("amq.topic")
    assert router.known_route("amq.topic", "k") is None
    assert router.known_route("nowhere", "k") is None


def test_an_internal_exchange_has_no_known_route_for_clients() -> None:
    place = Place("q")
    router = place.router
    place.bind("amq.rabbitmq.trace", "q", "#")
    router.route("amq.rabbitmq.trace", "k", inside=True)
    assert not router.reads_headers("amq.rabbitmq.trace")
    assert router.known_route("amq.rabbitmq.trace", "k") is None


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROUTES_CACHED_NAMES_MAX", 10)
    place = Place("a", "b")
    place.bind("amq.topic", "a", "#")
    place.bind("amq.topic", "b", "k.#")
    for number in range(100):
        assert place.reached("amq.topic", f"k.{number}") == ("a", "b")
        nodes = place.router._nodes.values()
        remembered = [route for node in nodes for route in node.routes.values()]
        assert sum(1 + len(route.queues) for route in remembered) <= 10


def test_an_answer_that_is_too_long_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROUTE_CACHED_NAMES_MAX", 2)
    place = Place("a", "b")
    place.bind("amq.fanout", "a")
    place.bind("amq.fanout", "b")
    assert place.reached("amq.fanout") == ("a", "b")
    assert place.router._caching == {}


# --- what is kept


def test_what_is_bound_is_not_removed_by_an_event_alone() -> None:
    """The consequences are events too, and come before."""
    place = Place("q")
    place.declare("x", "fanout")
    place.bind("x", "q")
    place.bind("amq.fanout", exchange("x"))
    for event in (QueueRemoved("q"), ExchangeDeleted("x")):
        with pytest.raises(AssertionError):
            place.router.apply(event)


def test_what_survives_a_restart() -> None:
    place = Place("durable")
    place.add_queue("transient", durable=False)
    place.declare("kept", "direct")
    place.declare("lost", "direct", durable=False)
    for source in ("kept", "lost"):
        for name in ("durable", "transient"):
            place.bind(source, name, "k")
    place.bind("kept", exchange("lost"), "k")
    place.bind("kept", exchange("amq.topic"), "k")
    again = type(place.router).restored(place.router.snapshot(durable_only=True), PREDECLARED)
    assert list(again.bindings()) == [
        binding("kept", "durable", "k"),
        binding("kept", exchange("amq.topic"), "k"),
    ]
    assert again.exchange("lost") is None
    assert not again.has_queue("transient")
    assert again.bindings_to(queue("durable")) == (binding("kept", "durable", "k"),)
