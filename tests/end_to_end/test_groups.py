"""Process groups on a real broker: membership, order, and five processes of which two fail."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.client.messaging.groups import Sent, View
from entrepot.testing import Broker, broker
from tests.end_to_end.five_members import run_round
from tests.end_to_end.replicated_bank import Bank
from tests.end_to_end.test_client import connect, eventually


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


def test_answers_come_after_what_they_answer(client: entrepot.Client, server: Broker) -> None:
    """FIFO, causal and total at once: each answers what it hears, and nobody hears it before."""
    rounds, names = 10, ("asks", "answers", "thanks")
    heard: dict[str, list[Any]] = {name: [] for name in names}
    members: dict[str, Any] = {}

    def hear(name: str, event: Any) -> None:
        if isinstance(event, Sent):
            heard[name].append((event.sender, event.value))
            place = names.index(event.sender) + 1
            if place < len(names) and names[place] == name:
                members[name].send(event.value)

    with connect(server) as second, connect(server) as third:
        for each, name in zip((client, second, third), names, strict=True):
            members[name] = each.group("causal", partial(hear, name), member=name)
            members[name].join()
        for number in range(rounds):
            members["asks"].send(number)
        eventually(lambda: all(len(each) == 3 * rounds for each in heard.values()))
    first = heard["asks"]
    assert heard["answers"] == heard["thanks"] == first
    for name in names:
        assert [value for sender, value in first if sender == name] == list(range(rounds))
    for number in range(rounds):
        places = [first.index((name, number)) for name in names]
        assert places == sorted(places)
    client.delete_group("causal")


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


def test_durable_and_volatile_groups(client: entrepot.Client, server: Broker) -> None:
    """Who was away is told what it missed if the group is durable, and not if it is volatile."""
    told: dict[str, list[Any]] = {"durable": [], "volatile": []}
    positions = {}
    with connect(server) as away:
        for name, heard in told.items():
            is_durable = name == "durable"
            client.group(name, member="stays", is_durable=is_durable).join()
            goes = away.group(name, heard.append, member="goes", is_durable=is_durable)
            goes.join()
            # A position moves when the callback has returned: after the view, after the message.
            eventually(lambda goes=goes: goes.position >= 0)  # type: ignore[misc]
            joined = goes.position
            client.group(name, member="stays").send("before")
            eventually(lambda goes=goes, then=joined: goes.position > then)  # type: ignore[misc]
            assert heard[-1] == Sent("stays", "before")
            positions[name] = goes.position
    for name, heard in told.items():
        heard.clear()
        group = client.group(name, member="stays")
        eventually(lambda group=group: group.view.members == ("stays",))  # type: ignore[misc]
        group.send("meanwhile")
    with connect(server) as back:
        after = positions["durable"]
        back.group("durable", told["durable"].append, member="goes", after=after).join()
        with pytest.raises(ClientError, match="is volatile"):
            back.group("volatile", member="goes", after=positions["volatile"])
        back.group("volatile", told["volatile"].append, member="goes").join()
        rejoined = View(4, ("stays", "goes"))
        eventually(lambda: all(rejoined in heard for heard in told.values()))
    assert told["durable"] == [View(3, ("stays",)), Sent("stays", "meanwhile"), rejoined]
    assert told["volatile"] == [rejoined]


def test_a_state_machine(client: entrepot.Client, server: Broker) -> None:
    """Who comes later has the same state, and `send` returns what the machine answers."""
    states: list[list[Any]] = [[], []]

    def machine(state: list[Any]) -> Any:
        def apply(sent: Sent) -> int:
            if sent.value == "wrong":
                raise ValueError("refused by the machine")
            state.append((sent.sender, sent.value))
            return len(state)

        return apply

    group = client.group("machine", member="a", machine=machine(states[0]))
    group.join()
    assert [group.send(letter) for letter in "xyz"] == [1, 2, 3]
    with pytest.raises(ValueError, match="refused by the machine"):
        group.send("wrong")
    with connect(server) as other:
        late = other.group("machine", member="b", machine=machine(states[1]))
        assert states[1] == states[0]
        late.join()
        assert late.send("w") == 4
        eventually(lambda: states[0] == states[1])
    assert states[0][-1] == ("b", "w")


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_state_machines_end_in_equal_states() -> None:
    """A replica is killed and so is the broker, and one comes late: all states are equal."""
    with broker() as server:
        host, port = server.endpoints["amqp"]
        command = [sys.executable, "-m", "tests.end_to_end.replicated_bank", f"{host}:{port}"]

        def start(name: str, count: int) -> subprocess.Popen[str]:
            arguments = [*command, server.bootstrap, "bank", name, str(count)]
            return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)

        members = [start(f"m{number}", 120) for number in range(4)]
        _read_until(members[0], "moved", 20)
        server.kill()
        server.start()
        _read_until(members[0], "moved", 20)
        members[0].kill()
        for each in members[1:]:
            _read_until(each, "finished", 1)
        members.append(start("m4", 5))
        _read_until(members[4], "finished", 1)
        bank = Bank()
        with connect(server) as client:
            group = client.group("bank", member="m9", machine=bank.apply)
            group.join()
            group.send("end")
        states = {_read_until(each, "state", 1) for each in members[1:]}
        for each in members:
            each.wait(60)
    assert states == {f"state {bank.text()}"}
    assert bank.count > 3 * 120 + 40


def _read_until(process: subprocess.Popen[str], word: str, count: int) -> str:
    """Read until lines with a word have come; return the last."""
    assert process.stdout is not None
    for line in process.stdout:
        count -= line.startswith(word)
        if count == 0:
            return line.strip()
    raise AssertionError(f"it ended before it said {word}")


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_five_processes_one_killed_and_one_stopped() -> None:
    """All survivors see the same views and messages in the same order; who was stopped is told.

    `python -m tests.end_to_end.five_members --rounds 100` does it a hundred times.
    """
    with broker() as server:
        for seed in range(2):
            run_round(server, f"five-{seed}", seed)
