"""One workload by each strategy between real processes on this machine, and what it cost them.

The processes are `entrepot routing node`, one for each node of the laboratory's dealing room; they
find each other and talk over UDP. One of them may be killed in the middle.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, Self

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.routing.matching import Filter
from entrepot.core.clock import SystemEntropy
from entrepot.lab.routing import (
    EVENT_KINDS,
    SET_UP_KINDS,
    Delivered,
    Model,
    Outcome,
    Workload,
    dealing_room,
)
from entrepot.lab.table import Table

WAIT_S = 60.0
STEP_PERIODS = 1.0  # Between two looks at the nodes.
VIEW_STEPS = 6  # Nothing has changed for so long, and the nodes are at rest.
QUIET_STEPS = 5
SECRET_BYTES = 32


class Stuck(Exception):
    """Something that should have happened did not."""


class _Node:
    def __init__(self, number: Peer, process: asyncio.subprocess.Process) -> None:
        self.number = number
        self.process = process
        self.events: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.port = 0
        self._asked: list[asyncio.Future[None]] = []
        self._reading = asyncio.create_task(self._read())
        self.ready = asyncio.Event()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    async def look(self) -> dict[str, Any]:
        """Return what the node says of itself now."""
        asked = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self.say("?")
        await asked
        return self.summary

    async def end(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            found = json.loads(line)
            match found.pop("what"):
                case "ready":
                    self.port = found["port"]
                    self.ready.set()
                case "event":
                    self.events.append(found)
                case "summary":
                    self.summary = found
                    self._asked.pop(0).set_result(None)
        for asked in self._asked:
            asked.set_exception(Stuck(f"node {self.number} has ended"))


class Processes:
    """As many nodes as are asked for, which know each other."""

    def __init__(self, strategy: str, count: int, period_s: float, directory: Path) -> None:
        self.nodes: list[_Node] = []
        self._strategy = strategy
        self._count = count
        self._period_s = period_s
        self._secret = directory / "secret"

    async def __aenter__(self) -> Self:
        self._secret.write_text(SystemEntropy().token(SECRET_BYTES).hex())
        try:
            first = await self._start(0)
            await asyncio.wait_for(first.ready.wait(), WAIT_S)
            for number in range(1, self._count):
                await self._start(number, "--join", f"127.0.0.1:{first.port}")
            await self.at_rest([*range(self._count)])
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *reason: object) -> None:
        for node in self.nodes:
            await node.end()

    async def _start(self, number: Peer, *more: str) -> _Node:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "entrepot.cli", "routing", "node", "--json"),
            *("--id", str(number), "--strategy", self._strategy, "--attributes", "topic,price"),
            *("--secret-file", str(self._secret), "--period", str(self._period_s), *more),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.nodes.append(_Node(number, process))
        return self.nodes[-1]

    async def kill(self, number: Peer) -> None:
        await self.nodes[number].end()

    async def look(self) -> list[dict[str, Any]]:
        """Return what each node that is alive says of itself."""
        alive = [node for node in self.nodes if node.process.returncode is None]
        return [await asyncio.wait_for(node.look(), WAIT_S) for node in alive]

    async def at_rest(self, members: list[Peer]) -> None:
        """Wait until these are in one view, have told each other everything, and keep as many
        filters as a while ago."""

        def seen(found: list[dict[str, Any]]) -> Any:
            views = {each["view"] for each in found}
            if len(views) > 1 or any(each["members"] != members for each in found):
                return None
            return views, sum(each["filters"] for each in found)

        await self._unchanged(seen, VIEW_STEPS)

    async def delivered(self, expected: int) -> None:
        """Wait until that many events have come, and no more come; or until nothing has changed
        for so long that nothing will."""

        def seen(found: list[dict[str, Any]]) -> Any:
            return sum(len(node.events) for node in self.nodes)

        await self._unchanged(seen, QUIET_STEPS, lambda so_far: so_far >= expected)

    async def _unchanged(
        self,
        seen: Callable[[list[dict[str, Any]]], Any],
        steps: int,
        is_enough: Callable[[Any], bool] = lambda found: found is not None,
    ) -> None:
        before, same = None, 0
        for _ in range(int(WAIT_S / (STEP_PERIODS * self._period_s))):
            now = seen(await self.look())
            same = same + 1 if now == before else 0
            before = now
            if same >= steps and is_enough(now):
                return
            await asyncio.sleep(STEP_PERIODS * self._period_s)
        if not is_enough(before):
            raise Stuck(f"{self._strategy}: after {WAIT_S:.0f} seconds: {before}")


class Live(NamedTuple):
    outcome: Outcome
    expected: Delivered
    repeated: int  # Pieces of messages that were sent again.


async def live(
    strategy: str,
    count: int,
    events: int,
    seed: int,
    period_s: float,
    directory: Path,
    victim: Peer | None = None,
) -> Live:
    """Run a workload; the victim is killed when half of the events are delivered, and the others
    are published at once. Raises Stuck."""
    model = Model.TOPIC if strategy == "scribe" else Model.BOTH
    load = dealing_room(count, events, seed, model)
    expected: Delivered = Counter()
    async with Processes(strategy, count, period_s, directory) as processes:
        for peer, filter in load.advertisements:
            processes.nodes[peer].say(f"advertise {_text(filter)}")
        for peer, filter in load.subscriptions:
            processes.nodes[peer].say(f"subscribe {_text(filter)}")
        await processes.at_rest([*range(count)])
        middle = events if victim is None else events // 2
        expected += _publish(processes, load, 0, middle, None)
        await processes.delivered(expected.total())
        if victim is not None:
            await processes.kill(victim)
            expected += _publish(processes, load, middle, events, victim)
            await processes.at_rest([peer for peer in range(count) if peer != victim])
            await processes.delivered(expected.total())
        return _outcome(processes, expected)


def _publish(
    processes: Processes, load: Workload, begin: int, end: int, gone: Peer | None
) -> Delivered:
    """Publish some of the events, and return who is to get them."""
    for peer, event in load.events[begin:end]:
        if peer != gone:
            processes.nodes[peer].say(f"publish {json.dumps(event)}")
    everything = load.expected()
    return Counter(
        {
            (peer, number): times
            for (peer, number), times in everything.items()
            if begin <= number < end and gone not in (peer, load.events[number][0])
        }
    )


def _outcome(processes: Processes, expected: Delivered) -> Live:
    found: Delivered = Counter()
    hops: list[int] = []
    sent: Counter[str] = Counter()
    for node in processes.nodes:
        found.update((node.number, int(each["event"]["number"])) for each in node.events)
        hops += [each["hops"] for each in node.events]
        sent.update(node.summary["sent"])
    states = [node.summary["filters"] for node in processes.nodes]
    outcome = Outcome(
        found,
        sum(sent[name] for name in SET_UP_KINDS),
        sum(sent[name] for name in EVENT_KINDS),
        sum(states),
        max(states),
        sum(hops) / max(len(hops), 1),
    )
    return Live(outcome, expected, sum(node.summary["repeated"] for node in processes.nodes))


def _text(filter: Filter) -> str:
    triples = ", ".join(
        f"({each.attribute}, {each.operator.value}, {json.dumps(each.value)})"
        for each in filter.constraints
    )
    return f"{{{triples}}}"


def live_table(
    names: Sequence[str], count: int, events: int, seed: int, period_s: float, victim: Peer | None
) -> Table:
    """Run the strategies one after the other. Raises Stuck."""
    rows = []
    for name in names:
        with TemporaryDirectory() as directory:
            found = asyncio.run(live(name, count, events, seed, period_s, Path(directory), victim))
        outcome = found.outcome
        rows.append(
            (
                name,
                outcome.delivered.total(),
                outcome.delivered == found.expected,
                outcome.set_up,
                outcome.messages,
                outcome.messages / events,
                outcome.state,
                outcome.state_max,
                outcome.hops,
                found.repeated,
            )
        )
    killed = "" if victim is None else f", of which node {victim} is killed in the middle"
    return Table(
        "live",
        f"A dealing room: {events} events between {count} processes{killed}",
        (
            "strategy", "delivered", "as_expected", "set_up", "messages", "per_event", "filters",
            "filters_max", "hops", "repeated",
        ),
        rows,
        (
            "Delivered as expected: each event once to each node that wants it. With scribe a",
            "subscription is a topic and nothing more: it delivers more. Repeated: pieces of",
            "messages that were sent again. Of a node that was killed, what it last said counts.",
        ),
    )  # fmt: skip
