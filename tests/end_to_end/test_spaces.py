"""Tuple spaces on a real broker: the verbs, and takers in several processes under kills."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.client.messaging.templates import matches, place_of
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

WAIT_S = 20.0
TUPLES, TAKERS = 3_000, 4
TAKE = """
import entrepot, sys
with entrepot.Client(sys.argv[1], sys.argv[2]) as client:
    space = client.space("jobs")
    print("taker", space.inner._taker, flush=True)
    while True:
        kind, number = space.take("job", int)
        if number < 0:
            break
        print(number, flush=True)
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


def test_write_read_take_by_template(
    client: entrepot.Client, server: Broker, request: pytest.FixtureRequest
) -> None:
    name = request.node.name
    space = client.space(name)
    space.write("point", 1, 2)
    space.write("point", 1.5, [2, "x"])
    space.write("name", "ana", True)
    with connect(server) as other:
        same = other.space(name)
        assert same.read("point", int, ...) == ("point", 1, 2)
        assert same.read(str, int, ..., timeout_s=WAIT_S) == ("point", 1, 2)
        assert same.read(..., 1, int, timeout_s=WAIT_S) == ("point", 1, 2)
        assert same.take("point", float, list, timeout_s=WAIT_S) == ("point", 1.5, [2, "x"])
        with pytest.raises(TimeoutError):
            same.take("point", float, ..., timeout_s=0)
        with pytest.raises(TimeoutError):
            same.read("point", timeout_s=0.05)
        later = threading.Timer(0.2, lambda: space.write("late", 7))
        later.start()
        assert same.take("late", int, timeout_s=WAIT_S) == ("late", 7)
        assert same.read("name", str, bool, timeout_s=0) == ("name", "ana", True)
    eventually(lambda: len(space) == 2)
    for wrong in ((), (object(),), (float("nan"),), tuple(range(101))):
        with pytest.raises(ClientError):
            space.write(*wrong)
    with pytest.raises(ClientError, match="no type"):
        space.read("point", dict, ..., timeout_s=0)


@pytest.mark.parametrize(
    ("template", "value", "fits"),
    [
        (("a", int), ("a", 1), True),
        (("a", int), ("a", True), False),
        (("a", 1), ("a", 1.0), False),
        (("a", ...), ("a", None), True),
        (("a",), ("a", 1), False),
        (((1, 2),), ([1, 2],), True),
    ],
)
def test_templates(template: tuple[Any, ...], value: tuple[Any, ...], fits: bool) -> None:
    assert matches(template, value) is fits


def test_leases_and_cancelling(client: entrepot.Client, request: pytest.FixtureRequest) -> None:
    space = client.space(request.node.name)
    space.write("short", lease_s=0.1)
    kept = space.write("kept", lease_s=60)
    time.sleep(0.2)
    with pytest.raises(TimeoutError):
        space.take("short", timeout_s=0)
    assert space.cancel(kept) is True
    assert space.cancel(kept) is False
    eventually(lambda: len(space) == 0)


def test_notification(client: entrepot.Client, request: pytest.FixtureRequest) -> None:
    space = client.space(request.node.name)
    found: list[Any] = []
    watch = space.notify(found.append, "job", int)
    space.write("job", 1)
    space.write("other", 1)
    space.write("job", 2)
    eventually(lambda: found == [("job", 1), ("job", 2)])
    watch.stop()
    space.write("job", 3)
    assert space.read("job", 3) == ("job", 3)
    assert len(found) == 2


def test_a_taker_whose_time_is_over_loses_nothing(
    client: entrepot.Client, request: pytest.FixtureRequest
) -> None:
    space = client.space(request.node.name)
    taken = 0
    for number in range(50):
        space.write("x", number)
        try:
            space.take("x", int, timeout_s=0.001)
            taken += 1
        except TimeoutError:
            pass
    eventually(lambda: len(space) == 50 - taken)


