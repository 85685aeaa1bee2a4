"""Caches at the edge, told by bimodal multicast what is no longer valid, as Fastly does.

Every cache has a copy of two pages. One page changes: the node that changed it tells all, and each
drops its copy. A cache that lost the message would be told again by the digests of the others.
"""

from __future__ import annotations

import asyncio

from entrepot.cluster.gossip.agent import Hooks
from entrepot.wire.gossip.messages import Event
from examples.gossip.nodes import start_all, until

CACHES = 6


async def main() -> None:
    caches = [{"/index": "old", "/about": "old"} for _ in range(CACHES)]

    def hooks(number: int) -> Hooks:
        def invalid(event: Event) -> None:
            caches[number].pop(event.body.decode(), None)

        return Hooks(event=invalid)

    nodes = await start_all(CACHES, hooks)
    nodes[3].multicast(b"/index")
    await until(lambda: not any("/index" in cache for cache in caches))
    print(f"{sum('/index' not in cache for cache in caches)} of {CACHES} caches dropped /index")
    print(f"{sum('/about' in cache for cache in caches)} of {CACHES} caches kept /about")
    for node in nodes:
        node.stop()


if __name__ == "__main__":
    asyncio.run(main())
