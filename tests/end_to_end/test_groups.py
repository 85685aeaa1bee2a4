"""Process groups on a real broker: membership, order, and five processes of which two fail."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.client.messaging.groups import Sent, View
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

MEMBER = """
import entrepot, sys, threading, time
amqp, kafka, me = sys.argv[1:]
done, ready, over = set(), threading.Event(), threading.Event()

def tell(event):
    if hasattr(event, "members"):
        print("view", event.number, *event.members, flush=True)
        if len(event.members) == 5:
            ready.set()
        if me not in event.members and ready.is_set():
            over.set()
        size[0] = len(event.members)
    else:
        print("sent", event.sender, event.value, flush=True)
        if event.value == "done":
            done.add(event.sender)
    if len(done) >= 3 and size[0] == 3:
        print("end", flush=True)
        over.set()

size = [0]
with entrepot.Client(amqp, kafka) as client:
    group = client.group("five", tell, member=me)
    group.join()
    ready.wait()
    try:
        for number in range(150):
            group.send(number)
            time.sleep(0.02)
        group.send("done")
    except Exception as error:
        print("refused", error, flush=True)
    over.wait()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


def test_members_see_one_sequence(client: entrepot.Client, server: Broker) -> None:
    first: list[Any] = []
    second: list[Any] = []
    with connect(server) as other:
        one = client.group("pair", first.append, member="one")
        two = other.group("pair", second.append, member="two")
        assert one.join() == View(1, ("one",))
        one.send("alone")
        assert two.join() == View(2, ("one", "two"))
        for number in range(20):
            (one, two)[number % 2].send(number)
        two.leave()
        one.send("after")
        eventually(lambda: len(first) == 25)
        eventually(lambda: len(second) == 22)
    assert first[:3] == [View(1, ("one",)), Sent("one", "alone"), View(2, ("one", "two"))]
    assert second == first[2:-1]
    assert first[-2:] == [View(3, ("one",)), Sent("one", "after")]
    assert [each.value for each in first[3:23]] == list(range(20))
    assert one.leader == "one"
    client.delete_group("pair")


def test_closed_and_open_groups(client: entrepot.Client, server: Broker) -> None:
    heard: list[Any] = []
    for name, is_closed in (("closed", True), ("open", False)):  # Two groups at once.
        client.group(name, heard.append, member="in", is_closed=is_closed).join()
    with connect(server) as outside:
        with pytest.raises(ClientError, match="is closed, and 'out' no member"):
            outside.group("closed", member="out", is_closed=False).send("no")
        outside.group("open", member="out").send("yes")
        with pytest.raises(ClientError, match="or us already"):
            client.group("open", member="in").join()
    eventually(lambda: Sent("out", "yes") in heard)
    assert Sent("out", "no") not in heard


def test_who_goes_without_a_word_is_suspected(client: entrepot.Client, server: Broker) -> None:
    views: list[Any] = []
    client.group("suspicious", views.append, member="stays").join()
    with connect(server) as other:
        other.group("suspicious", member="goes").join()
    eventually(lambda: views[-1] == View(3, ("stays",)))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_five_processes_one_killed_and_one_stopped() -> None:
    """All survivors see the same views and messages in the same order; who was stopped is told."""
    with broker() as server:
        host, port = server.endpoints["amqp"]
        command = [sys.executable, "-c", MEMBER, f"{host}:{port}", server.bootstrap]
        names = [f"m{number}" for number in range(5)]
        members = [
            subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in names
        ]
        printed: list[list[str]] = [[] for _ in names]

        def listen(place: int) -> None:
            stdout = members[place].stdout
            assert stdout is not None
            for each in stdout:
                printed[place].append(each.strip())

        threads = [threading.Thread(target=listen, args=(place,)) for place in range(5)]
        for each in threads:
            each.start()
        eventually(lambda: all(any(" 30" in line for line in lines) for lines in printed))
        members[0].kill()
        members[1].send_signal(signal.SIGSTOP)
        eventually(lambda: any(_is_view_of(line, 3) for line in _since_all(printed[2])))
        time.sleep(0.2)
        members[1].send_signal(signal.SIGCONT)
        for each in members:
            each.wait(60)
        for thread in threads:
            thread.join()
    sequences = [_since_all(lines) for lines in printed]
    assert sequences[2] == sequences[3] == sequences[4]
    assert sequences[2][-1] == "end"
    assert sequences[0] == sequences[2][: len(sequences[0])]  # Up to its end, the killed one, too.
    without = next(line for line in sequences[1] if line.startswith("view") and " m1" not in line)
    until = sequences[1].index(without)
    assert sequences[1][: until + 1] == sequences[2][: until + 1]
    assert any("is closed, and 'm1' no member" in line for line in printed[1])
    for name in ("m2", "m3", "m4"):
        mine = [line.split()[2] for line in sequences[2] if line.startswith(f"sent {name} ")]
        assert mine == [*map(str, range(150)), "done"]


def _since_all(lines: list[str]) -> list[str]:
    """Return what was printed from the first view of all five on, but for what was refused."""
    first = next(place for place, line in enumerate(lines) if _is_view_of(line, 5))
    return [line for line in lines[first:] if not line.startswith("refused")]


def _is_view_of(line: str, count: int) -> bool:
    return line.startswith("view") and len(line.split()) == 2 + count
