"""A tuple space on three real nodes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from tests.cluster.harness import SETTINGS
from tests.cluster.spaces import run
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]


def test_no_tuple_is_taken_twice_and_none_is_lost(tmp_path: Path) -> None:
    """`python -m tests.cluster.spaces` does it with 100,000 tuples and ten takers."""
    outcome = run(tmp_path, tuples=4_000, takers=4, kill_every=2_000)
    assert outcome.is_good, outcome.text()
    assert outcome.kills == 2


def test_a_replicated_space_waits_for_a_site_that_is_away(tmp_path: Path) -> None:
    """Each site is on a node of its own. While one is dead, reads go on, writes and takes wait."""
    with World(tmp_path, 3, {**SETTINGS, "cluster.queues": False}) as world:
        asyncio.run(_with_a_site_away(world))


async def _with_a_site_away(world: World) -> None:
    clients = [entrepot.AsyncClient(kafka=world.bootstrap) for _ in range(3)]
    try:
        spaces = [await each.replicated_space("three") for each in clients]
        first = spaces[0]
        await asyncio.gather(*(first.write("job", number) for number in range(12)))
        partitions = world.metadata().topics["sites.three"].partitions
        assert sorted(each.leader for each in partitions.values()) == [1, 2, 3]
        assert {len(each.replicas) for each in partitions.values()} == {1}
        victim = next(each for each in world.nodes if each.number == partitions[1].leader)
        await asyncio.to_thread(world.kill, victim)
        assert await first.read("job", 7, timeout_s=0) == ("job", 7)
        writing = asyncio.create_task(first.write("job", 12))
        taking = [asyncio.create_task(each.take("job", int)) for each in spaces for _ in range(3)]
        done, _ = await asyncio.wait([writing, *taking], timeout=3)
        assert not done
        await asyncio.to_thread(world.begin, victim)
        await asyncio.wait_for(writing, 90)
        taken = [number for _, number in await asyncio.wait_for(asyncio.gather(*taking), 120)]
        taken += [(await first.take("job", int, timeout_s=60))[1] for _ in range(4)]
        assert sorted(taken) == list(range(13))
    finally:
        for each in clients:
            await each.close()


def test_transactions_of_a_space_through_a_killed_leader(tmp_path: Path) -> None:
    """Money moves between partitions led by three nodes, one of which is killed: the sum stays."""
    with World(tmp_path, 3, {**SETTINGS, "cluster.queues": False}) as world:
        asyncio.run(_move_money(world))


async def _move_money(world: World) -> None:
    accounts, moves = 6, 40
    clients = [entrepot.AsyncClient(kafka=world.bootstrap) for _ in range(2)]
    try:
        banks = [await each.space("bank", partitions=3) for each in clients]
        for number in range(accounts):
            await banks[0].write(f"account-{number}", "of", 100)

        async def move(bank: Any, turn: int) -> None:
            names = [f"account-{(turn + more) % accounts}" for more in (0, 1)]
            async with bank.transaction() as transaction:
                one, other = [
                    (await transaction.take(name, "of", int, timeout_s=60))[2] for name in names
                ]
                await transaction.write(names[0], "of", one - 7)
                await transaction.write(names[1], "of", other + 7)

        async def move_all(bank: Any) -> None:
            turn = 0
            while turn < moves:
                try:
                    await move(bank, turn)
                except entrepot.Conflict:
                    continue
                except ClientError:  # It may have happened: the sum is the same, either way.
                    await asyncio.sleep(0.5)
                turn += 1

        moving = [asyncio.create_task(move_all(bank)) for bank in banks]
        await asyncio.sleep(2)
        victim = world.nodes[0]
        await asyncio.to_thread(world.kill, victim)
        await asyncio.sleep(8)
        await asyncio.to_thread(world.begin, victim)
        await asyncio.wait_for(asyncio.gather(*moving), 240)
        fresh = await clients[0].space("bank")
        has = [await fresh.take(f"account-{n}", "of", int, timeout_s=60) for n in range(accounts)]
        assert sum(balance for _, _, balance in has) == 100 * accounts
        with pytest.raises(TimeoutError):
            await fresh.take(str, "of", int, timeout_s=0)
    finally:
        for each in clients:
            await each.close()
