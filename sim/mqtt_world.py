"""Clients of MQTT on a node in trouble: what is answered arrives, and at QoS 2 it arrives once.

Clients with sessions publish in QoS 1 and 2 and send again what was not answered; others have
sessions that subscribed to all of it, alone or as a group; some die with a will, and some keep
retained messages up to date. The node crashes, its disk fails, links break. At the end all is
healed and everything is taken out: nothing that was answered is missing, nothing of QoS 2 came
twice, each topic was in order, and the sessions were there. Then the node crashes once more, and
nothing comes again. All the time each hidden queue must account for its messages.

With less than `fsync` the node is killed, and its power does not fail. Odd seeds have a disk that
fails: then a message that could not be stored everywhere, and that its client sends again before
it has heard of that, comes behind those that could. Even seeds are strict about the order.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

from entrepot.broker.queue.queue import Queue
from entrepot.config import Config, Ports, Security
from entrepot.core.ports import World
from entrepot.log.policy import Durability
from entrepot.server import Server
from entrepot.wire.mqtt.packets import V5, Connect, Suback, Subscribe, Subscription, Will
from entrepot.wire.mqtt.properties import Properties
from entrepot.wire.mqtt.scan import Acks, Event, Publishes
from sim.disk import SimDisk
from sim.history import Violation
from sim.loop import SimLoop
from sim.mqtt_client import PATIENCE_S, Gone, MqttClient
from sim.mqtt_peers import Counts, Getter, Sender
from sim.queue_conservation import QueueConservation
from sim.trouble import HOST, Trouble

PORT = 1883
SENDERS, GETTERS, MEMBERS, MORTALS = 3, 2, 2, 2
_NEVER = Properties(session_expiry_interval=0xFFFF_FFFF)
_DRAIN_S = 60.0
_QUIET_S = 3.0
_WILL_S = 5.0  # By then a will is published, if nothing is in its way.
_CONFIG = Config(
    host=HOST,
    ports=Ports(kafka=None, amqp=None, http=None, sqs=None, stomp=None, mqtt=PORT),
    security=Security(insecure=True),
)


class Result(NamedTuple):
    answered: int
    deliveries: int
    refused: int
    wills: int
    retained: int
    crashes: int
    faults: int
    trace: str


class MqttWorld(Trouble):
    def __init__(
        self, loop: SimLoop, *, seconds: float, durability: Durability, **options: Any
    ) -> None:
        self.senders = [Sender(f"s{n}", loop.random(f"s{n}")) for n in range(SENDERS)]
        self.getters = [
            Getter(f"g{n}", loop.random(f"g{n}"), self.senders, is_strict=loop.seed % 2 == 0)
            for n in range(GETTERS)
        ]
        group: Counts = defaultdict(dict)
        self.members = [
            Getter(f"m{n}", loop.random(f"m{n}"), self.senders, group=group) for n in range(MEMBERS)
        ]
        self._mortals = [f"mortal{n}" for n in range(MORTALS)]
        machines = [each.name for each in self.senders]
        machines += [each.name for each in self._all_getters]
        machines += [*self._mortals, "keeper", "reader"]
        options["power_fails"] = durability is Durability.FSYNC
        super().__init__(loop, _CONFIG, machines, durability=durability, **options)
        self._seconds = seconds
        self._latest: Server | None = None  # Started, or about to.
        self.conservation = QueueConservation()
        self._has_session: dict[str, None] = {}  # Clients that were told of one.
        self.life = 0  # Of the node.
        self._dead: dict[str, tuple[int, float]] = {}  # By will: the life of the node, and when.
        self._alive: dict[str, None] = {}  # Wills of those that are connected or left politely.
        # By topic: what was published to be retained, and how much of it was answered.
        self._kept: dict[str, list[bytes]] = defaultdict(list)
        self._kept_answered: dict[str, int] = defaultdict(int)
        self.retained = 0  # Messages that were seen.

    def _note(self, *event: object) -> None:
        self.history.note(self._loop.time(), *event)

    async def run(self) -> Result:
        await self._start_whole()
        for each in (*self.getters, *self.members):
            await self._subscribe(each)
        works = [self._crash_now_and_then(), self._break_links(), self._jump_the_clock()]
        if self._loop.seed % 2:
            works.append(self._fail_the_disk())
        works += [self._live(each.name, self._send, each) for each in self.senders]
        works += [self._live(each.name, self._get, each) for each in self._all_getters]
        works += [self._live(each, self._die, each) for each in self._mortals]
        works += [self._live("keeper", self._keep, None), self._live("reader", self._read, None)]
        tasks = [self._loop.create_task(work) for work in works]
        await asyncio.sleep(self._seconds)
        self._is_over = True
        await asyncio.gather(*tasks)
        await self._check()
        return Result(
            sum(len(each.answered) for each in self.senders),
            sum(each.deliveries for each in self._all_getters),
            sum(each.refused for each in self.senders),
            sum(len(each.wills) for each in self.getters),
            self.retained,
            self.crashes,
            self.faults,
            self.history.trace,
        )

    @property
    def _all_getters(self) -> list[Getter]:
        return [*self.getters, *self.members]

    # --- the node

    def _assemble(self, doors: World) -> Server:
        self._latest = super()._assemble(doors)
        return self._latest

    async def _serve(self, doors: World) -> None:
        self.life += 1
        await super()._serve(doors)
        if self._server is not None:
            self.conservation.started(self._queues())

    def _stop(self, disk: SimDisk) -> None:
        self.conservation.check(self._queues())
        self.conservation.stopped(self._queues())
        super()._stop(disk)

    def _queues(self) -> list[Queue]:
        assert self._latest is not None
        return self._latest.broker.vhosts.default.all_queues

    # --- clients

    async def _live(
        self, name: str, work: Callable[[Any, Random], Coroutine[Any, Any, None]], who: Any
    ) -> None:
        """Connect and work, again and again; a lost connection is ordinary."""
        random = self._loop.random(f"{name} lives")
        while self._goes_on():
            try:
                await work(who, random)
            except Gone as gone:
                self._note(name, str(gone))
            await asyncio.sleep(random.uniform(0.02, 0.3))

    async def _open(
        self, name: str, heard: Callable[[Event], None], *, keeps: bool = True, **how: Any
    ) -> MqttClient:
        """Raises Gone."""
        if keeps:
            how |= {"clean_start": False, "properties": _NEVER}
        connect = Connect(V5, name, **how)
        client, answer = await MqttClient.open(
            self._network.door(name), (HOST, PORT), connect, heard
        )
        if keeps:
            if answer.session_present is not (name in self._has_session):
                raise Violation(f"{name}: session present is {answer.session_present}")
            self._has_session[name] = None
        return client

    async def _subscribe(self, getter: Getter) -> None:
        answers: list[Event] = []
        client = await self._open(getter.name, answers.append)
        lead = "$share/members/" if getter in self.members else ""
        filters = [f"{lead}q1/#", f"{lead}q2/#", f"{lead}wills/#"]
        client.send(Subscribe(1, tuple(Subscription(each, 2) for each in filters)))
        await self._until(lambda: answers)
        (answer,) = answers
        assert isinstance(answer, Suback)
        client.leave()
        await asyncio.sleep(0.05)

    async def _send(self, sender: Sender, random: Random) -> None:
        client = await self._open(sender.name, sender.heard)
        sender.connected(client)
        while self._goes_on() and random.random() < 0.97:
            for _ in range(random.choice((1, 1, 2, 6))):
                sender.publish()
            if random.random() < 0.2:
                sender.repeat()
            self.conservation.check(self._queues())
            await asyncio.sleep(random.uniform(0, 0.15))
            client.check_open()
        self._part(client, random)

    async def _get(self, getter: Getter, random: Random) -> None:
        client = await self._get_ready(getter)
        while self._goes_on() and random.random() < 0.97:
            await asyncio.sleep(random.uniform(0, 0.15))
            self.conservation.check(self._queues())
            client.check_open()
        self._part(client, random)

    async def _get_ready(self, getter: Getter) -> MqttClient:
        """Connect; what comes with CONNACK is heard after it. Raises Gone."""
        early: list[Event] = []
        getter.client = None

        def heard(event: Event) -> None:
            if getter.client is None:
                early.append(event)
            else:
                getter.heard(event)

        client = await self._open(getter.name, heard)
        getter.client = client
        for event in early:
            getter.heard(event)
        return client

    def _part(self, client: MqttClient, random: Random) -> None:
        if random.random() < 0.5:
            client.die()
        else:
            client.leave()

    # --- wills

    async def _die(self, name: str, random: Random) -> None:
        text = f"{name}-{self._loop.time():.6f}"
        will = Will(f"wills/{name}", text.encode(), 1)
        self._alive[text] = None
        try:
            client = await self._open(name, lambda event: None, keeps=False, will=will)
        except Gone:
            self._alive.pop(text)  # Perhaps it was connected.
            raise
        life = self.life
        await self._until(lambda: not client.is_open, random.uniform(0, 0.5))
        if not client.is_open:
            self._alive.pop(text)
        elif random.random() < 0.5:
            client.leave()
            await self._until(lambda: not client.is_open)
            if not client.was_closed:
                self._alive.pop(text)  # Nobody knows whether the broker has heard of it.
        else:
            self._alive.pop(text)
            self._dead[text] = life, self._loop.time()
            client.die()

    def _judge_wills(self) -> None:
        for getter in self._all_getters:
            for text in getter.wills:
                if text in self._alive:
                    raise Violation(f"{getter.name} got the will {text} of one that left politely")

    # --- retained messages

    async def _keep(self, _: None, random: Random) -> None:
        """One message at a time, so that there is no doubt which is the last."""
        answers: list[Event] = []
        client = await self._open("keeper", answers.append)
        while self._goes_on() and random.random() < 0.97:
            topic = f"kept/{random.randrange(3)}"
            values = self._kept[topic]
            is_empty = random.random() < 0.2
            values.append(b"" if is_empty else b"%d" % len(values))
            answers.clear()
            # Always another identifier: an answer to an older one must not be taken for it.
            packet_id = 1 + len(values) % 60_000
            client.publish(topic, values[-1], 1, packet_id, is_retained=True)
            await self._until(lambda: answers or not client.is_open)
            client.check_open()
            if not answers:
                client.die()
                return
            answer = answers[0]
            if isinstance(answer, Acks) and not answer.has_failed:
                self._kept_answered[topic] = len(values)
            await asyncio.sleep(random.uniform(0, 0.2))
        self._part(client, random)

    async def _read(self, _: None, random: Random) -> None:
        await self._read_retained()
        await asyncio.sleep(random.uniform(0.05, 0.5))

    async def _read_retained(self) -> None:
        """What is there was published last, or is about to be. Raises Gone."""
        found: dict[str, bytes] = {}
        answers: list[Event] = []

        def heard(event: Event) -> None:
            answers.append(event)
            if isinstance(event, Publishes) and event.is_retained:
                for envelope, body in event.messages:
                    if envelope.subject in found:
                        raise Violation(f"two retained messages of {envelope.subject}")
                    found[envelope.subject] = bytes(body)

        client = await self._open("reader", heard, keeps=False)
        before = dict(self._kept_answered)
        client.send(Subscribe(1, (Subscription("kept/#", 0),)))
        await self._until(lambda: answers or not client.is_open)
        await asyncio.sleep(0.1)
        client.check_open()
        if not answers or not isinstance(answers[0], Suback) or answers[0].reasons[0] >= 0x80:
            client.die()
            return
        self._judge_retained(found, before)
        client.leave()

    def _judge_retained(self, found: dict[str, bytes], before: dict[str, int]) -> None:
        for topic, values in self._kept.items():
            self.retained += topic in found
            possible = values[max(0, before.get(topic, 0) - 1) :]
            if not before.get(topic):
                possible = [*values, b""]
            if found.get(topic, b"") not in possible:
                raise Violation(
                    f"retained of {topic} is {found.get(topic)!r}, and was set to {possible}"
                )

    # --- the end

    async def _until(self, is_so: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Return when it is so, or when that took too long."""
        deadline = self._loop.time() + seconds
        while not is_so() and self._loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    async def _check(self) -> None:
        """Nothing goes wrong any more: all that was answered comes, and nothing comes again."""
        due = [text for text, (life, _) in self._dead.items() if life == self.life]
        times = {text: self._dead[text][1] for text in due}
        await asyncio.sleep(_QUIET_S)
        await self._heal()
        await self._drain()
        self._judge_wills()
        for text, time in times.items():
            if self._loop.time() - time > _WILL_S and not self.getters[0].wills.get(text):
                raise Violation(f"the will {text} never came")
        with contextlib.suppress(Gone):
            await self._read_retained()
        await self._heal()
        before = [each.deliveries for each in self._all_getters]
        clients = [await self._get_ready(each) for each in self._all_getters]
        await asyncio.sleep(_QUIET_S)
        for each, count in zip(self._all_getters, before, strict=True):
            if each.deliveries != count:
                raise Violation(f"{each.name} gets what it had answered again")
        for client in clients:
            client.leave()

    async def _drain(self) -> None:
        """Until everybody has an answer, and everything has come and is settled."""
        deadline = self._loop.time() + _DRAIN_S
        while not self._is_drained():
            if self._loop.time() > deadline:
                raise Violation(f"not drained: {self._missing()}")
            clients = []
            for sender in self.senders:
                clients.append(await self._open(sender.name, sender.heard))
                sender.connected(clients[-1])
            clients += [await self._get_ready(getter) for getter in self._all_getters]
            await asyncio.sleep(1.0)
            for client in clients:
                if client.is_open:
                    client.leave()
            await asyncio.sleep(0.2)
        await asyncio.sleep(_QUIET_S)
        self.conservation.check(self._queues())

    def _is_drained(self) -> bool:
        left = any(each.ready_count or each.unacked_count for each in self._queues())
        return not left and not self._missing() and all(each.is_done for each in self.senders)

    def _missing(self) -> dict[str, list[tuple[str, int]]]:
        found: dict[str, list[tuple[str, int]]] = {}
        shared: dict[str, dict[int, int]] = defaultdict(dict)
        for member in self.members:
            for topic, numbers in member.got.items():
                shared[topic] |= numbers
        by_name = {each.name: each.got for each in self.getters} | {"members": shared}
        for name, got in by_name.items():
            missing = [
                (topic, number)
                for sender in self.senders
                for topic, number in sender.answered
                if number not in got.get(topic, {})
            ]
            if missing:
                found[name] = missing[:5]
        return found


def mqtt_world(
    seconds: float = 6.0,
    *,
    sync_is_noop: bool = False,
    durability: Durability = Durability.FSYNC,
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """For `loop.run`."""
    return lambda loop: MqttWorld(
        loop, seconds=seconds, sync_is_noop=sync_is_noop, durability=durability
    ).run()