def test_a_partitioned_space(client: entrepot.Client, server: Broker) -> None:
    """Tuples are in the partition of their length and first field; a client reads what it needs."""
    name = "partitioned"
    space = client.space(name, partitions=4)
    kinds = [f"kind-{number}" for number in range(12)]
    for number, kind in enumerate(kinds):
        space.write(kind, number)
    where = {kind: place_of((kind, 0), 4) for kind in kinds}
    assert len(set(where.values())) > 1
    reader = client.topic(f"space.{name}").read()
    seen = {}
    while len(seen) < len(kinds):
        seen |= {json.loads(entry.body)[0]: entry.partition for entry in reader.poll(1)}
    assert seen == where
    with connect(server) as other:
        same = other.space(name)  # How many partitions there are is not asked again.
        assert same.inner.partitions == 4
        assert same.take("kind-3", int, timeout_s=WAIT_S) == ("kind-3", 3)
        assert same.inner.places == [where["kind-3"]]
        found: list[Any] = []
        same.notify(found.append, str, int)
        taken = {same.take(str, int, timeout_s=WAIT_S)[1] for _ in range(11)}
        assert taken == set(range(12)) - {3}
        assert same.inner.places == [0, 1, 2, 3]
        with pytest.raises(TimeoutError):
            same.take(..., int, timeout_s=0)
        space.write("kind-5", "again")
        space.write("kind-6", 1)
        eventually(lambda: found == [("kind-6", 1)])
    with pytest.raises(ClientError, match="JSON"):
        space.take(object(), timeout_s=0)
    for wrong in (0, 1_001):
        with pytest.raises(ClientError, match="partitions"):
            client.space("none", partitions=wrong)


def test_many_takers_at_once_take_each_tuple_once(
    client: entrepot.Client, server: Broker, request: pytest.FixtureRequest
) -> None:
    """They all want the same tuples, lose often, and then look further."""
    count, takers = 400, 3
    write_all(client.space(request.node.name), range(count))
    with ExitStack() as stack:
        spaces = [
            stack.enter_context(connect(server)).space(request.node.name) for _ in range(takers)
        ]

        async def take_many(space: Any) -> list[Any]:
            found = []
            with suppress(TimeoutError):
                while True:
                    found.append(await space.take("job", int, timeout_s=0))
            return found

        async def at_once(space: Any) -> list[Any]:
            taken = await asyncio.gather(*(take_many(space) for _ in range(20)))
            return [value for some in taken for value in some]

        for space in spaces:
            eventually(lambda space=space: len(space) == count)  # type: ignore[misc]
        with ThreadPoolExecutor(takers) as pool:
            taken = list(pool.map(lambda each: each._loop.wait(at_once(each.inner)), spaces))
    assert sorted(number for some in taken for _, number in some) == list(range(count))


def write_all(space: Any, numbers: range) -> None:
    """Write many tuples at once."""

    async def work() -> None:
        await asyncio.gather(*(space.inner.write("job", number) for number in numbers))

    space._loop.wait(work())


def claims_of(client: entrepot.Client) -> dict[str, set[int]]:
    """Return who took what, as the log has it: the first take of a tuple counts."""
    numbers: dict[bytes, int] = {}
    claims: dict[str, set[int]] = {}
    reader = client.topic("space.jobs").read()
    while entries := reader.poll(1):
        for entry in entries:
            assert entry.key is not None
            taker = entry.headers.get("space-taker")
            if taker is None:
                numbers[entry.key] = json.loads(entry.body)[1]
            elif (number := numbers.pop(entry.key, -1)) >= 0:
                claims.setdefault(taker.decode(), set()).add(number)
    assert all(number < 0 for number in numbers.values())
    return claims


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_tuple_is_taken_twice_and_none_is_lost() -> None:
    """Takers in processes of their own; the broker is killed twice, and a taker as well."""
    with broker() as server, connect(server) as client:
        space = client.space("jobs")
        host, port = server.endpoints["amqp"]
        command = [sys.executable, "-c", TAKE, f"{host}:{port}", server.bootstrap]
        takers = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(TAKERS)]
        printed: list[list[bytes]] = [[] for _ in takers]

        def listen(place: int) -> None:
            stdout = takers[place].stdout
            assert stdout is not None
            printed[place].extend(stdout)

        threads = [threading.Thread(target=listen, args=(place,)) for place in range(TAKERS)]
        for each in threads:
            each.start()
        eventually(lambda: all(printed))
        for first in range(0, TUPLES, 500):
            write_all(space, range(first, first + 500))
            if first in (500, 1_500):
                server.kill()
                server.start()
            if first == 1_000:
                takers[0].kill()
        eventually(lambda: sum(map(len, printed)) > 0 and len(space) == 0)
        for _ in range(TAKERS - 1):
            space.write("job", -1)
        for each in takers:
            each.wait(60)
        for each in threads:
            each.join()
        taken = {
            lines[0].split()[1].decode(): Counter(int(line) for line in lines[1:])
            for lines in printed
        }
        claims = claims_of(client)
        assert max(sum(taken.values(), Counter[int]()).values()) == 1
        killed, *survivors = taken
        for name in survivors:  # Who was not killed has heard of all that it took.
            assert set(taken[name]) == claims.get(name, set())
        assert set(taken[killed]) <= claims.get(killed, set())
        assert set().union(*claims.values()) == set(range(TUPLES))
