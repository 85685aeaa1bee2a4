"""The MQTT client and the broker in a simulated world, and links that break."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest

from entrepot.client.errors import BadAnswer, Unreachable
from entrepot.client.mqtt import INBOX_MESSAGES_MAX, MqttClient, MqttRefused
from entrepot.client.mqtt_protocol import ClientSession
from entrepot.config import build
from entrepot.core.ports import Net, World
from entrepot.server import Server
from entrepot.wire.mqtt.packets import V5, V311, Connect, Subscription
from entrepot.wire.mqtt.properties import Properties
from entrepot.wire.mqtt.reasons import Reason
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork
from tests.websocket_door import WebSocketDoor

COUNT = 100
KEPT = Properties(session_expiry_interval=3600)


class Stage:
    def __init__(self, network: SimNetwork, server: Server) -> None:
        self.network = network
        self.server = server

    async def client(
        self,
        client_id: str = "",
        version: int = V5,
        *,
        session: ClientSession | None = None,
        keep_alive_s: int = 0,
        is_websocket: bool = False,
    ) -> MqttClient:
        properties = KEPT if session is not None else Properties()
        connect = Connect(version, client_id, session is None, keep_alive_s, properties=properties)
        door: Net = self.network.door("user")
        if is_websocket:
            door = cast("Net", WebSocketDoor(door, "/mqtt", "mqtt"))
        address = "broker:15672" if is_websocket else "broker:1883"
        return await MqttClient.open(door, address, connect, session)


def play(
    seed: int,
    story: Callable[[Stage], Awaitable[None]],
    settings: Mapping[str, object] | None = None,
) -> None:
    async def session(loop: SimLoop) -> None:
        network = SimNetwork(loop.random("net"))
        disk = SimDisk(loop.random("disk"))
        clock, entropy = SimClock(loop), SimEntropy(loop.random("entropy"))
        ports = {"kafka": 9092, "mqtt": 1883, "http": 15672}
        config = build({"host": "broker", "ports": ports, **(settings or {})}, "test")
        server = Server(config, World(clock, entropy, disk, network.door("broker")))
        await server.start()
        await story(Stage(network, server))
        await server.stop()

    run(seed, session)


@pytest.mark.parametrize("version", [V311, V5])
def test_messages_of_each_quality_and_a_retained_one(seed: int, version: int) -> None:
    async def story(stage: Stage) -> None:
        listener = await stage.client("listener", version)
        reasons = await listener.subscribe([Subscription("a/+", 2), Subscription("b", 0)])
        assert reasons == (Reason.GRANTED_QOS_2, Reason.SUCCESS)
        speaker = await stage.client("speaker", version)
        for qos in range(3):
            await speaker.publish(f"a/{qos}", b"%d" % qos, qos)
        await speaker.publish("b", b"kept", 1, retain=True)
        for qos in range(3):
            came = await listener.receive()
            assert (came.topic, bytes(came.payload), came.qos) == (f"a/{qos}", b"%d" % qos, qos)
            listener.acknowledge(came)
        assert not (await listener.receive()).is_retained
        await listener.unsubscribe(["b"])
        await listener.subscribe([Subscription("b", 1)])
        again = await listener.receive()
        assert (again.topic, bytes(again.payload), again.is_retained) == ("b", b"kept", True)
        listener.close()
        speaker.close()

    play(seed, story)


@pytest.mark.parametrize("is_websocket", [False, True])
def test_each_message_once_although_links_break(seed: int, is_websocket: bool) -> None:
    async def story(stage: Stage) -> None:
        session, other = ClientSession(), ClientSession()
        listener = await stage.client("listener", session=other, is_websocket=is_websocket)
        await listener.subscribe([Subscription("n", 2)])
        found: list[int] = []

        async def speak() -> None:
            for number in range(COUNT):
                while True:
                    try:
                        await client[0].send("n", b"%d" % number, 2)
                        break
                    except Unreachable:
                        client[0] = await again("speaker", session)
                await asyncio.sleep(0.002)
            while session.sent:
                try:
                    client[0]._check()
                    await asyncio.sleep(0.01)
                except Unreachable:
                    client[0] = await again("speaker", session)

        async def again(name: str, kept: ClientSession) -> MqttClient:
            while True:
                try:
                    return await stage.client(name, session=kept, is_websocket=is_websocket)
                except Unreachable:
                    await asyncio.sleep(0.02)

        async def listen() -> None:
            at = listener
            while len(found) < COUNT:
                try:
                    came = await at.receive()
                except Unreachable:
                    at = await again("listener", other)
                    continue
                found.append(int(bytes(came.payload)))
                at.acknowledge(came)

        async def trouble() -> None:
            for _ in range(6):
                await asyncio.sleep(0.05)
                stage.network.break_links("broker")

        client = [await stage.client("speaker", session=session, is_websocket=is_websocket)]
        await asyncio.gather(speak(), listen(), trouble())
        assert found == [*range(COUNT)]

    play(seed, story)


@pytest.mark.parametrize("is_websocket", [False, True])
def test_a_full_inbox_is_not_read_into(seed: int, is_websocket: bool) -> None:
    async def story(stage: Stage) -> None:
        listener = await stage.client("listener", is_websocket=is_websocket)
        await listener.subscribe([Subscription("n", 1)])
        speaker = await stage.client("speaker", is_websocket=is_websocket)
        count = 3 * INBOX_MESSAGES_MAX
        for number in range(count):
            await speaker.send("n", b"%d" % number, 1)
        await asyncio.sleep(1)
        assert len(listener.messages) < 2 * INBOX_MESSAGES_MAX
        for number in range(count):
            came = await listener.receive()
            assert bytes(came.payload) == b"%d" % number
            listener.acknowledge(came)

    play(seed, story)


def test_keep_alive_keeps_it_and_taking_over_ends_it(seed: int) -> None:
    async def story(stage: Stage) -> None:
        first = await stage.client("one", keep_alive_s=4)
        await asyncio.sleep(60)
        assert first.failure is None
        await stage.client("one")
        with pytest.raises(MqttRefused, match=r"another client.*\(0x8e\)"):
            await first.receive()
        with pytest.raises(MqttRefused):
            await first.publish("a", b"", 1)

    play(seed, story)


def test_what_is_refused_is_told(seed: int) -> None:
    async def story(stage: Stage) -> None:
        client = await stage.client("one")
        with pytest.raises(MqttRefused, match=r"\$SYS/x: no permission \(0x87\)"):
            await client.publish("$SYS/x", b"", 1)
        connect = Connect(V311, "", clean_start=False)
        with pytest.raises(MqttRefused, match="client identifier"):
            await MqttClient.open(stage.network.door("user"), "broker:1883", connect)
        with pytest.raises((BadAnswer, Unreachable)):
            await MqttClient.open(stage.network.door("user"), "broker:9092", Connect())
        with pytest.raises(Unreachable, match="no broker answers at broker:1"):
            await MqttClient.open(stage.network.door("user"), "broker:1", Connect())

    play(seed, story)
