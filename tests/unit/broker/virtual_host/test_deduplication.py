"""A queue gets a message once, however often it is published to a deduplicating exchange."""

import asyncio
import errno
import gc
import random
from collections.abc import Callable
from typing import Any

import pytest

from entrepot.broker.queue.message import Refused
from entrepot.broker.queue.stream_reader import StreamReader
from entrepot.broker.virtual_host.deduplication import Memory
from entrepot.core import limits
from entrepot.core.errors import NotEnoughReplicasAfterAppend, StorageError
from entrepot.wire.amqp.properties import BasicProperties, encode
from tests.unit.broker.virtual_host.bed import FORMATS, Host, Unsent, addressed, message
from tests.unit.broker.virtual_host.taker import Taker
from tests.unit.log.bed import simulated


def once(identity: object, body: bytes | None = None, **headers: object) -> Unsent:
    body = str(identity).encode() if body is None else body
    return message(body, {"x-deduplication-header": identity, **headers})


async def house(bed: Host, *queues: str, size: int = 100, **arguments: Any) -> None:
    """An exchange "once", bound to these queues."""
    await bed.start()
    table = {"x-cache-size": size, **{f"x-{k.replace('_', '-')}": v for k, v in arguments.items()}}
    await bed.exchange("once", "x-message-deduplication", arguments=table)
    for name in queues:
        await bed.declare(name)
        await bed.bind("once", name)


@simulated
async def test_the_second_is_dropped_and_confirmed(bed: Host) -> None:
    await house(bed, "a", "b")
    assert await bed.publish("once", "any key", once(1), once(2), once(1)) == []
    assert await bed.publish("once", "", once(2), once("2"), once(3)) == []
    assert await bed.publish("once", "", once(3)) == []
    assert bed.bodies("a") == bed.bodies("b") == [b"1", b"2", b"2", b"3"]
    assert await bed.publish("once", "", once(1)) == []  # Consumed, but not forgotten.
    assert (bed.bodies("a"), bed.bodies("b")) == ([], [])


@simulated
async def test_without_an_id_it_comes_as_often_as_it_is_sent(bed: Host) -> None:
    await house(bed, "a")
    await bed.publish("once", "", b"x", b"x", message(b"x", {"other": 1}))
    assert bed.bodies("a") == [b"x", b"x", b"x"]


@simulated
async def test_without_anybody_who_waits(bed: Host) -> None:
    await house(bed, "a")
    for _ in range(2):
        assert not bed.call(bed.vhost.publish, "once", [addressed("once", "", once(1))] * 2, None)
    await asyncio.sleep(0.1)
    assert bed.bodies("a") == [b"1"]


@simulated
async def test_what_is_on_too_few_nodes_is_stored(bed: Host) -> None:
    """It is refused, and so is a second one until there are enough; neither comes twice."""
    await house(bed, "a", "b")
    lane: Any = bed.vhost.queue("a").lanes[0]
    when_safe = lane._when_safe

    def too_few(offset_end: int, waiter: Callable[[StorageError | None], None]) -> None:
        error = NotEnoughReplicasAfterAppend("too few")
        when_safe(offset_end, lambda failure: waiter(failure or error))

    lane._when_safe = too_few
    for _ in range(2):
        _, failure = await bed.published("once", "", once(1))
        assert isinstance(failure, NotEnoughReplicasAfterAppend)
    lane._when_safe = when_safe
    assert await bed.publish("once", "", once(1)) == []
    assert bed.bodies("a") == bed.bodies("b") == [b"1"]


@simulated
async def test_what_goes_nowhere_is_not_remembered(bed: Host) -> None:
    await house(bed)
    assert await bed.publish("once", "", once(1)) == [b"1"]
    await bed.declare("a")
    await bed.bind("once", "a")
    assert await bed.publish("once", "", once(1)) == []
    assert bed.bodies("a") == [b"1"]


@simulated
async def test_each_exchange_has_its_own_memory(bed: Host) -> None:
    await house(bed, "a")
    await bed.exchange("other", "x-message-deduplication", arguments={"x-cache-size": 5})
    await bed.bind("other", "a")
    for exchange, key in (("once", ""), ("other", ""), ("", "a"), ("once", ""), ("other", "")):
        await bed.publish(exchange, key, once(1))
    await bed.restart("crash")
    for exchange in ("once", "other"):
        await bed.publish(exchange, "", once(1))
    assert bed.bodies("a") == [b"1", b"1", b"1"]


@simulated
async def test_an_exchange_that_is_made_anew_remembers_nothing(bed: Host) -> None:
    await house(bed, "a")
    await bed.publish("once", "", once(1))
    await bed.do(bed.vhost.delete_exchange("once"))
    await bed.exchange("once", "x-message-deduplication", arguments={"x-cache-size": 5})
    await bed.bind("once", "a")
    await bed.publish("once", "", once(1), once(1))
    assert bed.bodies("a") == [b"1", b"1"]


