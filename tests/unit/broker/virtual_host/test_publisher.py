"""Where messages go: by keys, by headers, to more than one place, and in their order."""

import asyncio

import pytest

from entrepot.broker.queue.message import Refused
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import ExchangeRefused, TopicDenied, UnknownExchange
from entrepot.core.message import Message
from tests.unit.broker.virtual_host.bed import Host, addressed, message, properties
from tests.unit.broker.virtual_host.taker import Taker
from tests.unit.log.bed import simulated


@simulated
async def test_a_run_goes_where_its_key_leads(bed: Host) -> None:
    await bed.start()
    for name in ("a", "b", "c"):
        await bed.declare(name, durable=name == "a")
    await bed.bind("amq.topic", "a", "#.x")
    await bed.bind("amq.topic", "b", "1.*")
    assert await bed.publish("amq.topic", "1.x", b"1", b"2") == []
    assert await bed.publish("amq.topic", "2.x", b"3") == []
    assert await bed.publish("amq.topic", "3", b"4", b"5") == [b"4", b"5"]
    assert [bed.bodies(name) for name in "abc"] == [[b"1", b"2", b"3"], [b"1", b"2"], []]


@simulated
async def test_what_is_wrong_with_the_exchange(bed: Host) -> None:
    await bed.start()
    await bed.exchange("inside", internal=True)
    with pytest.raises(UnknownExchange, match=r"^no exchange 'none' in vhost '/'$"):
        bed.send("none", "", b"a")
    with pytest.raises(ExchangeRefused, match="cannot publish to internal exchange 'inside'"):
        bed.send("inside", "", b"a")


@simulated
async def test_a_name_may_lead_elsewhere(bed: Host) -> None:
    await bed.start()
    for name in ("a", "away"):
        await bed.declare(name)
    bed.vhost.router.elsewhere = {"a@there": "away", "b@there": "gone", "a": "away"}.get
    assert await bed.publish("", "a@there", b"1") == []
    assert await bed.publish("", "b@there", b"2") == [b"2"]
    assert await bed.publish("", "a", b"3") == []
    assert await bed.publish("", "none", message(b"4", {"CC": ["a@there", "a"]})) == []
    assert [bed.bodies(name) for name in ("a", "away")] == [[b"3", b"4"], [b"1", b"4"]]
    assert [bed.vhost.router.is_elsewhere(name) for name in ("a@there", "a", "x")] == [1, 0, 0]


@simulated
async def test_what_comes_from_another_manager_comes_once(bed: Host) -> None:
    await bed.start()
    await bed.declare("a")
    twice = message(b"1", {"x-deduplication-header": "one"})
    assert await bed.publish("amq.link", "a", twice) == []
    assert await bed.publish("amq.link", "a", twice, message(b"2")) == []
    assert await bed.publish("amq.link", "missing", b"3") == [b"3"]
    await bed.restart()
    assert await bed.publish("amq.link", "a", twice) == []
    assert bed.bodies("a") == [b"1", b"2"]


@simulated
async def test_topics_have_their_own_rights_there_too(bed: Host) -> None:
    await bed.start()
    await bed.broker.create_topic("secret")

    def check(name: str) -> None:
        raise TopicDenied(f"no right to {name}")

    for exchange in ("", "amq.link"):
        with pytest.raises(TopicDenied, match="no right to secret"):
            bed.vhost.publish(exchange, [addressed(exchange, "secret", message(b"1"))], None, check)


@simulated
async def test_without_anybody_who_waits_for_it(bed: Host) -> None:
    await bed.start()
    await bed.declare("a")
    assert bed.call(bed.vhost.publish, "", [addressed("", "a", message(b"1"))], None) == ()
    await asyncio.sleep(0.1)
    assert bed.bodies("a") == [b"1"]


@simulated
async def test_headers_decide_message_by_message(bed: Host) -> None:
    await bed.start()
    for name in ("red", "blue"):
        await bed.declare(name)
        await bed.bind("amq.headers", name, color=name)
    red, blue = {"color": "red"}, {"color": "blue"}
    nowhere = await bed.publish(
        "amq.headers",
        "",
        message(b"1", red),
        message(b"2", red),
        message(b"3", blue),
        message(b"4"),
        message(b"5", red),
        message(b"6", {"color": "green"}),
    )
    assert nowhere == [b"4", b"6"]
    assert bed.bodies("red") == [b"1", b"2", b"5"]
    assert bed.bodies("blue") == [b"3"]


