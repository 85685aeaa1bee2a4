"""Delayed exchanges: messages wait, survive, and are routed on when they are due."""

import asyncio

import pytest

from entrepot.core.errors import UnknownQueue
from tests.unit.broker.virtual_host.bed import Host, message
from tests.unit.log.bed import simulated

DIRECT = {"x-delayed-type": "direct"}


async def begin(bed: Host) -> None:
    await bed.start()
    await bed.exchange("later", "x-delayed-message", arguments=DIRECT)
    await bed.declare("work")
    await bed.bind("later", "work", "k")


@simulated
async def test_a_message_waits(bed: Host) -> None:
    await begin(bed)
    run = [message(b"5", {"x-delay": 5_000}), message(b"2", {"x-delay": 2_000}), b"0"]
    assert await bed.publish("later", "k", *run) == []
    assert bed.bodies("work") == [b"0"]
    await asyncio.sleep(1.9)
    assert bed.bodies("work") == []
    await asyncio.sleep(0.2)
    assert bed.bodies("work") == [b"2"]
    await asyncio.sleep(2.8)
    assert bed.bodies("work") == []
    await asyncio.sleep(0.2)
    (taken,) = bed.drain("work")
    [(envelope, _)] = taken.run.messages
    assert (envelope.exchange, envelope.subject) == ("later", "k")
    await bed.publish("later", "k", message(b"1", {"x-delay": 1, "kept": "x"}))
    await asyncio.sleep(0.1)
    assert bed.headers("work") == [{"x-delay": -1, "kept": "x"}]


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
@simulated
async def test_a_message_survives_while_it_waits(bed: Host, end: str) -> None:
    await begin(bed)
    await bed.publish("later", "k", message(b"1", {"x-delay": 60_000}))
    await bed.publish("later", "k", message(b"2", {"x-delay": 600_000}))
    await bed.restart(end)
    await asyncio.sleep(58)
    assert bed.bodies("work") == []
    await asyncio.sleep(3)
    assert bed.bodies("work") == [b"1"]
    await asyncio.sleep(0.1)
    await bed.restart(end)
    assert bed.bodies("work") == []
    await asyncio.sleep(600)
    assert bed.bodies("work") == [b"2"]


@simulated
async def test_what_was_due_while_the_broker_was_down(bed: Host) -> None:
    await begin(bed)
    await bed.publish("later", "k", message(b"1", {"x-delay": 1_000}))
    bed.kill()
    await asyncio.sleep(100)
    await bed.start()
    await asyncio.sleep(0.1)
    assert bed.bodies("work") == [b"1"]


@pytest.mark.parametrize("end", ["", "kill"])
@simulated
async def test_the_time_to_live_begins_when_the_message_is_routed(bed: Host, end: str) -> None:
    await begin(bed)
    await bed.publish("later", "k", message(b"1", {"x-delay": 2_000}, expiration="500"))
    if end:
        await bed.restart(end)
    await asyncio.sleep(2.2)
    assert bed.vhost.queue("work").ready_count == 1
    await asyncio.sleep(0.5)
    assert bed.vhost.queue("work").ready_count == 0


@simulated
async def test_nobody_finds_the_queue(bed: Host) -> None:
    await begin(bed)
    with pytest.raises(UnknownQueue):
        bed.vhost.queue("amq.delayed")
    assert await bed.publish("", "amq.delayed", b"1") == [b"1"]
    assert "amq.delayed" not in bed.broker.topics
    assert list(bed.vhost.queues) == ["work"]


@simulated
async def test_by_the_time_it_is_due_the_exchange_is_gone(bed: Host) -> None:
    await begin(bed)
    await bed.publish("later", "k", message(b"1", {"x-delay": 1_000}))
    await bed.do(bed.vhost.delete_exchange("later"))
    await asyncio.sleep(2)
    await bed.exchange("later", "x-delayed-message", arguments=DIRECT)
    await bed.bind("later", "work", "k")
    await bed.publish("later", "k", message(b"2", {"x-delay": 1_000}))
    await asyncio.sleep(2)
    assert bed.bodies("work") == [b"2"]


