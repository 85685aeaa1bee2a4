"""Real processes that gossip over UDP on loopback: killed, stopped, and sent nonsense."""

import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.datagram_nodes import Process, eventually

PERIOD_S = 0.25

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


class Node(Process):
    def __init__(self, number: int, *arguments: str) -> None:
        super().__init__("gossip", number, "--period", str(PERIOD_S), *arguments)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    secret = tmp_path / "secret"
    secret.write_text("what only these processes know\n")
    shared = ["--secret-file", str(secret)]
    started = [Node(0, *shared, "--fact", "name=node 0", "--value", "0")]
    try:
        for number in range(1, 5):
            fact, value = f"name=node {number}", str(number)
            groups = ["--group", "news"] if number < 4 else []
            seed = f"127.0.0.1:{started[0].port}"
            started.append(
                Node(number, *shared, "--join", seed, "--fact", fact, "--value", value, *groups)
            )
        yield started
    finally:
        for each in started:
            each.end()


def alive(*numbers: int) -> dict[str, str]:
    return {str(number): "alive" for number in numbers}


def test_killed_stopped_and_back(nodes: list[Node]) -> None:
    for node in nodes:
        eventually(lambda node=node: node.summary()["members"] == alive(0, 1, 2, 3, 4))
    facts = {f"{number}/name": f"node {number}" for number in range(5)}
    for node in nodes:
        eventually(lambda node=node: node.summary()["facts"] == facts)
    nodes[2].say("hello")
    for node in nodes:
        assert node.wait("event")["body"] == "hello"

    nodes[4].process.kill()
    for node in nodes[:4]:
        node.wait("suspected", 4)
        node.wait("dead", 4)

    nodes[3].signal(signal.SIGSTOP)
    begins = [len(node.lines) for node in nodes[:3]]
    for node, begin in zip(nodes[:3], begins, strict=True):
        node.wait("suspected", 3, begin)
    nodes[3].signal(signal.SIGCONT)
    for node, begin in zip(nodes[:3], begins, strict=True):
        assert node.wait("alive", 3, begin)["incarnation"] > 0
    for node in nodes[:4]:
        eventually(lambda node=node: node.summary()["members"] == alive(0, 1, 2, 3) | {"4": "dead"})
    assert not [each for each in nodes[3].lines if each["what"] == "dead" and each["node"] != 4]

    nodes[1].signal(signal.SIGTERM)
    nodes[1].process.wait(20)
    for node in (nodes[0], nodes[2], nodes[3]):
        node.wait("left", 1)


def test_a_group_is_a_tree_between_processes(nodes: list[Node]) -> None:
    """Three of five are members; a message of a fourth reaches these, also after a death."""
    for node in nodes:
        eventually(lambda node=node: len(node.summary()["ring"]["after"]) == 4)

    def got(body: str) -> list[int]:
        return sorted(
            number
            for number, node in enumerate(nodes)
            for line in node.lines
            if line["what"] == "message" and line["body"] == body
        )

    def say_until(number: int, body: str, members: list[int]) -> None:
        """The tree grows while it is used: what comes too early reaches not all."""
        turns = iter(range(100))

        def reached() -> bool:
            text = f"{body} {next(turns)}"
            nodes[number].say(f"@news {text}")
            time.sleep(2 * PERIOD_S)
            return got(text) == members

        eventually(reached)

    say_until(0, "hello", [1, 2, 3])
    nodes[2].process.kill()
    say_until(4, "again", [1, 3])


def test_nonsense_is_dropped_and_counted_while_they_go_on(nodes: list[Node]) -> None:
    eventually(lambda: nodes[0].summary()["members"] == alive(0, 1, 2, 3, 4))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as mallory:
        for number in range(2_000):
            data = (b"", b"eg\x01\x01" + bytes(80), os.urandom(200), bytes(1_500))[number % 4]
            mallory.sendto(data, ("127.0.0.1", nodes[0].port))
        mallory.settimeout(0.5)
        with pytest.raises(TimeoutError):
            mallory.recv(100)
    refused = nodes[0].summary()["refused"]
    assert refused["malformed"] > 0
    assert refused["oversize"] > 0
    assert nodes[0].summary()["members"] == alive(0, 1, 2, 3, 4)
    assert not [each for each in nodes[1].lines if each["what"] == "dead"]
