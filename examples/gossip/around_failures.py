"""Requests are sent around servers that have failed, as S3's front ends do, by what gossip knows.

Nobody tells the front end: it is a node like the servers, and asks only those that it takes for
alive.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from examples.gossip.nodes import alive, start_all, until

SERVERS = (1, 2, 3, 4)


async def main() -> None:
    nodes = await start_all(1 + len(SERVERS))
    front_end = nodes[0]

    def ask(times: int) -> str:
        """Send requests to the servers in turn; return who got some."""
        servers = [node for node in alive(front_end) if node in SERVERS]
        asked = Counter(servers[turn % len(servers)] for turn in range(times))
        return ", ".join(f"server {server}: {count}" for server, count in sorted(asked.items()))

    print("all are there:", ask(12))
    nodes[2].crash()
    await until(lambda: alive(front_end) == [0, 1, 3, 4])
    print("server 2 has failed:", ask(12))
    for node in (*nodes[:2], *nodes[3:]):
        node.stop()


if __name__ == "__main__":
    asyncio.run(main())