@simulated
async def test_queues_that_are_gone_are_forgotten(bed: Host) -> None:
    await house(bed, "a")
    for number in range(50):
        await bed.declare("short")
        await bed.bind("once", "short")
        await bed.publish("once", "", once(number))
        await bed.delete_queue("short")
    memory = bed.vhost._deduplication.memory("once")  # type: ignore[union-attr]
    assert memory is not None
    assert len(memory._ids) <= 20
    assert len(bed.bodies("a")) == 50


@simulated
async def test_a_queue_that_is_made_anew_gets_it(bed: Host) -> None:
    await house(bed, "a")
    await bed.publish("once", "", once(1))
    await bed.delete_queue("a")
    gc.collect()
    await bed.declare("a")
    await bed.bind("once", "a")
    await bed.publish("once", "", once(1), once(1))
    assert bed.bodies("a") == [b"1"]


@simulated
async def test_the_oldest_ids_make_room(bed: Host) -> None:
    await house(bed, "a", size=3)
    await bed.publish("once", "", *map(once, (1, 2, 3, 4)))
    await bed.publish("once", "", *map(once, (4, 3, 2)))
    await bed.publish("once", "", once(1))
    assert bed.bodies("a") == [b"1", b"2", b"3", b"4", b"1"]


@simulated
async def test_time_passes(bed: Host) -> None:
    await house(bed, "a", cache_ttl=1_000)
    short = {"x-cache-ttl": 100}
    await bed.publish("once", "", once(1), once(2, **short), once(3, **{"x-cache-ttl": "5000"}))
    await asyncio.sleep(0.5)
    await bed.publish("once", "", once(1), once(2), once(3))
    await asyncio.sleep(0.6)
    await bed.publish("once", "", once(1), once(2), once(3))
    assert bed.bodies("a") == [b"1", b"2", b"3", b"2", b"1"]


@simulated
async def test_time_passes_while_nobody_is_there(bed: Host) -> None:
    await house(bed, "a", cache_ttl=10_000)
    await bed.publish("once", "", once(1), once(2, **{"x-cache-ttl": 60_000}))
    await bed.restart("crash")
    bed.clock.jump(9_000)
    await bed.publish("once", "", once(1), once(2))
    await bed.restart("crash")
    bed.clock.jump(2_000)
    await bed.publish("once", "", once(1), once(2))
    assert bed.bodies("a") == [b"1", b"2", b"1"]


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
@simulated
async def test_what_was_confirmed_is_known_after_a_restart(bed: Host, end: str) -> None:
    """In every kind of queue, consumed or not."""
    await house(bed, "a")
    await bed.declare("ranked", max_priority=2)
    await bed.create("topic", 2)
    for name in ("ranked", "topic"):
        await bed.bind("once", name)
    for number in range(10):
        await bed.publish("once", "", once(number))
    assert len(bed.drain("a")) == 10
    await asyncio.sleep(0.1)
    await bed.restart(end)
    await bed.publish("once", "", *map(once, range(12)))
    assert bed.bodies("a") == [b"10", b"11"]
    assert len(bed.drain("ranked")) == 12
    assert sorted(values(bed, "topic"), key=int) == [b"%d" % number for number in range(12)]


def values(bed: Host, topic: str) -> list[bytes]:
    found: list[bytes] = []
    for served in bed.vhost._served_partitions_of(topic):
        reader = StreamReader(served, FORMATS, 0)
        while reader.is_behind:
            found += [bytes(body) for _, run in reader.read(100) for _, body in run.messages]
    return found


@simulated
async def test_the_newest_messages_are_looked_at(bed: Host) -> None:
    """As many as there are ids to be remembered; others may be among them."""
    await house(bed, "a", size=4)
    await bed.publish("once", "", *map(once, (1, 2, 3, 4)))
    await bed.publish("", "a", b"x", b"x")
    await bed.restart()
    await bed.publish("once", "", *map(once, (3, 4, 1, 2)))
    assert bed.bodies("a") == [b"1", b"2", b"3", b"4", b"x", b"x", b"1", b"2"]


@simulated
async def test_what_a_restart_has_lost_is_taken_again(bed: Host) -> None:
    """A message that was not persistent, but for a queue that keeps all."""
    await house(bed, "a")
    await bed.declare("quorum", queue_type="quorum")
    await bed.bind("once", "quorum")
    transient = encode(BasicProperties(headers={"x-deduplication-header": 1}))
    await bed.publish("once", "", (transient, b"1"))
    await bed.restart()
    await bed.publish("once", "", once(1, b"again"))
    assert bed.bodies("a") == [b"again"]
    assert bed.bodies("quorum") == [b"1"]


@simulated
async def test_a_queue_gets_what_only_the_other_got(bed: Host) -> None:
    """A crash came between the two."""
    await house(bed, "a", "b")
    await bed.publish("once", "", once(1))
    await bed.do(bed.vhost.unbind(bed.vhost.router.bindings_from("once")[1]))
    await bed.publish("once", "", once(2))
    await bed.bind("once", "b")
    await bed.restart()
    await bed.publish("once", "", once(1), once(2))
    assert bed.bodies("a") == bed.bodies("b") == [b"1", b"2"]


