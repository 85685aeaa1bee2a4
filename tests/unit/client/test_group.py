"""Members of a group in a simulated world, with the real broker.

Members come and go, links break, the broker is started anew. Every record is read, in the
order of its partition by whoever has it; once, when nothing breaks.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from kio.schema.errors import ErrorCode

from entrepot.client.admin import Admin, NewTopic
from entrepot.client.client import EARLIEST, LATEST, Client, TopicPartition
from entrepot.client.errors import Refused
from entrepot.client.group import GroupReader, Pace
from entrepot.client.groups import GroupAdmin
from entrepot.client.producer import Producer
from entrepot.config import build
from entrepot.core.ports import World
from entrepot.server import Server
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run
from sim.net import SimNetwork

PACE = Pace(session_ms=6_000, heartbeat_ms=500, rebalance_ms=5_000, commit_ms=1_000)
PARTS = [TopicPartition("t", index) for index in range(3)]


class Town:
    """A broker, and everybody who talks to it."""

    def __init__(self, loop: SimLoop) -> None:
        self.network = SimNetwork(loop.random("net"))
        self.clock = SimClock(loop)
        self._disk = SimDisk(loop.random("disk"))
        self._entropy = SimEntropy(loop.random("entropy"))
        self.read: list[tuple[str, int, bytes | None]] = []  # By whom, from where, what.
        self._lives: dict[str, asyncio.Task[None]] = {}
        self.members: dict[str, GroupReader] = {}

    async def start(self) -> None:
        config = build({"host": "broker", "ports": {"kafka": 9092}}, "test")
        door = self.network.door("broker")
        self.server = Server(config, World(self.clock, self._entropy, self._disk, door))
        await self.server.start()

    async def restart(self, after_s: float) -> None:
        await self.server.stop()
        self._disk = self._disk.kill()
        await asyncio.sleep(after_s)
        await self.start()

    def client(self, name: str = "user") -> Client:
        return Client(self.network.door(name), "broker:9092", client_id=name)

    async def produce(self, first: int, end: int) -> None:
        """These numbers to each partition."""
        async with self.client() as client:
            producer = Producer(client, self.clock)
            for number in range(first, end):
                for part in PARTS:
                    await producer.send("t", b"%d" % number, partition=part.partition)
            await producer.flush()

    def join(self, name: str, group: str = "g", reset: int = EARLIEST, pace: Pace = PACE) -> None:
        async def live() -> None:
            async with self.client(name) as client:
                member = GroupReader(client, group, ["t"], reset=reset, pace=pace)
                self.members[name] = member
                try:
                    while True:
                        for message in await member.poll(100):
                            record = (name, message.part.partition, message.record.value)
                            self.read.append(record)
                except _Crash:
                    member._stop_heart()  # A process that is gone says nothing more.
                except asyncio.CancelledError:
                    await member.close()

        self._lives[name] = asyncio.ensure_future(live())

    async def leave(self, name: str) -> None:
        task = self._lives.pop(name)
        assert not task.done(), task.result()
        task.cancel()
        await task
        del self.members[name]

    async def crash(self, name: str) -> None:
        async def never(wait_ms: int) -> None:
            raise _Crash

        self.members.pop(name).poll = never  # type: ignore[method-assign, assignment]
        await self._lives.pop(name)

    def owned(self) -> dict[str, list[int]]:
        return {
            name: [part.partition for part in member.positions]
            for name, member in self.members.items()
        }

    def sizes(self) -> list[int]:
        return sorted(len(parts) for parts in self.owned().values())

    def values(self) -> dict[int, list[int]]:
        """What was read of each partition, in that order."""
        found: dict[int, list[int]] = {part.partition: [] for part in PARTS}
        for _, partition, value in self.read:
            found[partition].append(int(value or b""))
        return found


class _Crash(Exception):
    pass


async def until(condition: Callable[[], object], limit_s: int = 60) -> None:
    for _ in range(20 * limit_s):
        if condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"not after {limit_s} s")


def simulate(seed: int, story: Callable[[Town], Awaitable[None]]) -> None:
    async def main(loop: SimLoop) -> None:
        town = Town(loop)
        await town.start()
        async with town.client() as client:
            await Admin(client).create_topics([NewTopic("t", 3)])
        await story(town)
        for name in list(town.members):
            await town.leave(name)
        await town.server.stop()

    run(seed, main)


def everything(count: int) -> dict[int, list[int]]:
    return {part.partition: list(range(count)) for part in PARTS}


def test_members_share_and_each_record_comes_once(seed: int) -> None:
    async def story(town: Town) -> None:
        await town.produce(0, 50)
        for name in ("a", "b", "c"):
            town.join(name)
            await asyncio.sleep(0.3)
        await until(lambda: town.sizes() == [1, 1, 1])
        await town.produce(50, 100)
        await town.leave("b")
        await until(lambda: town.sizes() == [1, 2])
        await town.produce(100, 120)
        town.join("d")
        await until(lambda: town.sizes() == [1, 1, 1])
        await until(lambda: len(town.read) >= 360)
        assert town.values() == everything(120)

    simulate(seed, story)


def test_those_who_stay_take_over_from_who_crashed(seed: int) -> None:
    async def story(town: Town) -> None:
        town.join("a")
        town.join("b")
        await until(lambda: town.sizes() == [1, 2])
        await town.produce(0, 50)
        await until(lambda: len(town.read) == 150)
        await town.crash("b")
        crashed_s = town.clock.monotonic()
        await town.produce(50, 60)
        await until(lambda: town.sizes() == [3])
        waited_s = town.clock.monotonic() - crashed_s
        assert PACE.session_ms / 1000 - 1 < waited_s < PACE.session_ms / 1000 + 3
        await until(lambda: all(len(set(v)) == 60 for v in town.values().values()))

    simulate(seed, story)


def test_links_break_and_brokers_are_started_anew(seed: int) -> None:
    async def story(town: Town) -> None:
        for name in ("a", "b"):
            town.join(name)
        for round_ in range(4):
            await town.produce(round_ * 20, round_ * 20 + 20)
            town.network.break_links("broker")
            await asyncio.sleep(0.7)
        await town.restart(after_s=2)
        await town.produce(80, 100)
        await until(lambda: all(len(set(v)) == 100 for v in town.values().values()))
        await until(lambda: town.sizes() == [1, 2])

    simulate(seed, story)


def test_a_group_goes_on_where_it_was() -> None:
    async def story(town: Town) -> None:
        await town.produce(0, 10)
        town.join("a")
        await until(lambda: len(town.read) == 30)
        await town.leave("a")
        await town.produce(10, 15)
        town.join("b")
        await until(lambda: len(town.read) == 45)
        town.join("c", group="other")
        await until(lambda: len(town.read) == 90)
        await town.leave("b")
        async with town.client() as client:
            assert await GroupAdmin(client).offsets("g") == dict.fromkeys(PARTS, 15)

    simulate(0, story)


def test_where_a_new_group_begins() -> None:
    async def story(town: Town) -> None:
        await town.produce(0, 10)
        town.join("late", reset=LATEST)
        await until(lambda: town.sizes() == [3])
        await town.leave("late")  # It has read nothing, and the group is at the end all the same.
        await town.produce(10, 12)
        town.join("early", reset=EARLIEST)
        await until(lambda: len(town.read) == 6)
        await asyncio.sleep(1)
        assert town.values() == {0: [10, 11], 1: [10, 11], 2: [10, 11]}

    simulate(0, story)


def test_commits_are_as_often_as_told() -> None:
    async def story(town: Town) -> None:
        await town.produce(0, 10)
        town.join("a")
        town.join("mute", group="silent", pace=Pace(commit_ms=None))
        await until(lambda: len(town.read) == 60)
        async with town.client() as client:
            admin = GroupAdmin(client)
            await asyncio.sleep(1.5)
            assert await admin.offsets("g") == dict.fromkeys(PARTS, 10)
            await town.leave("mute")
            assert await admin.offsets("silent") == {}

    simulate(0, story)


def test_partitions_that_are_new_are_read_too() -> None:
    async def story(town: Town) -> None:
        town.join("a")
        await until(lambda: town.sizes() == [3])
        async with town.client() as client:
            assert await Admin(client).create_partitions({"t": 5}) == {"t": None}
        await until(lambda: town.sizes() == [5])

    simulate(0, story)


def test_who_has_left_is_not_waited_for() -> None:
    async def story(town: Town) -> None:
        town.join("a")
        town.join("b")
        await until(lambda: town.sizes() == [1, 2])
        await town.leave("a")
        left_s = town.clock.monotonic()
        await until(lambda: town.sizes() == [3])
        assert town.clock.monotonic() - left_s < 2

    simulate(0, story)


def test_what_will_not_get_better_is_raised() -> None:
    async def story(town: Town) -> None:
        async with town.client() as client:
            member = GroupReader(client, "g", ["t"], pace=Pace(session_ms=1))
            with pytest.raises(Refused) as caught:
                await member.poll()
            assert caught.value.code is ErrorCode.invalid_session_timeout
            await member.close()

    simulate(0, story)
