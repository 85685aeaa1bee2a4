"""Transactions of a tuple space: everything at once or nothing, whoever else is there or dies."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.client.messaging import space_transactions
from entrepot.client.messaging.space_transactions import Conflict
from entrepot.client.messaging.spaces import Space
from entrepot.client.messaging.templates import place_of
from entrepot.client.transaction_writer import TransactionWriter
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

WAIT_S = 20.0
ACCOUNTS, SUM = 6, 600
# Moves money between accounts until it is killed, or has done its part.
MOVE = """
import asyncio, entrepot, random, sys
from entrepot.client.messaging.space_transactions import Conflict

async def main():
    random.seed(sys.argv[3])
    async with entrepot.AsyncClient(sys.argv[1], sys.argv[2]) as client:
        bank, moved = await client.space("bank", partitions=int(sys.argv[5])), 0
        print("began", flush=True)
        while moved < int(sys.argv[4]):
            one, other = random.sample(range(6), 2)
            try:
                async with bank.transaction() as transaction:
                    _, _, has = await transaction.take(f"account-{one}", "of", int)
                    _, _, had = await transaction.take(f"account-{other}", "of", int)
                    amount = random.randint(0, has)
                    await transaction.write(f"account-{one}", "of", has - amount)
                    await transaction.write(f"account-{other}", "of", had + amount)
            except Conflict:
                continue
            moved += 1
        print("moved", moved, flush=True)

asyncio.run(main())
"""


@dataclass
class Job:
    name: str | None = None
    number: int | None = None


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


@pytest.fixture
def other(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return "".join(each if each.isalnum() else "-" for each in request.node.name)


@pytest.mark.parametrize("partitions", [1, 4])
def test_all_of_it_happens_at_the_end(
    client: entrepot.Client, other: entrepot.Client, name: str, partitions: int
) -> None:
    space = client.space(name, partitions=partitions)
    same = other.space(name)
    for number in range(3):
        space.write("job", number)
    with space.transaction() as transaction:
        taken = sorted(transaction.take("job", int, timeout_s=WAIT_S)[1] for _ in range(3))
        assert taken == [0, 1, 2]
        transaction.write("result", sum(taken))
        transaction.write("note", "draft")
        assert transaction.take("note", str) == ("note", "draft")  # Its own: it never was there.
        assert transaction.read("result", int) == ("result", 3)
        with pytest.raises(TimeoutError):
            transaction.take("job", int, timeout_s=0)
        with pytest.raises(TimeoutError):
            space.read("result", int, timeout_s=0)
        assert same.read("job", int, timeout_s=WAIT_S)[0] == "job"
    assert space.read("result", int, timeout_s=0) == ("result", 3)
    assert same.read("result", int, timeout_s=WAIT_S) == ("result", 3)
    for each in (space, same):
        eventually(lambda each=each: missing(each, "job", int))  # type: ignore[misc]
        assert missing(each, "note", str)
    with pytest.raises(ClientError, match="is over"):
        transaction.write("more")


def missing(space: Any, *template: Any) -> bool:
    try:
        space.read(*template, timeout_s=0)
    except TimeoutError:
        return True
    return False


def test_nothing_happens_when_the_block_raises(client: entrepot.Client, name: str) -> None:
    space = client.space(name)
    space.write("job", 1)

    def fail() -> None:
        with space.transaction() as transaction:
            transaction.take("job", int)
            transaction.write("result", 1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert missing(space, "result", int)
    assert space.take("job", int, timeout_s=0) == ("job", 1)
    with space.transaction():
        pass  # Nothing is nothing.


def test_who_waits_gets_what_is_given_back(client: entrepot.Client, name: str) -> None:
    space = client.space(name).inner

    async def fail(waiting: list[asyncio.Task[Any]]) -> None:
        async with space.transaction() as transaction:
            await transaction.take("job", int)
            waiting.append(asyncio.create_task(space.take("job", int)))
            await asyncio.sleep(0.05)
            assert not waiting[0].done()
            raise KeyError

    async def work() -> Any:
        await space.write("job", 1)
        waiting: list[asyncio.Task[Any]] = []
        with pytest.raises(KeyError):
            await fail(waiting)
        return await asyncio.wait_for(waiting[0], WAIT_S)

    assert client._loop.wait(work()) == ("job", 1)


@pytest.mark.parametrize("partitions", [1, 3])
def test_somebody_else_was_faster(
    client: entrepot.Client, other: entrepot.Client, name: str, partitions: int
) -> None:
    space, same = client.space(name, partitions=partitions), other.space(name)

    def late(verb: str) -> None:
        with space.transaction() as transaction:
            getattr(transaction, verb)("job", int, timeout_s=WAIT_S)
            transaction.write("result", verb)
            with same.transaction() as faster:
                faster.take("job", int, timeout_s=WAIT_S)

    for verb in ("take", "read"):
        space.write("job", 1)
        with pytest.raises(Conflict, match="taken by somebody else"):
            late(verb)
    assert missing(space, "result", str)
    assert missing(space, "job", int)


def test_entries(client: entrepot.Client, name: str) -> None:
    jobs = client.entries(name, Job)
    jobs.write(Job("resize", 1))
    with jobs.transaction() as transaction:
        found = transaction.take(Job("resize"))
        assert found == Job("resize", 1)
        transaction.write(Job("done", found.number))
    assert jobs.read(Job, timeout_s=0) == Job("done", 1)


def test_a_lease_that_ends_before_the_commit(client: entrepot.Client, name: str) -> None:
    space = client.space(name).inner

    async def late() -> None:
        async with space.transaction() as transaction:
            await transaction.take("job", int)
            await transaction.write("result", 1)
            await asyncio.sleep(0.5)

    async def work() -> None:
        await space.write("job", 1, lease_s=0.3)
        with pytest.raises(Conflict):
            await late()
        with pytest.raises(TimeoutError):
            await space.read("result", int, timeout_s=0)

    client._loop.wait(work())


def test_who_dies_in_a_commit_takes_nothing_along(
    server: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records are there, and not committed: the broker aborts them when their time is over."""
    monkeypatch.setattr("entrepot.client.messaging.spaces.TIMEOUT_MS", 1_500)

    class Died(Exception):
        pass

    async def die(*_: object) -> None:
        raise Died

    with connect(server) as dying, connect(server) as client:
        space, same = dying.space(name), client.space(name)
        space.write("job", 1)
        same.read("job", 1, timeout_s=WAIT_S)

        def commit() -> None:
            with monkeypatch.context() as patched, space.transaction() as transaction:
                transaction.take("job", int)
                transaction.write("result", 1)
                writer = "entrepot.client.transaction_writer.TransactionWriter"
                patched.setattr(f"{writer}.commit", die)
                patched.setattr(f"{writer}.abort", die)

        with pytest.raises(Died):
            commit()
        assert same.take("job", int, timeout_s=WAIT_S) == ("job", 1)
        assert missing(same, "result", int)


