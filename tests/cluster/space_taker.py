"""A process that takes tuples out of a space of a cluster, many at once, and prints what it got.

    python -m tests.cluster.space_taker KAFKA TASKS

Each task ends with a tuple whose number is below 0.
"""

from __future__ import annotations

import asyncio
import sys

import entrepot

SPACE = "harvest"


async def main() -> None:
    bootstrap, tasks = sys.argv[1], int(sys.argv[2])
    client = entrepot.AsyncClient(kafka=bootstrap)
    space = await client.space(SPACE)
    print("taker", space._taker, flush=True)

    async def work() -> None:
        while True:
            _, number = await space.take(str, int)
            if number < 0:
                return
            print(number, flush=True)

    await asyncio.gather(*(work() for _ in range(tasks)))
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
