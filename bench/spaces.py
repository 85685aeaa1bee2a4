"""Tuples written and taken in a second, through a space on one broker.

    python -m bench.spaces [--durability os]

One client, many tasks: each writes a tuple and takes one, again and again. A write and a take are
two records, each waited for until it has been read back in the order of the log.
"""

from __future__ import annotations

import argparse
import asyncio
import time

import uvloop

import entrepot
from entrepot.testing import Broker, broker

ROUNDS, COUNT = 3, 20_000
TASKS = (1, 100, 2_000)


def main() -> None:
    parser = argparse.ArgumentParser(description="Tuples written and taken in a second.")
    parser.add_argument("--durability", default="fsync", choices=("fsync", "interval", "os"))
    durability = parser.parse_args().durability
    with broker(durability=durability) as server:
        print(f"durability {durability}, best of {ROUNDS}: pairs of write and take a second")
        for tasks in TASKS:
            count = COUNT if tasks > 1 else 500
            best = max(uvloop.run(pairs(server, tasks, count, turn)) for turn in range(ROUNDS))
            print(f"  {tasks:>5} tasks {best:>10,.0f}")


async def pairs(server: Broker, tasks: int, count: int, turn: int) -> float:
    host, port = server.endpoints["amqp"]
    async with entrepot.AsyncClient(f"{host}:{port}", server.bootstrap) as client:
        space = await client.space(f"bench-{tasks}-{turn}")

        async def work() -> None:
            for number in range(count // tasks):
                await space.write("job", number)
                await space.take("job", int)

        started = time.perf_counter()
        await asyncio.gather(*(work() for _ in range(tasks)))
        return count / (time.perf_counter() - started)


if __name__ == "__main__":
    main()
