"""A tuple space that is replicated after Xu and Liskov, over the nodes of a cluster.

A site is a partition that has no other copy, led by a node of its own: what it was told, in order.
Every client that uses the space reads all of them, and so knows what each site has and answers (see
`xu_liskov`); to ask a site is to append a record to it. So a site that crashes is what it was when
it comes back, and what was acknowledged is on disk at all of them.

The view is the sites that there are. While one is away, reads go on, and writes and takes wait.
"""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.memory import MemoryVerbs
from entrepot.client.messaging.replica import Replica
from entrepot.client.messaging.spaces import FIELDS_MAX, TUPLES_MAX
from entrepot.client.messaging.templates import (
    Tuple,
    matches,
    template_as_json,
    template_of_json,
)
from entrepot.client.messaging.topics import Entry, TopicVerbs
from entrepot.client.messaging.xu_liskov import (
    Read,
    Reading,
    Release,
    Remove,
    Request,
    Send,
    Site,
    Take,
    Taking,
    Trace,
    Write,
    Writing,
)
from entrepot.core.clock import SystemEntropy
from entrepot.core.record import Record

SITES_MAX = 100
PERIOD_S = 0.05  # Before a step is repeated.
_ID_BYTES = 12
_SETTINGS = {
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "min.insync.replicas": "1",
    "message.timestamp.type": "LogAppendTime",  # All agree on how old a lock is.
}


