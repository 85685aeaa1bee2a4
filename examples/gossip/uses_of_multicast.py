"""Four uses of multicast, one line each: a replicated service, discovery, replicated data, events.

The service is a group: a request reaches all replicas, so an answer comes although one is gone.
"""

from __future__ import annotations

import asyncio

from entrepot.cluster.gossip.agent import Hooks
from entrepot.wire.gossip.messages import Event, GroupMessage
from examples.gossip.nodes import PERIOD_S, alive, start_all, until

NODES = 5
REPLICAS = (1, 2, 3)


async def main() -> None:
    answers: set[int] = set()
    notified: set[int] = set()

    def hooks(number: int) -> Hooks:
        def request(message: GroupMessage) -> None:
            answers.add(number)

        def event(event: Event) -> None:
            notified.add(number)

        return Hooks(group_message=request, event=event)

    nodes = await start_all(NODES, hooks)
    nodes[4].put("service", b"printing")
    await until(lambda: nodes[0].agent.store.get(4, "service") is not None)
    print("discovery: node 0 finds printing at node 4")

    nodes[2].put("balance", b"100")
    await until(lambda: all(node.agent.store.get(2, "balance") == b"100" for node in nodes))
    print(f"replicated data: {NODES} of {NODES} nodes have balance = 100")

    nodes[1].multicast(b"the door is open")
    await until(lambda: len(notified) == NODES)
    print(f"events: {len(notified)} of {NODES} nodes were notified")

    for replica in REPLICAS:
        nodes[replica].join_group("service")
    nodes[3].crash()
    await until(lambda: 3 not in alive(nodes[0]))
    while not {1, 2} <= answers:
        nodes[0].send_to_group("service", b"a request")
        await asyncio.sleep(PERIOD_S)
    print(f"replicated service: replicas {sorted(answers)} answer, 3 is gone")
    for node in nodes:
        node.stop()


if __name__ == "__main__":
    asyncio.run(main())