@simulated
async def test_behind_another_exchange_and_with_copies(bed: Host) -> None:
    await begin(bed)
    await bed.exchange("front", "fanout")
    await bed.declare("at once")
    await bed.bind("front", "at once")
    await bed.lead("front", "later")
    await bed.declare("blind")
    await bed.bind("later", "blind", "b")
    sent = message(b"1", {"x-delay": 1_000, "BCC": ["b"]})
    await bed.publish("front", "k", sent)
    assert bed.headers("at once") == [{"x-delay": 1_000}]
    assert bed.bodies("work") == []
    await asyncio.sleep(1.1)
    (taken,) = bed.drain("work")
    assert taken.run.messages[0][0].exchange == "front"
    assert bed.headers("blind") == [{"x-delay": -1_000}]


@simulated
async def test_confirmed_when_consumed_in_the_end(bed: Host) -> None:
    await begin(bed)
    headers = {"x-delay": 1_000, "x-confirm": "consumed"}
    _, answer = bed.send("later", "k", message(b"1", headers))
    await asyncio.sleep(5)
    assert not answer.done()
    assert bed.bodies("work") == [b"1"]
    await asyncio.sleep(1)
    assert answer.done()


@simulated
async def test_a_queue_that_refuses(bed: Host) -> None:
    await begin(bed)
    await bed.declare("full", max_length=0, overflow="reject-publish")
    await bed.bind("later", "full", "f")
    for number in range(3):
        await bed.publish("later", "f", message(b"%d" % number, {"x-delay": 1_000}))
    await asyncio.sleep(2)
    await bed.publish("later", "k", message(b"next", {"x-delay": 1_000}))
    await asyncio.sleep(2)
    assert bed.bodies("work") == [b"next"]


@simulated
async def test_some_of_them_are_refused(bed: Host) -> None:
    """What was to be consumed and is refused or leads to no exchange is not confirmed."""
    await begin(bed)
    await bed.declare("small", max_length=1, overflow="reject-publish")
    await bed.bind("later", "small", "s")
    await bed.exchange("doomed", "x-delayed-message", arguments=DIRECT)
    headers = {"x-delay": 1_000, "x-confirm": "consumed"}
    sendings = [("later", "s", b"1"), ("later", "s", b"2"), ("later", "k", b"3")]
    sendings.append(("doomed", "k", b"4"))
    answers = [bed.send(name, key, message(body, headers))[1] for name, key, body in sendings]
    await asyncio.sleep(0.5)
    await bed.do(bed.vhost.delete_exchange("doomed"))
    await asyncio.sleep(2)
    assert (bed.bodies("small"), bed.bodies("work")) == ([b"1"], [b"3"])
    await asyncio.sleep(0.1)
    assert [answer.result() is None for answer in answers] == [True, False, True, False]
    delayed = bed.vhost.delayed
    assert delayed is not None
    account = delayed.account()
    assert (account.consumed, account.dropped, account.wrong) == (2, {"rejected": 2}, [])


@simulated
async def test_many(bed: Host) -> None:
    await begin(bed)
    run = [message(b"%d" % number, {"x-delay": 1_000}) for number in range(3_000)]
    await bed.publish("later", "k", *run)
    await asyncio.sleep(5)
    assert bed.bodies("work") == [b"%d" % number for number in range(3_000)]


@simulated
async def test_in_each_virtual_host_its_own(bed: Host) -> None:
    await begin(bed)
    await bed.publish("later", "k", message(b"1", {"x-delay": 1_000}))
    bed.vhost = await bed.do(bed.broker.vhosts.create("other"))
    await bed.exchange("later", "x-delayed-message", arguments=DIRECT)
    await bed.declare("work")
    await bed.bind("later", "work", "k")
    await bed.publish("later", "k", message(b"2", {"x-delay": 1_000}))
    await asyncio.sleep(2)
    assert bed.bodies("work") == [b"2"]
    bed.vhost = bed.broker.vhosts.default
    assert bed.bodies("work") == [b"1"]
