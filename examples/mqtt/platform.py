"""A platform for devices that come and go: they lose their connections, change from a cable to a
browser's WebSocket and from one version of MQTT to another, and the broker is killed meanwhile.

    python -m examples.mqtt.platform

Each device has a session and a will. It reports readings, which a binding keeps in a topic for
Kafka's consumers; the platform sends it commands, mostly while it is away; and a retained message
says whether it is there.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from random import Random

import paho.mqtt.client as paho
from confluent_kafka import Consumer, TopicPartition

from entrepot.testing import Broker, broker

DEVICES, ROUNDS = 12, 6
WAIT_S = 60.0
VERSIONS = (paho.MQTTv31, paho.MQTTv311, paho.MQTTv5)
WAYS = ("tcp", "websockets")


class Client:
    """A connection of paho's, and what came on it."""

    def __init__(self, name: str, version: int, way: str, on_message: Callable[..., None]) -> None:
        is_5 = version == paho.MQTTv5
        self._paho = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            name,
            clean_session=None if is_5 else False,
            protocol=version,
            transport=way,
        )
        self._is_5, self._way = is_5, way
        self._up, self._answered = threading.Event(), threading.Event()
        self._paho.on_connect = lambda *_: self._up.set()
        self._paho.on_subscribe = lambda *_: self._answered.set()
        self._paho.on_message = lambda client, data, message: on_message(message)

    def will(self, topic: str, text: str) -> None:
        self._paho.will_set(topic, text, qos=1, retain=True)

    def connect(self, server: Broker) -> Client:
        host, port = server.mqtt_address
        more: dict[str, object] = {}
        if self._is_5:
            properties = paho.Properties(paho.PacketTypes.CONNECT)
            properties.SessionExpiryInterval = 3_600
            more = {"clean_start": False, "properties": properties}
        if self._way == "websockets":
            self._paho.ws_set_options("/mqtt")
            host, _, text = server.http_address.rpartition(":")
            port = int(text)
        self._paho.connect(host, port, **more)
        self._paho.loop_start()
        assert self._up.wait(WAIT_S), "no connection"
        return self

    def subscribe(self, filter: str, qos: int) -> None:
        self._answered.clear()
        self._paho.subscribe(filter, qos)
        assert self._answered.wait(WAIT_S), "no subscription"

    def publish(self, topic: str, text: str, qos: int, *, retain: bool = False) -> None:
        """Return when it is answered."""
        self._paho.publish(topic, text, qos, retain).wait_for_publish(WAIT_S)

    def vanish(self) -> None:
        """End without a word."""
        self._paho.loop_stop()
        sock = self._paho.socket()
        if sock is not None:
            sock.close()

    def leave(self) -> None:
        self._paho.disconnect()
        self._paho.loop_stop()


class Device:
    def __init__(self, number: int) -> None:
        self.name = f"device-{number}"
        self.commands: list[str] = []
        self.readings = 0
        self.ways: set[tuple[int, str]] = set()
        self._client: Client | None = None

    def come(self, server: Broker, version: int, way: str) -> None:
        """Connect, and get what was sent meanwhile."""
        self.ways.add((version, way))
        client = Client(self.name, version, way, self._obey)
        client.will(f"platform/{self.name}/state", "away")
        self._client = client.connect(server)
        client.subscribe(f"platform/{self.name}/commands", 2)
        client.publish(f"platform/{self.name}/state", "here", 1, retain=True)

    def _obey(self, message: paho.MQTTMessage) -> None:
        self.commands.append(message.payload.decode())

    def report(self) -> None:
        assert self._client is not None
        self._client.publish(f"readings/{self.name}", str(self.readings), 2)
        self.readings += 1

    def go(self, *, politely: bool) -> None:
        """End the connection. Who vanishes has its will published."""
        assert self._client is not None
        if politely:
            self._client.publish(f"platform/{self.name}/state", "away", 1, retain=True)
            self._client.leave()
        else:
            self._client.vanish()
        self._client = None


class States:
    """What the platform knows of its devices, by their retained messages."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def hear(self, message: paho.MQTTMessage) -> None:
        self.known[message.topic.split("/")[1]] = message.payload.decode()

    def are(self, state: str) -> bool:
        return len(self.known) == DEVICES and set(self.known.values()) == {state}


def until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.02)


def command(*words: str) -> None:
    whole = [sys.executable, "-m", "entrepot.cli", *words]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL)


def stored(server: Broker, count: int) -> list[tuple[str, str]]:
    """Return the readings of the topic, as a consumer of Kafka's sees them."""
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "platform"})
    consumer.assign([TopicPartition("readings", 0, 0)])
    found = []
    while len(found) < count and (record := consumer.poll(WAIT_S)) is not None:
        found.append((record.key().decode(), record.value().decode()))
    extra = consumer.poll(1)
    consumer.close()
    return found if extra is None else [*found, ("one", "more")]


def main() -> None:
    random = Random(4)
    with broker(settings={"ports.http": 0}) as server:
        command("topics", "create", "readings", "--bootstrap-server", server.bootstrap)
        command("bind", "readings/+", "topic:readings", "--http", server.http_address)
        devices = [Device(number) for number in range(DEVICES)]
        sent: dict[str, list[str]] = {device.name: [] for device in devices}
        for round in range(ROUNDS):
            states = States()
            watching = Client("watching", paho.MQTTv5, "tcp", states.hear).connect(server)
            watching.subscribe("platform/+/state", 1)
            for place, device in enumerate(devices):  # Each round by another version and way.
                device.come(server, VERSIONS[(place + round) % 3], WAYS[(place + round) // 3 % 2])
            until(lambda states=states: states.are("here"), "all are here")
            for device in devices:
                device.report()
                device.report()
            until(
                lambda: all(device.commands == sent[device.name] for device in devices),
                "all commands of the last round",
            )
            for device in devices:
                device.go(politely=random.random() < 0.5)
            until(lambda states=states: states.are("away"), "the wills of those that vanished")
            for device in devices:
                for number in range(3):  # To somebody who is away.
                    text = f"{device.name}: {round}.{number}"
                    watching.publish(f"platform/{device.name}/commands", text, 2)
                    sent[device.name].append(text)
            watching.leave()
            if round % 2:
                server.kill()
                server.start()
        for device in devices:
            device.come(server, paho.MQTTv5, "tcp")
        until(
            lambda: all(device.commands == sent[device.name] for device in devices),
            "all commands of the last round",
        )
        for device in devices:
            device.go(politely=True)
        told(devices, sent, stored(server, sum(device.readings for device in devices)))


def told(
    devices: list[Device], sent: dict[str, list[str]], readings: list[tuple[str, str]]
) -> None:
    wanted = {
        (f"readings/{device.name}", str(number))
        for device in devices
        for number in range(device.readings)
    }
    ways = min(len(device.ways) for device in devices)
    obeyed = sum(len(device.commands) for device in devices)
    print(f"{DEVICES} devices, each by {ways} combinations of version and transport")
    print(f"{len(set(readings) & wanted)} of {len(wanted)} readings are in the topic", end="")
    print(f", {len(readings) - len(set(readings))} of them more than once")
    print(f"{obeyed} of {sum(map(len, sent.values()))} commands were obeyed, once and in order")
    print(f"{ROUNDS // 2} times the broker was killed meanwhile")


if __name__ == "__main__":
    main()
