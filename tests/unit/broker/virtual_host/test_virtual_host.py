"""Exchanges and bindings that survive, and where dead letters go."""

import asyncio

import pytest

from entrepot.broker.router.event import (
    Binding,
    Bound,
    Destination,
    DestinationKind,
    Event,
    ExchangeSettings,
    ExchangeType,
)
from entrepot.core import limits
from entrepot.core.errors import (
    ExchangeMismatch,
    QueueLocked,
    StorageError,
    UnknownExchange,
    UnknownQueue,
)
from entrepot.core.record import Record
from tests.unit.broker.virtual_host.bed import Host, binding, message, wanted
from tests.unit.log.bed import simulated

# As they were written when the catalog had only the arguments of RabbitMQ.
OLDER_RECORDS = (
    Record(
        b'routing:["/", "[\\"exchange\\",\\"ring\\"]"]',
        b'{"type":"x-consistent-hash","durable":true,"auto_delete":false,"internal":false,'
        b'"arguments":[["alternate-exchange","amq.fanout"],["hash-header","id"]]}',
    ),
    Record(
        b'routing:["/", "[\\"exchange\\",\\"late\\"]"]',
        b'{"type":"x-delayed-message","durable":true,"auto_delete":false,"internal":false,'
        b'"arguments":[["x-delayed-type","topic"]]}',
    ),
    Record(
        b'routing:["/", "[\\"exchange\\",\\"once\\"]"]',
        b'{"type":"x-message-deduplication","durable":true,"auto_delete":false,"internal":false,'
        b'"arguments":[["x-cache-size","5"],["x-cache-ttl",60000]]}',
    ),
    Record(b'routing:["/", "[\\"binding\\",\\"late\\",\\"queue\\",\\"a\\",\\"k.*\\",[]]"]', b"{}"),
    Record(
        b'routing:["/", "[\\"binding\\",\\"amq.match\\",\\"queue\\",\\"a\\",\\"\\",'
        b'[[\\"colour\\",\\"blue\\"],[\\"size\\",7],[\\"x-match\\",\\"any\\"],'
        b'[\\"x-no\\",[\\"bool\\",true]]]]"]',
        b"{}",
    ),
    Record(
        b'routing:["/", "[\\"binding\\",\\"amq.match\\",\\"queue\\",\\"b\\",\\"\\",'
        b'[[\\"colour\\",\\"blue\\"],[\\"size\\",7]]]"]',
        b"{}",
    ),
)

ends = pytest.mark.parametrize("end", ["stop", "kill", "crash"])


def snapshot(bed: Host) -> tuple[list[Bound], set[Event]]:
    """What survives: bindings, in their order, and the rest."""
    router = bed.vhost.router
    kept = [event for event in router.events() if router.is_durable(event)]
    bound = [event for event in kept if isinstance(event, Bound)]
    return bound, {event for event in kept if not isinstance(event, Bound)}


@ends
@simulated
async def test_what_is_durable_survives_in_its_order(bed: Host, end: str) -> None:
    await bed.start()
    await bed.exchange("a", "topic", arguments={"alternate-exchange": "b", "x": [1, True]})
    await bed.exchange("b", "headers")
    await bed.exchange("gone", durable=False)
    await bed.declare("q")
    await bed.declare("transient", durable=False)
    await bed.create("stream")
    await bed.bind("a", "stream", "1")
    await bed.bind("a", "q", "2", n=1)
    await bed.bind("b", "q", "3")
    await bed.bind("a", "transient", "4")
    await bed.bind("gone", "q", "5")
    await bed.lead("a", "b")
    await bed.do(bed.vhost.unbind(binding("a", "stream", "1")))
    await bed.bind("a", "stream", "1")
    before = snapshot(bed)
    assert [event.binding.key for event in before[0]] == ["2", "3", "", "1"]
    await bed.restart(end)
    assert snapshot(bed) == before
    assert len(list(bed.vhost.router.events())) == len(before[0]) + len(before[1])
    assert await bed.publish("a", "1", b"x") == []
    assert bed.values("stream") == [b"x"]


