"""The nine scripts under examples/mqtt/ show what they say, and twelve messages for a group."""

import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client, eventually

LAB = Path(__file__).parents[2] / "examples" / "mqtt"
SCRIPTS = sorted(each.stem for each in LAB.glob("run_example_*.sh"))


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


def test_there_are_nine() -> None:
    assert len(SCRIPTS) == 9
    assert sorted(each.stem for each in (LAB / "output").iterdir()) == SCRIPTS


@pytest.mark.skipif(
    shutil.which("mosquitto_sub") is None, reason="Mosquitto's clients are not installed"
)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_lab(server: Broker, name: str) -> None:
    host, port = server.mqtt_address
    found = subprocess.run(
        [str(LAB / f"{name}.sh")],
        env=os.environ | {"HOST": host, "PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == (LAB / "output" / f"{name}.txt").read_text()


@pytest.mark.parametrize("version", ["3.1.1", "5"])
def test_twelve_messages_for_a_group_that_is_offline(server: Broker, version: str) -> None:
    filter = f"$share/twelve/jobs/{version}/#"
    expiry = {"expiry_s": 600} if version == "5" else {}
    names = [f"member-{version}-{number}" for number in range(3)]
    for name in names:
        with Client(server.mqtt_address, name, version, clean=False, **expiry) as member:
            member.subscribe(filter, qos=1)
    with Client(server.mqtt_address, version=version) as publisher:
        for number in range(12):
            publisher.publish(f"jobs/{version}/{number}", f"{number}", 1)
    group = [
        Client(server.mqtt_address, name, version, clean=False, **expiry).connect()
        for name in names
    ]
    eventually(lambda: sum(len(each.got) for each in group) >= 12)
    found = Counter(text for each in group for _, text in each.texts)
    assert found == Counter(str(number) for number in range(12))
    for each in group:
        each.close()
