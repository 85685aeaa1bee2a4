"""`python -m tests.cluster.spaces`: takers of one space on three nodes, which are killed in turn.

A writer writes tuples; takers, each a process, want any of them, many at once. Meanwhile one node
after the other is killed (-9) and comes back, and a taker is killed, too. Then what was taken is
compared with what was written, and with the log: no tuple is taken twice, and none is lost. Of the
taker that was killed the log knows what it took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import entrepot
from entrepot.client.messaging.spaces import Space
from tests.cluster.harness import SETTINGS
from tests.cluster.space_taker import SPACE
from tests.cluster.world import World

PARTITIONS, KINDS = 6, 20
AT_ONCE = 2_000  # Tuples that are in the space, about.
TASKS = 40  # Of each taker.
PATIENCE_S = 150.0


class Outcome(NamedTuple):
    written: int
    taken: int
    twice: list[int]
    lost: list[int]
    told_otherwise: list[int]  # What a taker was told, and the log says of somebody else.
    kills: int
    took_s: float

    @property
    def is_good(self) -> bool:
        return not (self.twice or self.lost or self.told_otherwise) and self.taken == self.written

    def text(self) -> str:
        return (
            f"{self.written} tuples written, {self.taken} taken, {len(self.twice)} twice, "
            f"{len(self.lost)} lost, {len(self.told_otherwise)} told otherwise; "
            f"{self.kills} nodes killed, {self.took_s:.0f} s: "
            f"{'as promised' if self.is_good else 'NOT as promised'}"
        )


class Taker:
    def __init__(self, bootstrap: str) -> None:
        command = [sys.executable, "-m", "tests.cluster.space_taker", bootstrap, str(TASKS)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)

    def end(self) -> None:
        try:
            self.process.wait(PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()
            self._thread.join()

    @property
    def name(self) -> str:
        return self.lines[0].split()[1]

    @property
    def taken(self) -> list[int]:
        """Return what it said that it has taken; of the killed one without its last half word."""
        return [int(line) for line in self.lines[1:] if line.endswith("\n")]


def run(
    directory: Path,
    *,
    tuples: int,
    takers: int,
    kill_every: int,
    say: Callable[[str], object] = lambda line: None,
) -> Outcome:
    with World(directory, 3, {**SETTINGS, "cluster.queues": False}) as world:
        return asyncio.run(_run(world, tuples, takers, kill_every, say))


async def _run(
    world: World, tuples: int, takers: int, kill_every: int, say: Callable[[str], object]
) -> Outcome:
    begun, kills = time.monotonic(), 0
    client = entrepot.AsyncClient(kafka=world.bootstrap)
    space = await client.space(SPACE, partitions=PARTITIONS)
    await space.write("first", 0)
    assert await space.take(str, int) == ("first", 0)  # Now it reads all partitions.
    workers = [Taker(world.bootstrap) for _ in range(takers)]
    try:
        await _until(lambda: all(each.lines for each in workers))
        for first in range(0, tuples, 1_000):
            numbers = range(first, min(first + 1_000, tuples))
            writing = asyncio.gather(
                *(space.write(f"kind-{number % KINDS}", number) for number in numbers)
            )
            if first % kill_every == kill_every // 1_000 // 2 * 1_000:
                victim = world.nodes[kills % 3]
                await asyncio.to_thread(world.kill, victim)
                await asyncio.sleep(0.5 + kills % 3)
                await asyncio.to_thread(world.begin, victim)
                kills += 1
                wrong = await asyncio.to_thread(world.wait_healed, [f"space.{SPACE}"])
                say(f"{first} written, node {victim.number} was killed {wrong}")
                assert not wrong, wrong
            await writing
            if first // 1_000 == tuples // 2_000:
                workers[0].process.kill()
            await _until(lambda: len(space) < AT_ONCE)
        await _until(lambda: len(space) == 0)
        for number in range(takers * TASKS):  # More than are needed: one was killed.
            await space.write("end", -1 - number)
        await asyncio.gather(*(asyncio.to_thread(each.end) for each in workers))
    finally:
        for each in workers:
            each.process.kill()
    outcome = await _compare(client, space, workers, tuples, kills, time.monotonic() - begun)
    await client.close()
    return outcome


async def _until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, "it does not come"
        await asyncio.sleep(0.05)


async def _compare(
    client: entrepot.AsyncClient,
    space: Space,
    workers: list[Taker],
    tuples: int,
    kills: int,
    took_s: float,
) -> Outcome:
    claims = await _claims(client, space)
    killed, *others = workers
    counts = Counter(chain.from_iterable(each.taken for each in workers))
    reached = set(chain.from_iterable(claims.values())) & set(range(tuples))
    otherwise = [number for number in killed.taken if number not in claims.get(killed.name, ())]
    for each in others:  # Who was not killed has heard of all that it took, and of nothing else.
        mine = {number for number in claims.get(each.name, ()) if number >= 0}
        otherwise += mine ^ set(each.taken)
    return Outcome(
        tuples,
        len(reached),
        [number for number, count in counts.items() if count > 1],
        sorted(set(range(tuples)) - reached),
        otherwise,
        kills,
        took_s,
    )


async def _claims(client: entrepot.AsyncClient, space: Space) -> dict[str, set[int]]:
    """Return who took what, as the log has it: the first take of a tuple counts."""
    numbers: dict[bytes, int] = {}
    claims: dict[str, set[int]] = {}
    reader = await (await client.topic(f"space.{space.name}")).read()
    while entries := await reader.poll(2):
        for entry in entries:
            assert entry.key is not None
            taker = entry.headers.get("space-taker")
            if taker is None:
                numbers[entry.key] = json.loads(entry.body)[1]
            elif entry.key in numbers:
                claims.setdefault(taker.decode(), set()).add(numbers.pop(entry.key))
    claims.pop(space._taker, None)
    return claims


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tuples", type=int, default=100_000)
    parser.add_argument("--takers", type=int, default=10)
    parser.add_argument("--kill-every", type=int, default=10_000, help="tuples")
    parser.add_argument("--directory", type=Path, help="kept; else a temporary one")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="entrepot-spaces-") as temporary:
        outcome = run(
            chosen.directory or Path(temporary),
            tuples=chosen.tuples,
            takers=chosen.takers,
            kill_every=chosen.kill_every,
            say=lambda line: print(line, flush=True),
        )
    print(outcome.text())
    sys.exit(not outcome.is_good)


if __name__ == "__main__":
    main()