class ReplicatedSpace:
    """A space with a copy at each of its sites. Made by `AsyncClient.replicated_space`."""

    def __init__(self, verbs: TopicVerbs, name: str, sites: int, trace: Trace | None) -> None:
        """`sites` is how many there are, if the space is made here."""
        self.name = name
        self.sites = [Site(trace, f"site {number}") for number in range(sites)]
        self._verbs = verbs
        self._trace = trace
        self._entropy = SystemEntropy()
        self._starting: list[asyncio.Task[Replica]] = []
        self._news: dict[asyncio.Event, Tuple] = {}  # Set when a site gets a tuple that matches.
        self._running: set[asyncio.Task[Any]] = set()

    async def start(self) -> None:
        """Make the space, unless it is there; begin to read its sites, and wait for the first."""
        from entrepot.client.admin import Admin, NewTopic

        client, topic = await self._verbs.kafka(), f"sites.{self.name}"
        wanted = NewTopic(topic, len(self.sites), replication_factor=1, settings=_SETTINGS)
        await Admin(client).ensure_topic(wanted)
        count = len((await client.topic(topic, create=True)).partitions)
        self.sites = [Site(self._trace, f"site {number}") for number in range(count)]
        self._starting = [asyncio.create_task(self._follow(site)) for site in range(count)]
        self._verbs.stops(self)
        await asyncio.wait(self._starting, return_when=asyncio.FIRST_COMPLETED)

    async def stop(self) -> None:
        tasks = [*self._starting, *self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the verbs

    async def write(self, *fields: Any) -> None:
        """Put a tuple into the space. It is at all sites, on disk, when this returns.

        Raises ClientError for what JSON cannot say, and when the space is full.
        """
        if not 0 < len(fields) <= FIELDS_MAX:
            raise ClientError(f"a tuple has 1 to {FIELDS_MAX} fields")
        if any(len(site.tuples) >= TUPLES_MAX for site in self.sites):
            raise ClientError(f"space '{self.name}' has {TUPLES_MAX} tuples, and takes no more")
        try:
            json.dumps(fields, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ClientError(f"a tuple has fields that JSON can say: {error}") from None
        await self._run(self._writing(fields))

    async def read(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Return a tuple that matches, from the first site that has one; wait for one.

        Raises TimeoutError; at once, with a time of 0.
        """
        return await self._until_found(template, timeout_s, self._read_once)

    async def take(self, *template: Any, timeout_s: float | None = None) -> Tuple:
        """Take a tuple that matches out of the space: nobody else gets it. See `read`."""
        return await self._until_found(template, timeout_s, self._take_once)

    # --- how

    def _writing(self, fields: Tuple) -> Writing:
        id = self._name()
        return Writing(id, len(self.sites), Write(id, id, fields), self._trace)

    async def _until_found(self, template: Tuple, timeout_s: float | None, once: Any) -> Tuple:
        template_as_json(template)  # Refuses what is none.
        news = asyncio.Event()
        self._news[news] = template
        try:
            async with asyncio.timeout(timeout_s if timeout_s != 0 else None):
                while True:
                    news.clear()
                    if any(self._has(site, template) for site in self.sites):
                        found: Tuple | None = await once(template)
                        if found is not None:
                            return found
                    if timeout_s == 0:
                        raise TimeoutError("nothing matches")
                    await news.wait()
        finally:
            del self._news[news]

    def _has(self, site: Site, template: Tuple) -> bool:
        return any(matches(template, value) for value in site.tuples.values())

    async def _read_once(self, template: Tuple) -> Tuple | None:
        name = self._name()
        reading = Reading(name, len(self.sites), Read(name, template), self._trace)
        await self._run(reading)
        return reading.result

    async def _take_once(self, template: Tuple) -> Tuple | None:
        """Once it is under way it happens, even if who asked is gone: then it is given back."""
        taking = Taking(self._name(), len(self.sites), template, self._entropy, self._trace)
        task = self._keep(self._run(taking))
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(partial(self._give_back, taking))
            raise
        return taking.result

    def _give_back(self, taking: Taking, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None and taking.result is not None:
            self._keep(self._run(self._writing(taking.result)))

    def _keep(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _run(self, request: Request) -> None:
        """Ask sites until the request is over. What was sent is sent again by the client itself,
        so steps are repeated only when sites have refused, or were away for too long."""
        asked: dict[asyncio.Task[Any], int] = {}
        sends = request.start()
        try:
            while not request.is_over:
                for site, message in sends:
                    asked[asyncio.create_task(self._ask(site, message))] = site
                if asked:
                    done, _ = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
                    sends = self._hear(request, {task: asked.pop(task) for task in done})
                else:
                    await asyncio.sleep(PERIOD_S)
                    sends = request.tick()
        finally:
            for task in asked:
                task.cancel()

    def _hear(self, request: Request, done: dict[asyncio.Task[Any], int]) -> list[Send]:
        sends: list[Send] = []
        for task, site in done.items():
            failure = task.exception()
            if failure is None:
                sends += request.receive(site, task.result())
            elif not isinstance(failure, ClientError) or not failure.retriable:
                raise failure
        return sends

    async def _ask(self, site: int, message: Any) -> Any:
        """Return what a site answers. To read nothing is sent: what it has is known here."""
        replica = await asyncio.shield(self._starting[site])
        if isinstance(message, Read):
            return self.sites[site].receive(message, 0)
        return await replica.change(Record(None, encoded(message)))

    async def _follow(self, site: int) -> Replica:
        topic = f"sites.{self.name}"
        while True:
            self.sites[site] = Site(self._trace, f"site {site}")
            replica = Replica(self._verbs, topic, partial(self._apply, site), partition=site)
            try:
                await replica.start()
                return replica
            except ClientError as error:
                if not error.retriable:
                    raise
                await asyncio.sleep(1.0)  # Its node is away.

    def _apply(self, site: int, entry: Entry) -> Any:
        """Have a site do what a record asks. Return its answer."""
        message = decoded(entry.body)
        if message is None:
            return None  # Somebody wrote something else there.
        answer = self.sites[site].receive(message, entry.timestamp_ms)
        if isinstance(message, Write):
            for news, template in self._news.items():
                if matches(template, message.value):
                    news.set()
        return answer

    def _name(self) -> str:
        return self._entropy.token(_ID_BYTES).hex()


class ReplicatedSpaceVerbs(MemoryVerbs):
    """The part of a client that is about spaces replicated by their own protocol."""

    async def replicated_space(
        self, name: str, *, sites: int = 3, trace: Trace | None = None
    ) -> ReplicatedSpace:
        """Return a space after Xu and Liskov, made if there is none: then it has so many sites.

        `trace` is called with each step that is taken, such as "take 1.3", and by whom.
        """
        if not 0 < sites <= SITES_MAX:
            raise ClientError(f"a replicated space has 1 to {SITES_MAX} sites")
        made = ReplicatedSpace(self, name, sites, trace)
        await made.start()
        return made


def encoded(message: Any) -> bytes:
    """Return a message to a site as a record's body."""
    fields = message._asdict()
    if isinstance(message, Take):
        fields["template"] = template_as_json(message.template)
    return json.dumps([type(message).__name__, fields], separators=(",", ":")).encode()


def decoded(body: bytes) -> Write | Take | Release | Remove | None:
    """Return the message, or None for what is none."""
    try:
        kind, fields = json.loads(body)
        if kind == "Take":
            return Take(str(fields["request"]), template_of_json(fields["template"]))
        if kind == "Write":
            value = tuple(fields["value"])
            return Write(str(fields["request"]), str(fields["id"]), value) if value else None
        if kind == "Release":
            return Release(str(fields["request"]))
        if kind == "Remove":
            is_decided = bool(fields["is_decided"])
            return Remove(str(fields["request"]), str(fields["id"]), is_decided)
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    return None