@simulated
async def test_a_full_queue_has_not_got_it(bed: Host) -> None:
    await house(bed, "a")
    await bed.declare("full", max_length=1, overflow="reject-publish")
    await bed.bind("once", "full")
    _, failure = await bed.published("once", "", once(1), once(2), once(2))
    assert isinstance(failure, Refused)
    assert failure.places == [1, 2]  # The third is the second, and shares its fate.
    bed.drain("full")
    await bed.publish("once", "", once(1), once(2))
    assert bed.bodies("full") == [b"2"]
    assert bed.bodies("a") == [b"1", b"2"]


@simulated
async def test_a_duplicate_waits_for_the_first(bed: Host) -> None:
    await house(bed, "a")
    _, first = bed.send("once", "", once(1))
    _, second = bed.send("once", "", once(1))
    await asyncio.sleep(0)
    assert not second.done()
    assert (await first, await second) == (None, None)
    bed.disk.fail_next("write", errno.ENOSPC, "partitions/a*.log")
    answers = [bed.send("once", "", once(2))[1] for _ in range(2)]
    assert [isinstance(await each, StorageError) for each in answers] == [True, True]
    await bed.publish("once", "", once(2))
    assert bed.bodies("a") == [b"1", b"2"]


@simulated
async def test_a_duplicate_waits_until_the_first_is_consumed(bed: Host) -> None:
    await house(bed, "a")
    taker = Taker()
    patient = once(1, **{"x-confirm": "consumed"})
    answers = [bed.send("once", "", patient)[1] for _ in range(2)]
    await asyncio.sleep(0.1)
    assert not any(each.done() for each in answers)
    queue = bed.vhost.queue("a")
    bed.call(queue.add_consumer, taker)
    await asyncio.sleep(0.1)
    ((lane, taken),) = taker.taken
    bed.call(queue.settle, taker, lane, taken.offsets)
    assert [await each for each in answers] == [None, None]


@simulated
async def test_a_log_that_cannot_be_read_is_not_guessed(bed: Host) -> None:
    await house(bed, "a")
    await bed.publish("once", "", once(1))
    await bed.restart()
    bed.disk.fail_next("read", errno.ENOMEM, "partitions/a*.log", 2)  # The queue's own, and ours.
    _, failure = await bed.published("once", "", once(1), once(2))
    assert isinstance(failure, StorageError)
    assert not bed.call(bed.vhost.publish, "once", [addressed("once", "", once(3))], None)
    await bed.publish("once", "", once(1), once(2))
    assert bed.bodies("a") == [b"1", b"3", b"2"]


@simulated
async def test_ids_are_looked_for_without_holding_up_others(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes meanwhile waits, and keeps its order."""
    monkeypatch.setattr(limits, "QUEUE_TURN_MESSAGES_MAX", 2)
    await house(bed, "a")
    await bed.publish("once", "", *map(once, range(20)))
    await bed.restart()
    answers = [bed.send("once", "", once(number))[1] for number in (19, 20, 0, 21, 20)]
    await bed.publish("", "a", b"by another way")
    assert [await each for each in answers] == [None] * 5
    found = bed.bodies("a")
    assert found == [*(b"%d" % each for each in range(20)), b"by another way", b"20", b"21"]


@simulated
async def test_through_another_exchange_it_is_a_fanout(bed: Host) -> None:
    """What is published elsewhere and comes by a binding is not looked at."""
    await house(bed, "a")
    await bed.lead("amq.topic", "once", "#")
    await bed.publish("amq.topic", "k", once(1), once(1))
    assert bed.bodies("a") == [b"1", b"1"]


# --- at any moment


QUEUES = ("a", "b")


async def publish_until_confirmed(bed: Host, names: list[int], done: dict[int, None]) -> None:
    """One after the other, again and again; until the process dies."""
    for name in names:
        if name not in done:
            _, answer = bed.send("once", "", *[once(name)] * (1 + name % 2))
            assert await answer is None
            done[name] = None


async def story(bed: Host, seed: int) -> None:
    chance = random.Random(seed)
    done: dict[int, None] = {}
    names = list(range(60))
    await house(bed, *QUEUES)
    for _ in range(6):
        work = asyncio.ensure_future(bed.do(publish_until_confirmed(bed, names, done)))
        await bed.sleep_up_to(0.15)
        getattr(bed, chance.choice(("kill", "crash")))()
        work.cancel()
        await bed.start()
    await bed.do(publish_until_confirmed(bed, names, done))
    for name in QUEUES:
        assert bed.bodies(name) == [b"%d" % number for number in names], name


@simulated
async def test_every_message_comes_once_whenever_the_broker_dies(bed: Host, seed: int) -> None:
    await story(bed, seed)


def test_the_story_notices_what_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Memory, "_found", lambda self, target, searched: iter(()))

    def tell_all() -> None:
        for seed in range(8):
            test_every_message_comes_once_whenever_the_broker_dies(seed=seed)

    with pytest.raises(AssertionError):
        tell_all()
