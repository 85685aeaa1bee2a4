"""Shared memory on a real broker: the verbs, and the consistency that it states."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

ROUNDS = 150


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


def test_it_looks_like_memory(client: entrepot.Client, server: Broker) -> None:
    memory = client.memory("plain")
    memory["x"] = 1
    memory["y"] = {"deep": [1, None, "ü"]}
    with connect(server) as other:
        same = other.memory("plain")
        assert (same["x"], same["y"]) == (1, {"deep": [1, None, "ü"]})
        told: list[Any] = []
        same.notify(lambda name, value: told.append((name, value)))
        watch = same.notify(lambda name, value: told.append("only x"), "x")
        memory["y"] = None
        del memory["x"]
        same.fresh()  # Now what others have written before is here.
        assert "x" not in same
        assert same["y"] is None
        assert list(same) == ["y"]
        eventually(lambda: len(told) == 3)
        assert [each for each in told if each != "only x"] == [("y", None), ("x", None)]
        watch.stop()
        with pytest.raises(KeyError):
            same["x"]
        assert same.read("x", 7) == 7
    for name, value in (("", 1), ("n" * 1_001, 1), ("x", object()), ("x", float("nan"))):
        with pytest.raises(ClientError):
            memory[name] = value
    assert len(memory) == 1


def test_it_is_there_after_a_crash_and_ends_with_its_client(server: Broker) -> None:
    with connect(server) as client:
        memory = client.memory("lasting")
        for number in range(50):
            memory["counter"] = number
        server.kill()
        server.start()
        memory["after"] = True
    with pytest.raises(ClientError):
        memory.read("counter")
    with connect(server) as again:
        assert dict(again.memory("lasting").inner._values) == {"counter": 49, "after": True}


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_sequential_consistency_through_a_kill() -> None:
    """Two processes write, and read what the other writes; the broker is killed meanwhile.

    In no order of all writes and reads can both have read before the other wrote. And all
    processes see the same writes in the same order.
    """
    with broker() as server, connect(server) as client:
        host, port = server.endpoints["amqp"]
        command = [sys.executable, "-m", "tests.end_to_end.memory_writer", f"{host}:{port}"]
        changes: list[list[Any]] = []
        memory = client.memory("litmus")
        memory.notify(lambda name, value: changes.append([name, value]))
        processes = [
            subprocess.Popen(
                [*command, server.bootstrap, mine, others, str(ROUNDS)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for mine, others in ("ab", "ba")
        ]
        for victim in (30, 90):
            eventually(lambda: memory.read(f"a{victim}"))  # noqa: B023
            server.kill()
            server.start()
        outputs = [each.stdout for each in processes]
        assert all(outputs)
        reads = [json.loads(output.readline()) for output in outputs if output]
        memory["over"] = 1
        seen = [json.loads(output.readline()) for output in outputs if output]
        for each in processes:
            each.wait(60)
        eventually(lambda: bool(changes) and changes[-1] == ["over", 1])
    assert all(one or other for one, other in zip(*reads, strict=True))
    assert all(seen_by[-len(changes) :] == changes[-len(seen_by) :] for seen_by in seen)
    assert len(changes) == 2 * ROUNDS + 3
    assert any(not one for one in reads[0] + reads[1])  # They did overlap.
