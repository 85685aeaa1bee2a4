"""Labs of replicated tuple spaces: the steps of Xu and Liskov, and what they cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from entrepot.client.messaging.templates import Tuple
from entrepot.client.messaging.xu_liskov import (
    Read,
    Reading,
    Request,
    Send,
    Site,
    Taking,
    Trace,
    Write,
    Writing,
)
from entrepot.lab.spreading import losing
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import SeededEntropy, Timeline

DELAY_S, PERIOD_S = 0.001, 0.02
LOSS = 0.3
STEPS = {
    "write 1": "the requester multicasts the write to all members of the view",
    "write 2": "a member inserts the tuple into its replica, and acknowledges",
    "write 3": "step 1 is repeated until all acknowledgements are there",
    "read 1": "the requester multicasts the read to all members",
    "read 2": "a member returns a matching tuple",
    "read 3": "the first tuple is the result, the others are ignored",
    "read 4": "step 1 is repeated until there is an answer",
    "take 1.1": "the requester multicasts the take to all members",
    "take 1.2": "a member locks the tuple set, or rejects the take",
    "take 1.3": "a member that accepts returns all matching tuples",
    "take 1.4": "step 1 is repeated until all accepted; the intersection is not empty",
    "take 1.5": "one tuple of the intersection is chosen at random",
    "take 1.6": "only a minority accepts: it releases its locks, phase 1 again",
    "take 2.1": "the requester multicasts which tuple is to be removed",
    "take 2.2": "a member removes it, acknowledges, and releases the lock",
    "take 2.3": "step 1 is repeated until all acknowledgements are there",
}


class _AtSite:
    """A site as a node of a world."""

    hears: ClassVar[tuple[type, ...]] = ()
    is_active: ClassVar[bool] = False
    period_s: ClassVar[float] = PERIOD_S

    def __init__(self, site: Site) -> None:
        self.site = site

    def tick(self, now: float) -> Sequence[Send]:
        return ()

    def receive(self, sender: int, message: Any, now: float) -> Sequence[Send]:
        return ((sender, self.site.receive(message, int(now * 1_000))),)


class _AtRequester:
    """A client as a node of a world: does one request after the other."""

    hears: ClassVar[tuple[type, ...]] = ()
    period_s: ClassVar[float] = PERIOD_S

    def __init__(self, next_request: Callable[[], Request | None]) -> None:
        self.done: list[Request] = []
        self.now: Request | None = None
        self._next = next_request
        self._sent_at = 0.0

    @property
    def is_active(self) -> bool:
        return self.now is not None

    def begin(self, now: float) -> Sequence[Send]:
        self._sent_at, self.now = now, self._next()
        return () if self.now is None else self.now.start()

    def tick(self, now: float) -> Sequence[Send]:
        if self.now is None or now - self._sent_at < PERIOD_S / 2:
            return ()  # What was sent a moment ago need not be repeated.
        return self.now.tick()

    def receive(self, sender: int, message: Any, now: float) -> Sequence[Send]:
        if self.now is None:
            return ()
        sends = self.now.receive(sender, message)
        if sends:
            self._sent_at = now
        if not self.now.is_over:
            return sends
        self.done.append(self.now)
        return [*sends, *self.begin(now)]


class Replicas:
    """Sites and clients on a timeline, with losses; sites have the lowest numbers."""

    def __init__(
        self, sites: int, seed: int, *, loss: float = 0.0, trace: Trace | None = None
    ) -> None:
        self.entropy = SeededEntropy(seed)
        random = self.entropy.random
        self.world = Timeline(
            random, lambda *_: DELAY_S * (1 + 2 * random.random()), losing(loss, random)
        )
        self.sites = [Site(trace, f"site {number}") for number in range(sites)]
        self.clients: list[_AtRequester] = []
        self._trace = trace
        self._number = 0
        for number, site in enumerate(self.sites):
            self.world.attach(number, _AtSite(site))

    def write(self, value: Tuple) -> Writing:
        name = self._name()
        return Writing(name, len(self.sites), Write(name, name, value), self._trace)

    def read(self, template: Tuple) -> Reading:
        name = self._name()
        return Reading(name, len(self.sites), Read(name, template), self._trace)

    def take(self, template: Tuple) -> Taking:
        return Taking(self._name(), len(self.sites), template, self.entropy, self._trace)

    def add_client(self, next_request: Callable[[], Request | None]) -> _AtRequester:
        client = _AtRequester(next_request)
        node = len(self.sites) + len(self.clients)
        self.clients.append(client)
        self.world.add(node, client)
        self.world.send(node, client.begin(self.world.now))
        return client

    def run(self, end_s: float) -> None:
        """Run until all clients have nothing to do, or so much time has passed."""
        while self.world.now < end_s and any(each.now is not None for each in self.clients):
            self.world.run_until(self.world.now + PERIOD_S)

    def _name(self) -> str:
        self._number += 1
        return f"r{self._number}"


def in_turn(*requests: Request) -> Callable[[], Request | None]:
    """Return a function that gives one request after the other, and then None."""
    left = iter(requests)
    return lambda: next(left, None)


def steps(sites: int, seed: int) -> Table:
    """The steps of one write, one read, and takes of which two collide; messages get lost."""
    seen: Counter[str] = Counter()
    who: dict[str, str] = {}

    def note(step: str, name: str) -> None:
        seen[step] += 1
        who.setdefault(step, "a member" if name.startswith("site") else "the requester")

    replicas = Replicas(sites, seed, loss=LOSS, trace=note)
    writes = [replicas.write(("job", number)) for number in range(6)]
    reads = [replicas.read(("job", number % 6)) for number in range(12)]
    replicas.add_client(in_turn(*writes, *reads))
    replicas.run(60)
    for _ in range(3):
        replicas.add_client(in_turn(*(replicas.take(("job", int)) for _ in range(2))))
    replicas.run(600)
    taken = sorted(
        each.result[1] for client in replicas.clients[1:] for each in client.done if each.result
    )
    return Table(
        "xu-liskov",
        f"Xu and Liskov's space at {sites} sites: 6 writes, 12 reads, 6 takes of 3 clients at "
        f"once, {LOSS:.0%} of all messages lost",
        ("step", "who", "what_the_lecture_says", "seen"),
        [(step, who.get(step, "-"), text, seen[step]) for step, text in STEPS.items()],
        (f"Taken: {taken}; left at the sites: {[len(each.tuples) for each in replicas.sites]}.",),
    )


def costs(counts: Sequence[int], runs: int, seed: int) -> Table:
    """What a write, a read and a take cost, over the number of sites, alone and contended."""
    rows = []
    for count in counts:
        for kind in ("write", "read", "take"):
            rows.append((count, kind, 1, *_cost(count, kind, 1, runs, seed)))
        rows.append((count, "take", 4, *_cost(count, "take", 4, runs, seed)))
    curves = [
        Curve(
            f"{kind}, {clients} at once", counts, [r[3] for r in rows if r[1:3] == (kind, clients)]
        )
        for kind, clients in (("write", 1), ("read", 1), ("take", 1), ("take", 4))
    ]
    return Table(
        "replication",
        f"Messages and time of an operation, the mean of {runs}; a message takes "
        f"{DELAY_S * 1000:.0f} to {3 * DELAY_S * 1000:.0f} ms",
        ("sites", "operation", "clients_at_once", "messages", "milliseconds"),
        rows,
        (
            "A read is over with its first answer. Each phase of a take asks every site; the "
            "second asks the first site before the others.",
        ),
        (Picture("sites", "messages of an operation", tuple(curves)),),
    )


def _cost(sites: int, kind: str, clients: int, runs: int, seed: int) -> tuple[float, float]:
    replicas = Replicas(sites, seed)
    count = runs * clients
    writes = [replicas.write(("job", number)) for number in range(count)]
    if kind != "write":
        replicas.add_client(in_turn(*writes))
        replicas.run(1e6)
        writes = []
    before, begun = sum(replicas.world.sent.values()), replicas.world.now
    make: Callable[[Tuple], Request] = replicas.read if kind == "read" else replicas.take
    for number in range(clients):
        mine: list[Request] = list(writes[number * runs :][:runs])
        if kind != "write":
            mine = [make(("job", int)) for _ in range(runs)]
        replicas.add_client(in_turn(*mine))
    replicas.run(1e6)
    took_s = replicas.world.now - begun
    return (sum(replicas.world.sent.values()) - before) / count, 1_000 * took_s / runs