@simulated
async def test_what_an_older_release_wrote(bed: Host) -> None:
    await bed.start()
    await bed.declare("a")
    await bed.declare("b")
    bed.broker.append_change(*OLDER_RECORDS)
    await bed.restart("stop")
    router = bed.vhost.router
    assert {each.name: each.settings for each in router.exchanges() if each.arguments} == {
        "ring": ExchangeSettings(alternate="amq.fanout", hash_header="id"),
        "late": ExchangeSettings(matches_as=ExchangeType.TOPIC),
        "once": ExchangeSettings(ids_max=5, ids_ttl_ms=60_000),
    }
    assert await bed.publish("late", "k.1", b"topic") == []
    assert await bed.publish("amq.match", "", message(b"any", {"size": 7})) == []
    nowhere = message(b"nowhere", {"size": 8, "x-no": True})
    assert await bed.publish("amq.match", "", nowhere) == [b"nowhere"]
    both = message(b"all", {"size": 7, "colour": "blue"})
    assert await bed.publish("amq.match", "", both) == []
    assert bed.bodies("a") == [b"topic", b"any", b"all"]
    assert bed.bodies("b") == [b"all"]
    await bed.bind("amq.match", "b", colour="blue", size=7)  # There already.
    for bound in router.bindings_from("amq.match"):
        await bed.do(bed.vhost.unbind(bound))
    await bed.restart()
    assert [each.source for each in bed.vhost.router.bindings()] == ["late"]
    await bed.stop()
    await bed.start(queues=False)  # What it cannot read it keeps.
    await bed.restart("stop")
    once = bed.vhost.router.exchange("once")
    assert once is not None
    assert once.settings.ids_max == 5


@ends
@simulated
async def test_what_is_deleted_does_not_come_back(bed: Host, end: str) -> None:
    await bed.start()
    empty = snapshot(bed)
    await bed.exchange("a", auto_delete=True)
    await bed.exchange("b")
    await bed.declare("q")
    await bed.bind("a", "q", "k")
    await bed.bind("b", "q", "k")
    await bed.do(bed.vhost.delete_exchange("b"))
    await bed.delete_queue("q")
    assert bed.vhost.router.exchange("a") is None
    await bed.restart(end)
    assert snapshot(bed) == empty


@simulated
async def test_declared_again(bed: Host) -> None:
    await bed.start()
    await bed.exchange("a")
    await bed.exchange("a")
    with pytest.raises(ExchangeMismatch):
        await bed.exchange("a", "fanout")
    await bed.declare("q")
    await bed.bind("a", "q")
    await bed.bind("a", "q")
    assert len(bed.vhost.router.bindings()) == 1
    with pytest.raises(UnknownQueue, match="no queue 'none' in vhost '/'"):
        await bed.bind("a", "none")
    with pytest.raises(UnknownExchange):
        await bed.bind("none", "q")


@simulated
async def test_nobody_binds_anothers_own(bed: Host) -> None:
    await bed.start()
    await bed.declare("mine", owner="ana", exclusive=True)
    ends = ("amq.fanout", "mine")
    with pytest.raises(QueueLocked):
        await bed.do(bed.vhost.bind(wanted(*ends), "ben"))
    await bed.do(bed.vhost.bind(wanted(*ends), "ana"))
    with pytest.raises(QueueLocked):
        await bed.do(bed.vhost.unbind(binding(*ends), "ben"))
    await bed.do(bed.vhost.unbind(binding(*ends), "ana"))


@simulated
async def test_a_verb_returns_when_it_is_permanent(bed: Host, seed: int) -> None:
    """Whatever was answered is there after a crash, whenever that comes."""
    await bed.start()
    await bed.declare("q")
    answered: list[str] = []

    async def work() -> None:
        for number in range(20):
            await bed.vhost.bind(wanted("amq.direct", "q", f"{number}"))
            answered.append(f"{number}")

    working = asyncio.ensure_future(bed.do(work()))
    await bed.sleep_up_to(0.05)
    working.cancel()
    await bed.restart("crash")
    bound = [each.key for each in bed.vhost.router.bindings()]
    assert bound[: len(answered)] == answered
    assert len(bound) <= len(answered) + 1


@simulated
async def test_a_disk_that_fails(bed: Host) -> None:
    await bed.start()
    await bed.exchange("auto", auto_delete=True)
    await bed.declare("mine", owner="ana", exclusive=True)
    await bed.bind("auto", "mine")
    bed.disk.fail_next("write", 28, "partitions/__catalog-0/*", 99)
    with pytest.raises(StorageError):
        await bed.exchange("a")
    assert bed.vhost.router.exchange("a") is None
    bed.call(bed.vhost.connection_gone, "ana")
    assert "mine" not in bed.vhost.queues
    assert bed.vhost.router.exchange("auto") is None