@simulated
async def test_what_a_full_queue_refuses_has_its_place_in_the_whole_run(bed: Host) -> None:
    await bed.start()
    red, blue = {"color": "red"}, {"color": "blue"}
    await bed.declare("red")
    await bed.declare("blue", max_length=1, overflow="reject-publish")
    for name in ("red", "blue"):
        await bed.bind("amq.headers", name, color=name)
    run = [message(b"1", red), message(b"2", blue), message(b"3", red), message(b"4", blue)]
    _, refused = await bed.published("amq.headers", "", *run)
    assert isinstance(refused, Refused)
    assert refused.places == [3]
    assert (bed.bodies("red"), bed.bodies("blue")) == ([b"1", b"3"], [b"2"])


@simulated
async def test_a_property_decides(bed: Host) -> None:
    await bed.start()
    await bed.exchange("ring", "x-consistent-hash", arguments={"hash-property": "message_id"})
    for name in ("a", "b"):
        await bed.declare(name)
        await bed.bind("ring", name, "1")
    run = [message(str(n).encode(), message_id=str(n // 2)) for n in range(40)]
    assert await bed.publish("ring", "k", *run) == []
    found = [bed.bodies(name) for name in ("a", "b")]
    assert all(found)
    assert all(
        int(body) % 2 or b"%d" % (int(body) + 1) in bodies for bodies in found for body in bodies
    )
    assert sum(map(len, found)) == 40


@simulated
async def test_copies(bed: Host) -> None:
    await bed.start()
    for name in ("to", "cc", "bcc", "other"):
        await bed.declare(name)
    headers = {"CC": ["cc", "nobody"], "BCC": ["bcc", "to"], "kept": 1}
    assert await bed.publish("", "to", b"before", message(b"copied", headers), b"after") == []
    assert bed.bodies("to") == [b"before", b"copied", b"after"]
    seen = {"CC": ["cc", "nobody"], "kept": 1}
    assert bed.headers("cc") == [seen]
    assert bed.headers("bcc") == [seen]
    assert bed.bodies("other") == []


@simulated
async def test_copies_from_an_exchange(bed: Host) -> None:
    await bed.start()
    for name in ("a", "b"):
        await bed.declare(name)
        await bed.bind("amq.direct", name, name)
    assert await bed.publish("amq.direct", "none", message(b"1", {"BCC": ["b"]})) == []
    assert bed.headers("b") == [{}]
    assert await bed.publish("amq.direct", "none", message(b"1", {"CC": ["none"]})) == [b"1"]


@simulated
async def test_confirmed_when_consumed(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("a")
    _, answer = bed.send("", "a", message(b"1", {"x-confirm": "consumed"}))
    _, early = bed.send("", "a", message(b"2", {"x-confirm": "stored"}))
    await asyncio.sleep(1)
    assert early.done()
    assert not answer.done()
    taker = Taker()
    bed.call(queue.add_consumer, taker)
    await asyncio.sleep(1)
    assert taker.bodies == [b"1", b"2"]
    assert not answer.done()
    lane, taken = taker.taken[0]
    bed.call(queue.settle, taker, lane, taken.offsets)
    await asyncio.sleep(1)
    assert answer.done()
    assert answer.result() is None


@simulated
async def test_a_topic_is_never_consumed(bed: Host) -> None:
    await bed.start()
    await bed.create("orders")
    assert await bed.publish("", "orders", message(b"1", {"x-confirm": "consumed"})) == []


@simulated
async def test_what_receivers_see(bed: Host) -> None:
    await bed.start()
    await bed.declare("a")
    await bed.bind("amq.direct", "a", "k")
    await bed.publish("amq.direct", "k", message(b"1", message_id="m"))
    (taken,) = bed.drain("a")
    [(envelope, body)] = taken.run.messages
    assert (envelope.exchange, envelope.subject, body) == ("amq.direct", "k", b"1")
    assert envelope.head == properties(message_id="m")
    assert envelope.properties.message_id == "m"


@simulated
async def test_an_alternate_exchange(bed: Host) -> None:
    await bed.start()
    await bed.exchange("first", arguments={"alternate-exchange": "amq.fanout"})
    await bed.declare("rest")
    await bed.bind("amq.fanout", "rest")
    assert await bed.publish("first", "unknown", b"1") == []
    assert bed.bodies("rest") == [b"1"]


# Runs with many keys.


def run_of(exchange: str, *places: tuple[str, bytes]) -> list[Message]:
    return [addressed(exchange, key, message(body)) for key, body in places]


@simulated
async def test_messages_that_go_the_same_way_stay_together_whatever_their_keys(bed: Host) -> None:
    await bed.start()
    for durable in (True, False):
        queue = await bed.queue("a", durable=durable)
        await bed.bind("amq.topic", "a", "#")
        taker = Taker()
        bed.call(queue.add_consumer, taker)
        run = run_of("amq.topic", ("k.1", b"1"), ("k.2", b"2"), ("k.1", b"3"))
        assert bed.send_run("amq.topic", run)[0] == []
        await asyncio.sleep(0.1)
        [(_, taken)] = taker.taken
        assert taken.run.messages == run
        await bed.delete_queue("a")


@simulated
async def test_a_durable_queue_has_each_message_under_its_key_after_a_crash(bed: Host) -> None:
    await bed.start()
    await bed.declare("a")
    await bed.bind("amq.topic", "a", "#")
    run = run_of("amq.topic", *[(f"k.{number % 3}", b"%d" % number) for number in range(10)])
    _, answer = bed.send_run("amq.topic", run)
    assert await answer is None
    await bed.restart("crash")
    assert [taken.run.messages[0] for taken in bed.drain("a")] == run


@simulated
async def test_each_queue_gets_what_is_for_it_in_order_and_as_one_run(bed: Host) -> None:
    await bed.start()
    takers = {name: Taker() for name in ("odd", "even", "all")}
    for name, taker in takers.items():
        queue = await bed.queue(name)
        bed.call(queue.add_consumer, taker)
    for number in range(10):
        await bed.bind("amq.direct", "odd" if number % 2 else "even", str(number))
        await bed.bind("amq.direct", "all", str(number))
    run = run_of("amq.direct", *[(str(number), b"%d" % number) for number in range(12)])
    nowhere, answer = bed.send_run("amq.direct", run)
    assert nowhere == [b"10", b"11"]
    assert await answer is None
    await asyncio.sleep(0.1)
    assert {
        name: [part.run.messages for _, part in each.taken] for name, each in takers.items()
    } == {
        "odd": [run[1:10:2]],
        "even": [run[0:10:2]],
        "all": [run[:10]],
    }


@simulated
async def test_what_a_queue_refuses_of_many_keys_has_its_place_in_the_run(bed: Host) -> None:
    await bed.start()
    await bed.declare("wide")
    await bed.declare("small", max_length=1, overflow="reject-publish")
    keys = ("small", "wide", "nobody", "small", "wide", "small")
    _, answer = bed.send_run("", run_of("", *[(key, b"%d" % at) for at, key in enumerate(keys)]))
    refused = await answer
    assert isinstance(refused, Refused)
    assert refused.places == [3, 5]
    assert (bed.bodies("wide"), bed.bodies("small")) == ([b"1", b"4"], [b"0"])


@simulated
async def test_who_is_confirmed_late_keeps_its_place_among_others(bed: Host) -> None:
    await bed.start()
    queue = await bed.queue("a")
    late = {"x-confirm": "consumed"}
    run = [message(b"1"), message(b"2", late), message(b"3"), message(b"4", late)]
    _, answer = bed.send("", "a", *run)
    await asyncio.sleep(0.1)
    assert not answer.done()
    taker = Taker()
    bed.call(queue.add_consumer, taker)
    await asyncio.sleep(0.1)
    assert taker.bodies == [b"1", b"2", b"3", b"4"]
    for lane, taken in taker.taken:
        bed.call(queue.settle, taker, lane, taken.offsets)
    assert await answer is None


@simulated
async def test_topics_and_queues_in_one_run(bed: Host) -> None:
    await bed.start()
    await bed.declare("work")
    await bed.create("orders")
    run = run_of("", ("work", b"1"), ("orders", b"2"), ("work", b"3"), ("orders", b"4"))
    nowhere, answer = bed.send_run("", run)
    assert (nowhere, await answer) == ([], None)
    assert bed.bodies("work") == [b"1", b"3"]
    assert [record.value for record in bed.records("orders")] == [b"2", b"4"]


# --- to very many


async def everybody(bed: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty queues at an exchange are very many, and every step is a turn."""
    monkeypatch.setattr(limits, "DESTINATIONS_AT_ONCE_MAX", 10)
    monkeypatch.setattr(limits, "TURN_MS", 0)
    await bed.start()
    for number in range(20):
        await bed.declare(f"q{number}")
        await bed.bind("amq.fanout", f"q{number}")


def counted_turns(monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    """Return a list that gets an element with each turn."""
    turns, wait = list[Turns](), Turns.next

    def counting(self: Turns) -> object:
        turns.append(self)
        return wait(self)

    monkeypatch.setattr(Turns, "next", counting)
    return turns


@simulated
async def test_very_many_queues_get_a_message_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    turns = counted_turns(monkeypatch)
    assert await bed.publish("amq.fanout", "", b"1") == []  # And it was confirmed.
    assert len(turns) >= 15
    assert all(bed.bodies(f"q{number}") == [b"1"] for number in range(20))


@simulated
async def test_what_is_published_next_waits_behind_it(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    sent = [
        bed.send("amq.fanout", "", b"1"),
        bed.send("", "q19", b"2"),
        bed.send("amq.fanout", "", b"3"),
    ]
    assert await asyncio.gather(*(answer for _, answer in sent)) == [None] * 3
    assert bed.bodies("q19") == [b"1", b"2", b"3"]
    assert bed.bodies("q3") == [b"1", b"3"]


@simulated
async def test_a_queue_that_goes_meanwhile_is_passed_over(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    _, answer = bed.send("amq.fanout", "", b"1")
    await bed.delete_queue("q19")
    assert await answer is None
    assert bed.bodies("q18") == [b"1"]


@simulated
async def test_very_many_queues_get_their_parts_of_a_run_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    for number in range(20):
        await bed.bind("amq.direct", f"q{number}", str(number % 5))
    turns = counted_turns(monkeypatch)
    keys = [str(number % 6) for number in range(12)]
    run = [addressed("amq.direct", key, message(b"%d" % at)) for at, key in enumerate(keys)]
    nowhere, answer = bed.send_run("amq.direct", run)
    sent = bed.send("", "q3", b"next")
    assert (nowhere, await answer, await sent[1]) == ([b"5", b"11"], None, None)
    assert len(turns) >= 15
    assert bed.bodies("q3") == [b"3", b"9", b"next"]
    assert [bed.bodies(f"q{number}") for number in (4, 19)] == [[b"4", b"10"]] * 2


@simulated
async def test_what_one_of_very_many_queues_refuses_has_its_place_in_the_whole_run(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    await bed.declare("full", max_length=1, overflow="reject-publish")
    for number in range(20):
        await bed.bind("amq.direct", f"q{number}", "b")
    await bed.bind("amq.direct", "full", "a")
    run = [addressed("amq.direct", key, message(key.encode())) for key in "baba"]
    failure = await bed.send_run("amq.direct", run)[1]
    assert isinstance(failure, Refused)
    assert failure.places == [3]


@simulated
async def test_very_many_topics_get_a_message_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their appends are in these turns, too, and not all in the one after them."""
    await everybody(bed, monkeypatch)
    for number in range(20):
        await bed.create(f"topic{number}")
        await bed.bind("amq.headers", f"topic{number}")
    monkeypatch.setattr(limits, "TURN_MS", 1_000)  # All in one turn of the loop.
    _, answer = bed.send("amq.headers", "", b"1")
    ends = [bed.served_partition(f"topic{n}").partition.offset_end for n in range(20)]
    assert ends == [1] * 20
    assert await answer is None
    assert [bed.values(f"topic{n}") for n in range(20)] == [[b"1"]] * 20


@simulated
async def test_some_queues_get_a_large_message_in_turns(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    await everybody(bed, monkeypatch)
    monkeypatch.setattr(limits, "DESTINATIONS_AT_ONCE_MAX", 100)
    for number in range(20):
        await bed.bind("amq.direct", f"q{number}", str(number % 2))
    turns = counted_turns(monkeypatch)
    large = bytes(limits.QUEUE_TURN_BYTES_MAX // 15)
    assert await bed.publish("amq.fanout", "", b"small") == []
    assert await bed.publish("amq.direct", "0", large) == []
    assert not turns
    assert await bed.publish("amq.fanout", "", large) == []
    assert len(turns) >= 15
    turns.clear()
    run = [addressed("amq.direct", key, message(large)) for key in "01"]
    assert await bed.send_run("amq.direct", run)[1] is None
    assert len(turns) >= 15
    assert bed.bodies("q4") == [b"small", large, large, large]


@simulated
async def test_publishers_wait_while_very_much_is_to_be_sent(
    bed: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else what is published faster than it is sent would take any amount of memory."""
    await everybody(bed, monkeypatch)
    memory, told = bed.broker.vhosts.memory_use, list[bool]()
    assert memory is not None
    memory.listen(bed, told.append)
    sent = [bed.send("amq.fanout", "", b"%d" % number)[1] for number in range(200)]
    assert not memory.is_high
    sent += [bed.send("amq.fanout", "", b"x")[1] for number in range(100)]
    assert told == [True]
    assert await asyncio.gather(*sent) == [None] * 300
    await asyncio.sleep(1)
    assert told == [True, False]
    assert len(bed.bodies("q7")) == 300
    assert memory.size == 0
    sent = [bed.send("amq.fanout", "", b"1")[1]]
    sent += [bed.send("", "q7", b"2")[1] for _ in range(300)]
    assert not memory.is_high, "these have one destination each, and little to do"
    await asyncio.gather(*sent)