def places(partitions: int) -> list[str]:
    """Return a first field for each partition, of tuples with two fields."""
    names: dict[int, str] = {}
    for number in range(1_000):
        names.setdefault(place_of((f"field {number}", 0), partitions), f"field {number}")
    return [names[place] for place in range(partitions)]


def test_of_two_that_read_what_the_other_takes_one_happens(
    server: Broker, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes in one partition and only reads in the other. Both are about to be committed at
    the same time, as far as they can: whoever is first waits for the other for a while."""
    there: list[None] = []
    both = asyncio.Event()
    commit = TransactionWriter.commit

    async def late(writer: TransactionWriter) -> None:
        there.append(None)
        if len(there) == 2:
            both.set()
        with suppress(TimeoutError):
            await asyncio.wait_for(both.wait(), 2)
        await commit(writer)

    async def on_call(space: Space, takes: str, reads: str) -> bool:
        """Go off duty, if the other one is on duty."""
        try:
            async with space.transaction() as transaction:
                await transaction.read(reads, int, timeout_s=WAIT_S)
                await transaction.take(takes, int, timeout_s=WAIT_S)
        except Conflict:
            return False
        return True

    async def main() -> None:
        amqp = "{}:{}".format(*server.endpoints["amqp"])
        one, other = places(2)
        async with (
            entrepot.AsyncClient(amqp, server.bootstrap) as ann,
            entrepot.AsyncClient(amqp, server.bootstrap) as bob,
        ):
            first = await ann.space(name, partitions=2)
            second = await bob.space(name)
            for field in (one, other):
                await first.write(field, 1)
                await second.read(field, int, timeout_s=WAIT_S)
            monkeypatch.setattr(TransactionWriter, "commit", late)
            done = await asyncio.gather(on_call(first, one, other), on_call(second, other, one))
            assert sorted(done) == [False, True]
            left = other if done[0] else one
            assert await first.read(left, int, timeout_s=0) == (left, 1)

    asyncio.run(main())


def test_what_is_read_in_two_partitions_was_there_at_once(server: Broker, name: str) -> None:
    """A tuple goes, and then another comes elsewhere: no transaction reads them both, not even one
    that has not heard of the first yet and writes nothing itself."""

    async def main() -> None:
        amqp = "{}:{}".format(*server.endpoints["amqp"])
        one, other = places(2)
        async with (
            entrepot.AsyncClient(amqp, server.bootstrap) as ann,
            entrepot.AsyncClient(amqp, server.bootstrap) as bob,
        ):
            first = await ann.space(name, partitions=2)
            second = await bob.space(name)
            await first.write(one, 1)
            await second.read(one, int, timeout_s=WAIT_S)
            place = places(2).index(one)
            reader = second.replica(place)._reader
            assert reader is not None
            poll, hears = reader.poll, asyncio.Event()
            hears.set()

            async def listen(timeout_s: float) -> Any:
                before = reader.positions[place]
                entries = await poll(timeout_s)
                if hears.is_set():
                    return entries
                reader.seek(before, place)  # It comes again.
                await hears.wait()
                return []

            reader.poll = listen  # type: ignore[method-assign]
            await first.write(one, 2)  # After this it is listened to in that way.
            await second.read(one, 2, timeout_s=WAIT_S)
            hears.clear()
            await first.take(one, 1)
            await first.write(other, 1)

            async def both() -> None:
                async with second.transaction() as transaction:
                    await transaction.read(one, 1, timeout_s=0)
                    await transaction.read(other, 1, timeout_s=WAIT_S)
                    asyncio.get_running_loop().call_later(0.1, hears.set)

            with pytest.raises(Conflict):
                await both()

    asyncio.run(main())


def test_too_much_for_one_transaction(
    client: entrepot.Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space_transactions, "OPERATIONS_MAX", 2)
    space = client.space(name)

    def write_three() -> None:
        with space.transaction() as transaction:
            for number in range(3):
                transaction.write("x", number)

    with pytest.raises(ClientError, match="at most 2"):
        write_three()
    assert missing(space, "x", int)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("partitions", [1, 4])
def test_no_money_is_lost_or_made(partitions: int) -> None:
    """Processes move money between accounts; some are killed, and the broker is, too."""
    randomness = random.Random(partitions)
    with broker() as server, connect(server) as client:
        bank = client.space("bank", partitions=partitions)
        for number in range(ACCOUNTS):
            bank.write(f"account-{number}", "of", SUM // ACCOUNTS)
        host, port = server.endpoints["amqp"]
        started = []

        def start(moves: int) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-c", MOVE, f"{host}:{port}", server.bootstrap]
            command += [str(len(started)), str(moves), str(partitions)]
            started.append(subprocess.Popen(command, stdout=subprocess.PIPE))
            assert started[-1].stdout is not None
            assert started[-1].stdout.readline() == b"began\n"
            return started[-1]

        lasting = [start(60), start(60)]
        for turn in range(4):
            doomed = start(1_000_000)
            with pytest.raises(subprocess.TimeoutExpired):
                doomed.wait(0.3 + randomness.random())
            doomed.send_signal(signal.SIGKILL)
            doomed.wait()
            if turn == 2:
                server.kill()
                server.start()
        for each in lasting:
            out, _ = each.communicate(timeout=WAIT_S * 6)
            assert out == b"moved 60\n"
        with connect(server) as reader:
            found = reader.space("bank")
            has = [
                found.take(f"account-{number}", "of", int, timeout_s=WAIT_S)[2]
                for number in range(ACCOUNTS)
            ]
            assert sum(has) == SUM
            assert missing(found, str, "of", int)
