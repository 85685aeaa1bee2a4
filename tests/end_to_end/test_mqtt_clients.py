"""Other clients of MQTT: aiomqtt, and Mosquitto's on the command line."""

import asyncio
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest

from entrepot.testing import Broker
from tests.end_to_end.mqtt_peers import Client, eventually

WAIT_S = 30
needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="Mosquitto's clients are not installed"
)


def test_aiomqtt(server: Broker) -> None:
    host, port = server.mqtt_address

    async def body() -> list[tuple[str, bytes, int]]:
        got = []
        async with (
            aiomqtt.Client(host, port, identifier="aio-reader") as reader,
            aiomqtt.Client(host, port, protocol=aiomqtt.ProtocolVersion.V5) as writer,
        ):
            await reader.subscribe("aio/#", qos=2)
            for number in range(100):
                await writer.publish(f"aio/{number}", b"%d" % number, qos=number % 3)
            async for message in reader.messages:
                got.append((str(message.topic), bytes(message.payload), message.qos))
                if len(got) == 100:
                    return got
        return got

    got = asyncio.run(asyncio.wait_for(body(), WAIT_S))
    assert sorted(got) == sorted((f"aio/{n}", b"%d" % n, n % 3) for n in range(100))


class Mosquitto:
    """mosquitto_sub in the background, and mosquitto_pub."""

    def __init__(self, server: Broker, directory: Path) -> None:
        host, port = server.mqtt_address
        self._where = ["-h", host, "-p", str(port)]
        self._directory = directory
        self._running: list[subprocess.Popen[bytes]] = []

    def sub(self, *arguments: str) -> Path:
        """Begin to listen; return the file with one line for each message."""
        path = self._directory / f"sub-{len(self._running)}"
        command = [
            "stdbuf",
            "-oL",
            "mosquitto_sub",
            *self._where,
            "-F",
            "%q %r %t %p",
            "-d",
            *arguments,
        ]
        with path.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self._running.append(process)
        eventually(lambda: "received SUBACK" in path.read_text())
        return path

    def pub(self, *arguments: str) -> None:
        command = ["mosquitto_pub", *self._where, *arguments]
        subprocess.run(command, check=True, timeout=WAIT_S)

    def close(self) -> None:
        for process in self._running:
            process.terminate()
            process.wait(WAIT_S)


def lines(path: Path) -> list[str]:
    noise = ("Client ", "Subscribed ")
    return [each for each in path.read_text().splitlines() if not each.startswith(noise)]


@pytest.fixture
def mosquitto(server: Broker, tmp_path: Path) -> Iterator[Mosquitto]:
    made = Mosquitto(server, tmp_path)
    yield made
    made.close()


@needs_mosquitto
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
def test_mosquittos_clients(mosquitto: Mosquitto, version: str, qos: str) -> None:
    topic = f"mosquitto/{version}/{qos}"
    found = mosquitto.sub("-V", version, "-t", f"{topic}/+", "-q", "2", "-i", f"m{version}{qos}")
    for number in range(3):
        mosquitto.pub("-V", version, "-t", f"{topic}/{number}", "-m", f"text {number}", "-q", qos)
    eventually(lambda: len(lines(found)) == 3)
    assert lines(found) == [f"{qos} 0 {topic}/{number} text {number}" for number in range(3)]


@needs_mosquitto
def test_mosquittos_clients_and_a_session(server: Broker, mosquitto: Mosquitto) -> None:
    session = ("-V", "mqttv5", "-i", "kept", "-c", "-x", "600", "-t", "kept/+", "-q", "1")
    mosquitto.sub(*session)
    mosquitto.close()
    mosquitto._running.clear()
    for number in range(5):
        mosquitto.pub("-t", f"kept/{number}", "-m", f"{number}", "-q", "1")
    found = mosquitto.sub(*session)
    eventually(lambda: len(lines(found)) == 5)
    assert lines(found) == [f"1 0 kept/{number} {number}" for number in range(5)]


@needs_mosquitto
def test_mosquittos_clients_with_retained_messages_and_properties(
    server: Broker, mosquitto: Mosquitto
) -> None:
    mosquitto.pub(
        *("-V", "5", "-t", "m/retained", "-m", "kept", "-q", "1", "-r"),
        *("-D", "publish", "user-property", "k", "v", "-D", "publish", "content-type", "x/y"),
    )
    found = mosquitto.sub("-V", "5", "-t", "m/#", "-q", "1", "-F", "%r %p %P %C")
    eventually(lambda: lines(found))
    assert lines(found) == ["1 kept k:v x/y"]
    with Client(server.mqtt_address, "paho") as client:
        client.subscribe("m/retained", qos=1)
        client.wait_for(1)
        assert client.got[0].properties.UserProperty == [("k", "v")]


@pytest.mark.slow
@needs_mosquitto
def test_a_bridge_of_mosquitto(server: Broker, tmp_path: Path) -> None:
    """A real Mosquitto as a client: it bridges topics in both directions."""
    if shutil.which("mosquitto") is None:
        pytest.skip("Mosquitto is not installed")
    host, port = server.mqtt_address
    own = free_port()
    config = tmp_path / "mosquitto.conf"
    config.write_text(
        f"listener {own} 127.0.0.1\nallow_anonymous true\n"
        f"connection to-entrepot\naddress 127.0.0.1:{port}\nbridge_protocol_version mqttv311\n"
        "topic # out 1 up/ from-mosquitto/\ntopic # in 1 down/ to-mosquitto/\n"
    )
    log = (tmp_path / "log").open("wb")
    process = subprocess.Popen(["mosquitto", "-c", str(config)], stdout=log, stderr=log)
    try:
        with Client((host, port), "beside-the-bridge") as ours:
            ours.subscribe("from-mosquitto/#", qos=1)

            eventually(lambda: is_listening(own))
            client = Client(("127.0.0.1", own), "at-mosquitto").connect()
            client.subscribe("down/#", qos=1)

            def is_there() -> bool:
                client.publish("up/x", b"up", 1)
                ours.publish("to-mosquitto/y", b"down", 1)
                time.sleep(0.2)
                return bool(ours.got and client.got)

            eventually(is_there)
            assert ours.texts[0] == ("from-mosquitto/x", "up")
            assert client.texts[0] == ("down/y", "down")
            client.close()
    finally:
        process.terminate()
        process.wait(WAIT_S)
        log.close()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
