"""Bridges to a real Mosquitto: both ways, without a loop, and while either side is away."""

import os
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from entrepot.testing import Broker, broker
from tests import certificates
from tests.certificates import Certificate
from tests.end_to_end.mqtt_peers import Client, eventually

MOSQUITTO = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
pytestmark = pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")


class Mosquitto:
    """A broker of Mosquitto's on a port of its own, which keeps what it has."""

    def __init__(self, directory: Path, more: str = "allow_anonymous true") -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.address = "127.0.0.1", found.getsockname()[1]
        self._config = directory / "mosquitto.conf"
        self._config.write_text(
            f"listener {self.address[1]} 127.0.0.1\n{more}\npersistence true\n"
            f"persistence_location {directory}/\nautosave_interval 1\nautosave_on_changes true\n"
            # With its window of 20, Mosquitto 2.0.11 forgets messages of QoS 2 that wait.
            "max_queued_messages 100000\nmax_inflight_messages 0\nuser root\n"
        )
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        assert MOSQUITTO is not None
        self._process = subprocess.Popen(
            [MOSQUITTO, "-c", str(self._config)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        eventually(self._is_there)
        return self

    def _is_there(self) -> bool:
        try:
            socket.create_connection(self.address, timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self, *, kill: bool = False) -> None:
        process, self._process = self._process, None
        if process is not None:
            if kill:
                process.kill()
            else:
                process.terminate()
            process.wait(30)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def bridged(mosquitto: Mosquitto, *topics: dict[str, Any], **how: Any) -> Broker:
    host, port = mosquitto.address
    settings = {"name": "mosquitto", "address": f"{host}:{port}", "topics": list(topics), **how}
    return broker(settings={"bridge": [settings], "ports.http": 0})


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path) as started:
        yield started


def said_of(ours: Broker) -> str:
    """What `entrepot status` says of the bridge."""
    command = [sys.executable, "-m", "entrepot.cli", "status", "--data-dir", str(ours.data_dir)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return next(line for line in said.splitlines() if line.startswith("bridge mosquitto"))


BOTH = {"filter": "#", "direction": "both", "qos": 2, "local_prefix": "here/"}


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_both_ways_and_no_loop(mosquitto: Mosquitto, version: str) -> None:
    topics = {**BOTH, "remote_prefix": "there/"}
    with (
        bridged(mosquitto, topics, version=version) as ours,
        Client(mosquitto.address, "theirs", version) as theirs,
        Client(ours.mqtt_address, "ours", version) as own,
    ):
        theirs.subscribe("there/#", qos=2)
        own.subscribe("here/#", qos=2)
        for qos in range(3):
            eventually(lambda: _arrives(own, theirs, "here/probe"))
            own.publish(f"here/out/{qos}", f"out {qos}", qos)
            theirs.publish(f"there/in/{qos}", f"in {qos}", qos)
        for client in (own, theirs):
            eventually(lambda client=client: len(_told(client)) >= 6)
        time.sleep(1)  # For what comes a second time.
        for client, place in ((own, "here"), (theirs, "there")):
            expected = [(f"{place}/out/{qos}", f"out {qos}") for qos in range(3)]
            expected += [(f"{place}/in/{qos}", f"in {qos}") for qos in range(3)]
            assert Counter(_told(client)) == Counter(expected)


def _told(client: Client) -> list[tuple[str, str]]:
    return [each for each in client.texts if "probe" not in each[0]]


def _arrives(sender: Client, getter: Client, topic: str) -> bool:
    before = len(getter.got)
    sender.publish(topic, "probe", 1)
    time.sleep(0.2)
    return len(getter.got) > before


def test_the_other_side_is_down_for_a_while(mosquitto: Mosquitto) -> None:
    out = {"filter": "out/#", "direction": "out", "qos": 2}
    into = {"filter": "in/#", "direction": "in", "qos": 2}
    with bridged(mosquitto, out, into) as ours:
        with Client(mosquitto.address, "theirs", clean=False, expiry_s=600) as theirs:
            theirs.subscribe("out/#", qos=2)
            with Client(ours.mqtt_address, "ours") as own:
                eventually(lambda: _arrives(own, theirs, "out/probe"))
        assert ": connected, 0 to send" in said_of(ours)
        mosquitto.stop()
        with Client(ours.mqtt_address, "ours") as own:
            for number in range(200):
                own.publish(f"out/{number}", f"{number}", 1 + number % 2)
        assert ": waiting, " in said_of(ours)
        assert "200 to send" in said_of(ours)
        ours.stop()
        ours.start()  # What waits is on disk.
        mosquitto.start()
        with Client(mosquitto.address, "theirs", clean=False, expiry_s=600) as theirs:
            eventually(lambda: len([t for t in theirs.texts if "probe" not in t[0]]) >= 200, 60)
            found = [each for each in theirs.texts if "probe" not in each[0]]
            expected = [(f"out/{number}", f"{number}") for number in range(200)]
            # Mosquitto publishes what it gets with QoS 2 later than what it gets with QoS 1.
            for qos in (1, 2):
                assert [e for e in found if 1 + int(e[1]) % 2 == qos] == expected[qos - 1 :: 2]


def test_retained_messages_and_prefixes(mosquitto: Mosquitto) -> None:
    with Client(mosquitto.address, "theirs") as theirs:
        theirs.publish("state/theirs", "kept there", 1, retain=True)
    topics = {"filter": "state/#", "direction": "both", "local_prefix": "b/"}
    with bridged(mosquitto, topics) as ours:
        with Client(ours.mqtt_address, "ours") as own:
            own.publish("b/state/ours", "kept here", 1, retain=True)
            with Client(ours.mqtt_address, "late") as late:
                eventually(lambda: _retained(late, "b/state/#") >= 2)
                assert sorted(set(late.texts)) == [
                    ("b/state/ours", "kept here"),
                    ("b/state/theirs", "kept there"),
                ]
        with Client(mosquitto.address, "late") as late:
            eventually(lambda: _retained(late, "state/#") >= 2)


def _retained(client: Client, filter: str) -> int:
    client.unsubscribe(filter)
    client.got.clear()
    client.subscribe(filter)
    time.sleep(0.2)
    return len({each.topic for each in client.got if each.retain})


def _locked(directory: Path, own: Certificate) -> Mosquitto:
    """Mosquitto under TLS, for the user `bridge` with a certificate and a password."""
    passwords = directory / "passwords"
    command = ["mosquitto_passwd", "-c", "-b", str(passwords), "bridge", "right"]
    subprocess.run(command, check=True)
    more = ("allow_anonymous false", f"password_file {passwords}", "require_certificate true")
    files = (f"cafile {own.certificate}", f"certfile {own.certificate}", f"keyfile {own.key}")
    return Mosquitto(directory, "\n".join((*more, *files)))


@pytest.mark.slow
def test_under_tls_with_a_password_and_a_certificate(tmp_path: Path) -> None:
    own = certificates.make(tmp_path, "own", subject="/CN=localhost")
    signed = certificates.make(tmp_path, "bridge", subject="/CN=bridge", signer=own)
    stranger = certificates.make(tmp_path, "stranger", subject="/CN=stranger")
    (tmp_path / "password").write_text("right\n")
    right = {
        "tls": True,
        "ca": own.certificate,
        "certificate": signed.certificate,
        "key": signed.key,
        "user": "bridge",
        "password_file": str(tmp_path / "password"),
    }
    with _locked(tmp_path, own) as locked:
        for wrong, text in (
            (
                {"password_file": None, "password": "wrong"},
                "refused by the other side: NOT_AUTHORIZED",
            ),
            ({"ca": stranger.certificate}, "certificate verify failed"),
            ({"tls": False}, ": waiting"),
        ):
            with bridged(locked, BOTH, **_given({**right, **wrong})) as ours:
                _says(ours, text)
        with (
            bridged(locked, BOTH, **right) as ours,
            Client(ours.mqtt_address, "ours") as sender,
        ):
            _says(ours, ": connected")
            sender.publish("here/there", "over TLS", 1)
            _says(ours, " 0 to send")


def _says(ours: Broker, text: str) -> None:
    said = ""
    deadline = time.monotonic() + 30
    while text not in said:
        said = said_of(ours)
        assert time.monotonic() < deadline, said


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def test_a_client_cannot_take_a_bridges_session() -> None:
    with broker() as ours, Client(ours.mqtt_address, "$bridge/mosquitto") as client:
        assert client.connected == 0x85


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_kills_of_either_side(mosquitto: Mosquitto) -> None:
    """QoS 2 is exactly once through kill -9 of this side, and nothing is lost by that of theirs,
    but for what Mosquitto itself had not saved."""
    out = {"filter": "out/#", "direction": "out", "qos": 2}
    into = {"filter": "in/#", "direction": "in", "qos": 2}
    with bridged(mosquitto, out, into) as ours:
        theirs = Client(mosquitto.address, "theirs", clean=False, expiry_s=600).connect()
        theirs.subscribe("out/#", qos=2)
        own = Client(ours.mqtt_address, "ours", clean=False, expiry_s=600).connect()
        own.subscribe("in/#", qos=2)
        watch = Client(ours.mqtt_address, "watch", clean=False, expiry_s=600).connect()
        watch.subscribe("out/#", qos=2)
        eventually(lambda: _arrives(own, theirs, "out/probe"))
        for turn in range(5):
            for number in range(turn * 100, turn * 100 + 100):
                own.paho.publish(f"out/{number % 7}", f"{number}", 2)
                theirs.paho.publish(f"in/{number % 7}", f"{number}", 2)
                if number % 100 == 50:
                    ours.kill()
                    ours.start()
            time.sleep(1)

        def numbers(client: Client) -> list[int]:
            return [int(text) for topic, text in client.texts if "probe" not in topic]

        eventually(lambda: len(numbers(theirs)) >= 500, 120)
        eventually(lambda: len(numbers(own)) >= 500, 120)
        time.sleep(2)
        # What was published here is there as often as a session here got it, and no less. That may
        # be twice: paho 2.1 publishes anew what was received and not completed, without DUP, if it
        # fails to reconnect more than once (`_messages_reconnect_reset_out`).
        eventually(lambda: len(numbers(watch)) >= len(numbers(theirs)), 60)
        assert set(numbers(theirs)) == set(range(500))
        assert Counter(numbers(theirs)) == Counter(numbers(watch))
        assert sorted(numbers(own)) == list(range(500))
        theirs.close()
        mosquitto.stop(kill=True)
        for number in range(500, 600):
            own.publish("out/later", f"{number}", 2)
        mosquitto.start()
        theirs = Client(mosquitto.address, "theirs", clean=False, expiry_s=600).connect()
        theirs.subscribe("out/#", qos=2)
        eventually(lambda: set(numbers(theirs)) >= set(range(500, 600)), 120)
        theirs.close()
        own.close()
        watch.close()
