"""The topics under $SYS: their values, when they come, and to whom."""

import asyncio

from entrepot.client.mqtt import MqttClient
from entrepot.gateway.mqtt.system_topics import _Load
from entrepot.wire.mqtt.packets import V5, Subscription
from tests.unit.client.test_mqtt import Stage, play

COUNT = 33  # Of all topics.


async def values(client: MqttClient, count: int) -> dict[str, str]:
    found = {}
    while len(found) < count:
        came = await client.receive()
        assert came.qos == 0
        found[came.topic.removeprefix("$SYS/broker/")] = bytes(came.payload).decode()
    return found


def test_who_subscribes_gets_all_values_at_once(seed: int) -> None:
    async def story(stage: Stage) -> None:
        await asyncio.sleep(5)
        client = await stage.client("one")
        await asyncio.sleep(7.2)
        await client.subscribe([Subscription("a/b", 1), Subscription("$share/g/c", 1)])
        await client.publish("a/b", b"x", 1)
        client.acknowledge(await client.receive())
        await client.publish("kept", b"x", 1, retain=True)
        await client.subscribe([Subscription("$SYS/#", 2)])
        await asyncio.sleep(1)
        assert len(client.messages) == COUNT
        assert all(each.is_retained for each in client.messages)
        found = await values(client, COUNT)
        assert found["version"].startswith("entrepot version ")
        assert found["uptime"] == "7 seconds"  # Since MQTT's first client.
        assert found["clients/connected"] == found["clients/maximum"] == "1"
        assert found["clients/disconnected"] == "0"
        assert found["publish/messages/received"] == "2"
        assert found["publish/messages/sent"] == "1"
        assert found["subscriptions/count"] == "2"
        assert found["shared_subscriptions/count"] == "1"
        assert found["retained messages/count"] == "1"
        assert found["store/messages/count"] == "1"
        assert found["bytes/received"] == "0"  # A simulated net does not count.
        assert found["load/publish/received/1min"] == "0.00"

    play(seed, story)


def test_what_changes_comes_in_intervals(seed: int) -> None:
    async def story(stage: Stage) -> None:
        client = await stage.client("one")
        topics = ["uptime", "clients/connected", "version", "load/publish/sent/1min"]
        await client.subscribe([Subscription(f"$SYS/broker/{each}") for each in topics])
        await values(client, 4)
        await client.subscribe([Subscription("mine")])
        await client.publish("mine", b"x")
        await client.receive()
        await asyncio.sleep(10.5)
        found = await values(client, 3)  # The first time all but what never changes.
        assert "version" not in found
        assert found["uptime"] == "10 seconds"
        assert 0 < float(found["load/publish/sent/1min"]) < 60
        await asyncio.sleep(10)
        assert [*await values(client, 2)] == ["uptime", "load/publish/sent/1min"]
        other = await stage.client("two")
        await asyncio.sleep(10)
        assert (await values(client, 3))["clients/connected"] == "2"
        other.close()
        assert not client.messages

    play(seed, story)


def test_other_filters_and_other_protocols_get_nothing(seed: int) -> None:
    async def story(stage: Stage) -> None:
        client = await stage.client("one", V5)
        await client.subscribe([Subscription("#", 1), Subscription("+/broker/uptime", 1)])
        vhost = stage.server.broker.vhosts.default
        subjects = vhost.subjects
        await asyncio.sleep(31)
        assert not client.messages
        assert not subjects.is_heard("$SYS.broker.uptime")
        assert subjects.retained.count == 0
        await client.subscribe([Subscription("$SYS/broker/clients/+")])
        found = await values(client, 6)
        assert {each.split("/")[0] for each in found} == {"clients"}

    play(seed, story)


def test_without_an_interval_there_are_none(seed: int) -> None:
    async def story(stage: Stage) -> None:
        client = await stage.client("one")
        await client.subscribe([Subscription("$SYS/#")])
        await asyncio.sleep(30)
        assert not client.messages

    play(seed, story, {"mqtt": {"sys_interval_seconds": 0}})


def test_averages_are_of_a_minute() -> None:
    load = _Load()
    total = 0
    for _ in range(60):  # Ten minutes, 20 a second.
        total += 200
        load.update(total, 10)
    one, five, fifteen = load.averages
    assert 1_199 < one <= 1_200
    assert 1_000 < five < one
    assert 500 < fifteen < five
