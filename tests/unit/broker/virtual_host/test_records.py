"""The records of virtual hosts, as docs/formats/catalog.md has them, and their fold."""

from entrepot.broker.router.event import (
    Binding,
    Bound,
    Destination,
    DestinationKind,
    Exchange,
    ExchangeDeclared,
    ExchangeDeleted,
    ExchangeSettings,
    ExchangeType,
    Match,
    QueueAdded,
    Unbound,
)
from entrepot.broker.router.router import Router
from entrepot.broker.virtual_host.records import (
    KeptRouting,
    KeptVhosts,
    routing_deleted_records,
    routing_records,
    vhost_deleted_record,
    vhost_record,
)
from entrepot.core.record import Record

EXCHANGE = Exchange("e", ExchangeType.TOPIC)
BINDING = Binding("e", Destination(DestinationKind.QUEUE, "q"), "k")
CONDITIONAL = Binding(
    "e", BINDING.destination, "", (("a", 1), ("x-match", "any")), (("a", 1),), Match.ANY
)


def router() -> Router:
    made = Router("v")
    for event in (QueueAdded("q"), ExchangeDeclared(EXCHANGE), Bound(BINDING)):
        made.apply(event)
    return made


def folded(*records: Record) -> KeptRouting:
    kept = KeptRouting()
    for record in records:
        kind, _, name = (record.key or b"").decode().partition(":")
        assert kind == "routing"
        kept.apply(name, record.value)
    return kept


def test_the_bytes_of_the_records() -> None:
    assert vhost_record('a"b') == Record(b'vhost:"a\\"b"', b"")
    assert vhost_deleted_record("a") == Record(b'vhost:"a"', None)
    assert routing_records(router(), (Unbound(BINDING),)) == [
        Record(b'routing:["v", "[\\"binding\\",\\"e\\",\\"queue\\",\\"q\\",\\"k\\",[]]"]', None)
    ]
    (declared,) = routing_records(Router("v"), (ExchangeDeclared(EXCHANGE),))
    assert declared.key == b'routing:["v", "[\\"exchange\\",\\"e\\"]"]'
    assert declared.value == (
        b'{"type":"topic","durable":true,"auto_delete":false,"internal":false,'
        b'"settings":{},"arguments":[]}'
    )
    (bound,) = routing_records(router(), (Bound(CONDITIONAL),))
    assert bound.key == (
        b'routing:["v", "[\\"binding\\",\\"e\\",\\"queue\\",\\"q\\",\\"\\",'
        b'[[\\"a\\",1],[\\"x-match\\",\\"any\\"]]]"]'
    )
    assert bound.value == b'{"match":"any","conditions":[["a",1]]}'
    settings = ExchangeSettings(alternate="a", matches_as=ExchangeType.CONSISTENT_HASH)
    delayed = Exchange("d", ExchangeType.DELAYED, settings=settings, arguments=(("odd", 1),))
    (declared,) = routing_records(Router("v"), (ExchangeDeclared(delayed),))
    assert declared.value == (
        b'{"type":"delayed-message","durable":true,"auto_delete":false,"internal":false,'
        b'"settings":{"alternate":"a","matches_as":"consistent-hash"},"arguments":[["odd",1]]}'
    )


def test_only_what_survives_is_recorded() -> None:
    transient = Exchange("t", ExchangeType.FANOUT, durable=False)
    events = (QueueAdded("other"), ExchangeDeclared(transient), Bound(BINDING))
    assert len(routing_records(router(), events)) == 1


def test_the_fold_of_routing() -> None:
    other = Binding("e", Destination(DestinationKind.QUEUE, "q"), "other")
    made = router()
    records = [
        *routing_records(made, (Bound(BINDING), Bound(other))),
        *routing_records(made, (Unbound(BINDING), Bound(BINDING))),
        *routing_records(made, (ExchangeDeclared(EXCHANGE),)),
        *routing_records(made, (ExchangeDeclared(Exchange("f", ExchangeType.DIRECT)),)),
    ]
    kept = folded(*records)
    assert kept.take("v") == [
        ExchangeDeclared(EXCHANGE),
        ExchangeDeclared(Exchange("f", ExchangeType.DIRECT)),
        Bound(other),
        Bound(BINDING),
    ]
    assert kept.take("v") == kept.take("w") == []
    made.apply(ExchangeDeclared(Exchange("f", ExchangeType.DIRECT)))
    deleted = routing_records(made, (ExchangeDeleted("f"),))
    assert len(folded(*records, *deleted).take("v")) == 3


def test_all_of_it_deleted() -> None:
    made = router()
    records = routing_records(made, tuple(made.events()))
    assert len(records) == 2
    assert folded(*records, *routing_deleted_records(made)).take("v") == []


def test_the_fold_of_virtual_hosts() -> None:
    kept = KeptVhosts()
    for name, value in (('"a"', b""), ('"b"', b""), ('"a"', None), ('"b"', b"")):
        kept.apply(name, value)
    assert list(kept.names) == ["/", "b"]
