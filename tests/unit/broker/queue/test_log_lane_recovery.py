"""Lanes through crashes: nothing that was confirmed is lost, nothing that was settled comes
again once its settlement is permanent."""

import asyncio
import errno
from random import Random

import pytest

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.log_lane import LogLane
from entrepot.core.errors import Corruption, StorageError
from entrepot.log.partition import Partition, Waiter
from sim.loop import run as simulate
from tests.unit.broker.queue.lane_bed import LaneBed, bodies, run, take
from tests.unit.log.bed import simulated

NAMES = ("a", "b")


@simulated
async def test_what_was_settled_stays_settled(bed: LaneBed) -> None:
    await bed.start("a", "b")
    await bed.publish("a", run(*[b"%d" % number for number in range(10)]))
    await bed.publish("b", run(b"x", b"y"))
    take(bed.lanes["a"], 8)
    take(bed.lanes["b"], 2)
    bed.settle("a", 0, 1, 5, 7)
    bed.settle("b", 1)
    await bed.settlements("a")
    bed.crash()
    await bed.start("a", "b")
    assert bed.ready("a") == [2, 3, 4, 6, 8, 9]
    assert bed.ready("b") == [0]


@simulated
async def test_a_clean_stop_keeps_what_was_settled_a_moment_ago(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1", b"2"))
    take(bed.lanes["a"], 2)
    bed.settle("a", 0)
    await bed.stop()
    await bed.start("a")
    assert bed.ready("a") == [1]


@simulated
async def test_a_log_that_cannot_be_opened_once_keeps_what_was_settled(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1", b"2", b"3"))
    take(bed.lanes["a"], 3)
    bed.settle("a", 0, 2)
    await bed.settlements("a")
    bed.crash()
    bed.disk.fail_next("open", errno.EMFILE, "partitions/a*.log")
    await bed.start("a")
    assert bed.ready("a") == []
    with pytest.raises(StorageError):
        bed.call(bed.lanes["a"].rewound, 0)
    bed.crash()
    await bed.start("a")
    assert bed.ready("a") == [1]


@simulated
async def test_what_a_start_cannot_sync_is_hidden_and_not_gone(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1", b"2", b"3"))
    take(bed.lanes["a"], 3)
    bed.settle("a", 1)
    await bed.settlements("a")
    bed.kill()
    bed.disk.fail_next("sync", errno.EIO, "partitions/a*.log")
    await bed.start("a")
    assert bed.ready("a") == [0]  # It is the ledger's, but the log does not show it.
    with pytest.raises(StorageError, match="not committed"):
        bed.lanes["a"].read(range(1))
    bed.kill()
    await bed.start("a")
    assert bed.ready("a") == [0, 2]
    assert bodies(bed.lanes["a"].read(range(1))) == [b"1"]


@simulated
async def test_ledgers_that_cannot_be_opened_are_no_empty_ones(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"1", b"2"))
    take(bed.lanes["a"], 2)
    bed.settle("a", 0)
    await bed.settlements("a")
    bed.crash()
    bed.disk.fail_next("open", errno.EMFILE, "partitions/__queue_ledgers*.log")
    await bed.start("a")
    down(bed.lanes["a"])
    bed.crash()
    await bed.start("a")
    assert bed.ready("a") == [1]


@simulated
async def test_delays_survive(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(*[b"x"] * 6))
    lane = bed.lanes["a"]
    for offset, until_ms in ((0, 50), (2, 70), (3, 60), (4, 80)):
        lane.ledger.defer(offset, until_ms)
        bed.call(lane.deferred, offset, until_ms)
    for offsets in lane.ledger.expire(55):
        for offset in offsets:
            bed.call(lane.deferred, offset, None)
    lane.ledger.defer(4, 90)
    bed.call(lane.deferred, 4, 90)
    lane.ledger.note_settled(range(3, 4))
    bed.call(lane.settled, [range(3, 4)])
    await bed.settlements("a")
    bed.crash()
    await bed.start("a")
    ledger = bed.lanes["a"].ledger
    assert ledger.deferred == {2: 70, 4: 90}
    assert bed.ready("a") == [0, 1, 5]
    assert ledger.next_time_ms == 70


@simulated
async def test_attempts_survive(bed: LaneBed) -> None:
    """And what nobody was given is passed over on the way to what somebody was."""
    await bed.start("a")
    await bed.publish("a", run(*[b"x"] * 6))
    take(bed.lanes["a"], 5)
    bed.settle("a", 2)
    bed.release("a", 1, 3)
    assert take(bed.lanes["a"], 1) == [1]
    bed.release("a", 1)
    await bed.settlements("a")
    bed.crash()
    await bed.start("a")
    ledger = bed.lanes["a"].ledger
    assert [ledger.attempts(each) for each in range(6)] == [0, 2, 0, 1, 0, 0]
    assert ledger.offset_fresh == 4
    assert bed.ready("a") == [0, 1, 3, 4, 5]


@simulated
async def test_attempts_of_messages_that_a_power_cut_took_are_not_the_next_ones(
    bed: LaneBed,
) -> None:
    await bed.start("a", durability="os")
    bed.append("a", run(*[b"old"] * 3))
    take(bed.lanes["a"], 3)
    bed.release("a", 0, 1, 2)
    await bed.settlements("a")
    bed.disk.remove_directory("partitions/a-0")
    bed.kill()
    for _ in range(2):
        await bed.start("a", durability="os")
        ledger = bed.lanes["a"].ledger
        assert [ledger.attempts(each) for each in range(3)] == [0, 0, 0]
        await bed.settlements("a")
        bed.append("a", run(*[b"new"] * 3))
        bed.kill()


@simulated
async def test_a_rewind_survives(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(*[b"x"] * 6))
    lane = bed.lanes["a"]
    take(lane, 6)
    bed.settle("a", 0, 1, 2, 4)
    lane.ledger.defer(5, NEVER)
    bed.call(lane.deferred, 5, NEVER)
    await bed.settlements("a")
    lane.ledger.rewind(1)
    bed.call(lane.rewound, 1)
    await bed.settlements("a")
    bed.kill()
    await bed.start("a")
    assert bed.ready("a") == [1, 2, 3, 4, 5]
    assert not bed.lanes["a"].ledger.deferred


@simulated
async def test_messages_that_power_took_are_not_settled_when_their_offsets_come_again(
    bed: LaneBed,
) -> None:
    """The settlements were permanent, the messages were not, and then it happens again."""
    await bed.start("a", durability="os")
    bed.append("a", run(*[b"old"] * 10))
    lane = bed.lanes["a"]
    take(lane, 10)
    bed.settle("a", *range(10))
    await bed.settlements("a")
    bed.disk.remove_directory("partitions/a-0")
    bed.kill()
    await bed.start("a", durability="os")
    assert bed.lanes["a"].ledger.offset_low == 0
    await bed.settlements("a")
    bed.append("a", run(b"new", b"new", b"new"))
    bed.kill()
    await bed.start("a", durability="os")
    assert bed.ready("a") == [0, 1, 2]


@simulated
async def test_a_ledger_that_is_lost_is_not_guessed(bed: LaneBed) -> None:
    await bed.start("a")
    await bed.publish("a", run(b"x"))
    take(bed.lanes["a"], 1)
    bed.settle("a", 0)
    await bed.settlements("a")
    await asyncio.sleep(100)
    bed.disk.remove_directory("partitions/__queue_ledgers-0")
    bed.kill()
    await bed.start("a")
    down(bed.lanes["a"])


def down(lane: LogLane) -> None:
    """It has its messages, but who knows which were settled."""
    assert "what queues settled is damaged: " in str(lane.fault)
    for use in (lambda: lane.read(range(1)), lambda: lane.append([run(b"x")])):
        with pytest.raises(Corruption, match="what queues settled"):
            use()


# --- at any moment


class Story:
    """What was published and settled, and how much of it is certain."""

    def __init__(self, bed: LaneBed, chance: Random) -> None:
        self.bed, self.chance = bed, chance
        self.published: dict[bytes, str] = {}  # To which lane.
        self.confirmed: dict[bytes, None] = {}
        self.settled: dict[bytes, None] = {}
        self.gone: dict[bytes, None] = {}  # Settled for good.
        self.tried: dict[bytes, int] = {}  # How often it came back,
        self.tried_least: dict[bytes, int] = {}  # and how much of that is permanent.

    async def live(self) -> None:
        """For a while, until the process dies."""
        while True:
            name = self.chance.choice(NAMES)
            verb = self.chance.choice(("publish", "publish", "settle", "settle", "release"))
            try:
                if verb == "publish":
                    self.publish(name)
                elif verb == "settle":
                    self.settle(name)
                else:
                    self.release(name)
            except StorageError:
                return
            if self.chance.random() < 0.7:
                await asyncio.sleep(self.chance.choice((0, 0.001, 0.02)))

    def publish(self, name: str) -> None:
        count = self.chance.choice((1, 3, 20))
        made = [b"%d" % (len(self.published) + number) for number in range(count)]
        lane = self.bed.lanes[name]
        end = lane.append([run(*made)])
        self.published.update(dict.fromkeys(made, name))

        def committed(error: StorageError | None) -> None:
            if error is None:
                self.confirmed.update(dict.fromkeys(made))

        lane.when_committed(end, committed)

    def settle(self, name: str) -> None:
        lane = self.bed.lanes[name]
        taken = take(lane, self.chance.choice((1, 5, 40)))
        chosen = [offset for offset in taken if self.chance.random() < 0.7]
        done: dict[bytes, None] = {}
        for offset in chosen:
            done.update(dict.fromkeys(bodies(lane.read(range(offset, offset + 1)))))
            lane.settled(lane.ledger.settle(range(offset, offset + 1), "ana"))
        self.settled.update(done)
        assert len(done) == len(chosen)

        def committed(error: StorageError | None) -> None:
            if error is None:
                self.gone.update(done)

        lane.when_settlements_committed(committed)

    def release(self, name: str) -> None:
        lane = self.bed.lanes[name]
        released = lane.ledger.release(range(lane.ledger.offset_low, lane.offset_end), "ana")
        lane.attempted(released)
        tried: dict[bytes, int] = {}
        for offsets in released:
            found = bodies(lane.read(offsets))
            tried.update(zip(found, map(lane.ledger.attempts, offsets), strict=True))
        self.tried.update(tried)

        def committed(error: StorageError | None) -> None:
            if error is None:
                self.tried_least.update(tried)

        lane.when_settlements_committed(committed)

    def check(self, *, may_forget: bool = False) -> None:
        ready: list[bytes] = []
        for name in NAMES:
            lane = self.bed.lanes[name]
            assert not lane.ledger.leased
            for offset in self.bed.ready(name):
                (body,) = bodies(lane.read(range(offset, offset + 1)))
                assert self.published[body] == name
                ready.append(body)
                self.check_attempts(body, lane.ledger.attempts(offset), may_forget=may_forget)
        assert len(ready) == len(set(ready))
        if may_forget:
            self.gone.clear()
            self.confirmed.clear()
        again = [body for body in ready if body in self.gone]
        assert not again, f"settled, and there again: {again}"
        lost = [b for b in self.confirmed if b not in self.settled and b not in ready]
        assert not lost, f"confirmed, and lost: {lost}"
        # What the crash left undecided is decided now.
        for body in list(self.settled):
            if body in ready:
                del self.settled[body]
        self.confirmed.update(dict.fromkeys(ready))
        self.gone.update(self.settled)

    def check_attempts(self, body: bytes, tried: int, *, may_forget: bool) -> None:
        """A crash forgets only what was not permanent."""
        least = 0 if may_forget else self.tried_least.get(body, 0)
        most = self.tried.get(body, 0)
        assert least <= tried <= most, f"{body!r} was tried {least} to {most} times, not {tried}"
        self.tried[body] = self.tried_least[body] = tried


async def tell(bed: LaneBed, durability: str = "fsync") -> Story:
    chance = bed.loop.random("story")
    story = Story(bed, chance)
    is_power_loss = False
    for _ in range(8):
        await bed.start(*NAMES, cache_bytes=3_000, segment_bytes="1500", durability=durability)
        story.check(may_forget=is_power_loss and durability == "os")
        living = asyncio.ensure_future(bed.do(story.live()))
        await bed.sleep_up_to(0.3)
        is_power_loss = chance.random() < 0.5
        if is_power_loss:
            bed.crash()
        else:
            bed.kill()
        living.cancel()
    return story


@simulated
async def test_crashes_at_any_moment(bed: LaneBed, seed: int) -> None:
    story = await tell(bed)
    assert story.confirmed
    assert story.gone
    assert any(story.tried_least.values())


@simulated
async def test_a_loss_of_power_is_over_when_it_is_over(bed: LaneBed, seed: int) -> None:
    """With durability `os` it takes messages, also such as are settled for good, and their
    offsets are given again; but it takes nothing of what comes after it."""
    await tell(bed, "os")


def answer_at_once(partition: Partition, offset_end: int, waiter: Waiter) -> None:
    waiter(None)


@pytest.mark.pure
def test_the_story_notices_answers_that_come_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "when_committed", answer_at_once)

    def tell_all() -> None:
        for seed in range(20):
            simulate(seed, lambda loop: tell(LaneBed(loop)))

    with pytest.raises(AssertionError, match=r"and lost|and there again|was tried"):
        tell_all()
