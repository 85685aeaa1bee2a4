"""The router with its indexes and its memory says what a plain search says, at every moment."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from entrepot.broker.router import decision
from entrepot.broker.router.event import (
    Binding,
    Destination,
    DestinationKind,
    Event,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeType,
    QueueAdded,
    QueueRemoved,
    Unbound,
    decode,
    encode,
)
from entrepot.broker.router.router import Router
from entrepot.core.value import freeze_table
from entrepot.gateway.rabbitmq.binding_arguments import BindingDeclaration
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED, ExchangeDeclaration
from tests.unit.broker.router.model import Model
from tests.unit.broker.router.places import said

QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = ("x0", "x1", "x2", "x3", "amq.topic", "amq.match")
TYPES = (ExchangeType.DIRECT, ExchangeType.FANOUT, ExchangeType.TOPIC, ExchangeType.HEADERS)

patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=4).map(".".join)
keys = st.lists(st.sampled_from(["a", "b", "c", "", *QUEUES]), max_size=4).map(".".join)
values = st.sampled_from(["v", "w", b"v", 1, 2, 1.0, True, False, None])
headers = st.dictionaries(st.sampled_from(["a", "b", "c", "x-a"]), values, max_size=3)
modes = st.sampled_from([{}, *({"x-match": m} for m in ("all", "any", "all-with-x", "any-with-x"))])
conditions = st.builds(lambda found, mode: {**found, **mode}, headers, modes)
destinations = st.one_of(
    st.builds(Destination, st.just(DestinationKind.QUEUE), st.sampled_from(QUEUES)),
    st.builds(Destination, st.just(DestinationKind.EXCHANGE), st.sampled_from(EXCHANGES)),
)
exchanges = st.builds(
    ExchangeDeclaration,
    st.just("/"),
    st.sampled_from(EXCHANGES[:4]),
    st.sampled_from(TYPES),
    durable=st.booleans(),
    auto_delete=st.booleans(),
    arguments=st.sampled_from([*EXCHANGES, "nowhere", None]).map(
        lambda name: freeze_table({"alternate-exchange": name} if name else {})
    ),
)


class Routing(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.router = Router(predeclared=PREDECLARED)
        self.exchanges = {exchange.name: exchange for exchange in self.router.exchanges()}
        self.queues: list[str] = []
        self.bindings: dict[Binding, dict[str, object]] = {}
        self.log: list[Event] = []
        self.durable_log: list[Event] = []

    def apply(self, events: tuple[Event, ...]) -> None:
        """To the router, and to what the model works with."""
        for event in events:
            self.log.append(event)
            if self.router.is_durable(event):
                self.durable_log.append(event)
            self.router.apply(event)
            match event:
                case QueueAdded(name):
                    self.queues.append(name)
                case QueueRemoved(name):
                    self.queues.remove(name)
                case ExchangeDeclared(exchange):
                    self.exchanges[exchange.name] = exchange
                case ExchangeDeleted(name):
                    del self.exchanges[name]
                case Unbound(binding):
                    del self.bindings[binding]

    @initialize()
    def begin(self) -> None:
        for name in QUEUES:
            self.apply(decision.add_queue(self.router, name, durable=True))

    @rule(exchange=exchanges)
    def declare(self, exchange: ExchangeDeclaration) -> None:
        if exchange.name not in self.exchanges:
            self.apply(decision.declare(self.router, exchange))

    @rule(name=st.sampled_from(EXCHANGES[:4]))
    def delete(self, name: str) -> None:
        self.apply(decision.delete(self.router, name))

    @rule(name=st.sampled_from(QUEUES), durable=st.booleans())
    def toggle_queue(self, name: str, durable: bool) -> None:
        if name in self.queues:
            self.apply(decision.remove_queue(self.router, name))
        else:
            self.apply(decision.add_queue(self.router, name, durable=durable))

    @rule(
        source=st.sampled_from(EXCHANGES),
        to=destinations,
        key=patterns,
        arguments=st.one_of(st.just({}), conditions),
    )
    def bind(self, source: str, to: Destination, key: str, arguments: dict[str, object]) -> None:
        there = self.queues if to.kind is DestinationKind.QUEUE else self.exchanges
        if source in self.exchanges and to.name in there:
            ends = (source, to, key, freeze_table(arguments))
            self.apply(decision.bind(self.router, BindingDeclaration(*ends)))
            self.bindings.setdefault(Binding(*ends), arguments)

    @rule(data=st.data())
    def unbind(self, data: st.DataObject) -> None:
        if self.bindings:
            binding = data.draw(st.sampled_from(list(self.bindings)))
            self.apply(decision.unbind(self.router, binding))

    @rule(
        exchange=st.sampled_from(["", *EXCHANGES]),
        key=keys,
        told=headers,
        copies=st.lists(keys, max_size=2),
    )
    def publish(self, exchange: str, key: str, told: dict[str, object], copies: list[str]) -> None:
        if exchange not in self.exchanges:
            return
        model = Model(self.exchanges, list(self.bindings.items()), self.queues)
        message = {**told, "CC": copies} if copies else told
        route = self.router.route(exchange, key, said(message))
        assert len(set(route.queues)) == len(route.queues)
        assert sorted(route.queues) == model.route(exchange, [key, *copies], message)
        assert route.held == ()
        if not self.router.reads_headers(exchange) and not copies:
            assert self.router.route(exchange, key) == route

    @invariant()
    def everything_leads_somewhere(self) -> None:
        assert list(self.router.bindings()) == list(self.bindings)
        sources = {binding.source for binding in self.bindings}
        assert sources <= self.exchanges.keys()
        assert {x.name: x for x in self.router.exchanges()} == self.exchanges

    def teardown(self) -> None:
        """Its log, compacted or not, and its snapshot make the same router again."""
        again = [
            folded(self.log),
            folded(compacted(self.log)),
            Router.restored(self.router.snapshot(), PREDECLARED),
        ]
        for other in again:
            assert set(other.events()) == set(self.router.events())
            assert list(other.bindings()) == list(self.router.bindings())
        durable = folded(compacted(self.durable_log))
        kept = Router.restored(self.router.snapshot(durable_only=True), PREDECLARED)
        assert set(durable.events()) == set(kept.events())
        assert list(durable.bindings()) == list(kept.bindings())


def folded(log: list[Event]) -> Router:
    """As after a restart; and what is applied twice is applied once."""
    router = Router(predeclared=PREDECLARED)
    for event in log:
        router.apply(decode(*encode(event)))
        router.apply(event)
    return router


def compacted(log: list[Event]) -> list[Event]:
    """Only the newest of each name, in its place."""
    newest: dict[str, Event] = {}
    for event in log:
        name, _ = encode(event)
        newest.pop(name, None)
        newest[name] = event
    return list(newest.values())


TestRouting = Routing.TestCase
TestRouting.settings = settings(stateful_step_count=40)