# --- dead letters


@ends
@simulated
async def test_dead_letters_are_routed(bed: Host, end: str) -> None:
    await bed.start()
    await bed.exchange("dead", "topic", internal=True)
    await bed.declare("grave")
    await bed.bind("dead", "grave", "#")
    await bed.declare("work", dead_letter_exchange="dead", message_ttl=1_000)
    await bed.publish("", "work", b"a", b"b")
    await asyncio.sleep(2)
    await bed.restart(end)
    assert bed.vhost.queue("work").ready_count == 0
    taken = bed.drain("grave")
    assert [bytes(each.run.messages[0][1]) for each in taken] == [b"a", b"b"]
    [(letter, _)] = taken[0].run.messages
    assert (letter.exchange, letter.subject) == ("dead", "work")


@simulated
async def test_what_expires_while_the_broker_is_down(bed: Host) -> None:
    """The queue it comes from is there before the one that it goes to."""
    await bed.start()
    await bed.exchange("dead", "fanout")
    await bed.declare("work", dead_letter_exchange="dead", message_ttl=1_000)
    await bed.declare("grave")
    await bed.bind("dead", "grave")
    await bed.publish("", "work", b"a", b"b")
    bed.kill()
    await asyncio.sleep(10)
    await bed.start()
    await asyncio.sleep(1)
    assert bed.bodies("grave") == [b"a", b"b"]
    assert bed.vhost.queue("work").unacked_count == 0


@simulated
async def test_dead_letters_that_lead_nowhere_are_gone(bed: Host) -> None:
    await bed.start()
    await bed.declare("a", dead_letter_exchange="none", max_length=1)
    await bed.declare("b", dead_letter_exchange="amq.fanout", max_length=1)
    for name in ("a", "b"):
        await bed.publish("", name, b"1", b"2")
        await asyncio.sleep(0.1)
        assert bed.vhost.queue(name).unacked_count == 0
        assert bed.bodies(name) == [b"2"]


@simulated
async def test_dead_letters_do_not_go_round(bed: Host) -> None:
    await bed.start()
    await bed.declare("a", dead_letter_exchange="", dead_letter_routing_key="b", message_ttl=100)
    await bed.declare("b", dead_letter_exchange="", dead_letter_routing_key="a", message_ttl=100)
    await bed.publish("", "a", b"1")
    await asyncio.sleep(2)
    counts = [bed.vhost.queue(name).ready_count for name in ("a", "b")]
    assert counts == [0, 0]


@simulated
async def test_dead_letters_in_a_stream(bed: Host) -> None:
    await bed.start()
    await bed.create("grave")
    await bed.declare("a", dead_letter_exchange="", dead_letter_routing_key="grave", max_length=1)
    await bed.publish("", "a", b"1", message(b"2"))
    await asyncio.sleep(0.1)
    assert bed.values("grave") == [b"1"]


@simulated
async def test_what_leads_to_a_queue(bed: Host) -> None:
    await bed.start()
    await bed.declare("q")
    await bed.bind("amq.direct", "q", "k")
    bound = bed.vhost.router.bindings_to(Destination(DestinationKind.QUEUE, "q"))
    assert bound == (Binding("amq.direct", Destination(DestinationKind.QUEUE, "q"), "k"),)


@pytest.mark.pure
@simulated
async def test_an_exchange_with_very_many_bindings_goes_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BINDINGS_AT_ONCE_MAX", 10)
    await bed.start()
    await bed.exchange("many")
    await bed.lead("many", "amq.fanout")
    await bed.declare("q", durable=True)
    for number in range(35):
        await bed.bind("many", "q", str(number))
    changed: list[int] = []
    change = bed.vhost._routing.change

    def counting(events: tuple[Event, ...], *records: object) -> bool:
        changed.append(len(events))
        return change(events, *records)

    monkeypatch.setattr(bed.vhost._routing, "change", counting)
    await bed.do(bed.vhost.delete_exchange("many"))
    assert changed == [10, 10, 10, 5, 2]
    await bed.restart()
    assert bed.vhost.router.exchange("many") is None
    assert bed.vhost.router.has_queue("q")
    assert not list(bed.vhost.router.bindings())
