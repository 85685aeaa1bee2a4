"""What is published to a queue, until it is committed."""

import asyncio

import pytest

from entrepot.broker.queue.message import Publication, Refused, Run, Taken
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.faults import Faults
from tests.unit.broker.queue.bed import (
    Bed,
    Eater,
    envelope,
    on_queues,
    properties,
    ready,
    settle_down,
    words,
)


@on_queues
async def test_one_append_for_all_that_came_in_a_turn(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue()
    appended: list[int] = []
    append = bed.lane.append
    monkeypatch.setattr(
        bed.lane, "append", lambda runs: (appended.append(len(runs)), append(runs))[1]
    )
    for name in "abc":
        bed.publish_run(queue, words(name), name)
    await settle_down()
    assert appended == [3]
    assert [name for name, _ in bed.confirms] == ["a", "b", "c"]
    assert ready(queue) == "a b c"


@on_queues
async def test_in_memory_the_first_run_of_a_turn_is_there_at_once(bed: Bed) -> None:
    queue, eater = bed.queue_in_memory(), Eater()
    queue.add_consumer(eater)
    await settle_down()
    for name in "abc":
        bed.publish_run(queue, words(name), name, at_once=True)
        assert (eater.has, bed.confirms) == ("a", [("a", None)])
    await settle_down()
    assert eater.has == "a b c"
    assert [name for name, _ in bed.confirms] == ["a", "b", "c"]
    bed.publish_run(queue, words("d"), "d", at_once=True)
    assert eater.has == "a b c d"


@on_queues
async def test_not_at_once_while_the_queue_delivers(bed: Bed) -> None:
    """What a consumer publishes when it gets a message comes after what is delivered already."""
    queue = bed.queue_in_memory()

    class Publishing(Eater):
        def deliver(self, lane: int, taken: Taken) -> None:
            super().deliver(lane, taken)
            if len(self.has) < 5:
                before = self.has
                bed.publish_run(queue, words("again"), "again", at_once=True)
                assert self.has == before

    eater = Publishing()
    queue.add_consumer(eater)
    await settle_down()
    bed.publish_run(queue, words("a"), "a", at_once=True)
    await settle_down()
    assert eater.has == "a again"


@on_queues
async def test_what_is_published_now_is_appended_with_what_came_before_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue()
    appended: list[int] = []
    append = bed.lane.append
    monkeypatch.setattr(
        bed.lane, "append", lambda runs: (appended.append(len(runs)), append(runs))[1]
    )
    bed.publish_run(queue, words("a"), "a")
    publication = Publication(lambda failure: bed.confirms.append(("b", failure)))
    queue.publish_now(Run(bed.clock.now_ms(), words("b")), publication)
    publication.arrived()
    assert appended == [2]
    bed.publish_run(queue, words("c"), "c")
    await settle_down()
    assert appended == [2, 1]
    assert [name for name, _ in bed.confirms] == ["a", "b", "c"]
    assert ready(queue) == "a b c"


@on_queues
async def test_neither_confirmed_nor_handed_out_before_it_is_committed(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    queue.add_consumer(eater)
    bed.lane.commits_late = True
    await bed.publish(queue, "a")
    assert bed.confirms == []
    assert eater.has == ""
    bed.lane.commit()
    assert bed.confirms == [("a", None)]


@on_queues
async def test_the_disk_s_failures_are_told(bed: Bed) -> None:
    queue, eater = bed.queue(), Eater()
    bed.lane.cannot_append = True
    await bed.publish(queue, "a")
    assert isinstance(bed.confirms[-1][1], StorageError)
    bed.lane.cannot_append, bed.lane.commits_late = False, True
    await bed.publish(queue, "b")
    await bed.publish(queue, "c", until_settled=True)
    bed.lane.commit(StorageError("sync"))
    assert [str(failure) for _, failure in bed.confirms] == ["full", "sync", "sync"]
    queue.add_consumer(eater)
    queue.delete()
    assert len(bed.confirms) == 3  # Nobody watches what never was.


@on_queues
async def test_a_run_of_several_priorities_is_confirmed_when_all_lanes_have_it(bed: Bed) -> None:
    queue = bed.queue({"x-max-priority": 2})
    for lane in bed.lanes:
        lane.commits_late = True
    heads = [properties(priority=number) for number in (0, 2, 1, 0)]
    messages = [(envelope(head), str(at).encode()) for at, head in enumerate(heads)]
    bed.publish_run(queue, messages, "mixed")
    await settle_down()
    for lane in bed.lanes:
        assert bed.confirms == []
        lane.commit()
    assert bed.confirms == [("mixed", None)]
    assert ready(queue) == "1 2 0 3"


@on_queues
async def test_what_is_not_committed_counts_for_a_queue_that_refuses(bed: Bed) -> None:
    queue = bed.queue({"x-max-length": 2, "x-overflow": "reject-publish"})
    bed.lane.commits_late = True
    await bed.publish(queue, "a")
    await bed.publish(queue, "b c")
    bed.lane.commit()
    failures = [failure for _, failure in bed.confirms]
    assert failures[0] is None
    assert isinstance(failures[1], Refused)
    assert list(failures[1].places or ()) == [1]


@on_queues
async def test_what_two_queues_say_is_said_together(bed: Bed) -> None:
    small = bed.queue({"x-max-length": 1, "x-overflow": "reject-publish"})
    smaller = bed.queue({"x-max-length": 0, "x-overflow": "reject-publish"})
    answers: list[object] = []
    publication = Publication(answers.append)
    for queue in (small, smaller, bed.queue()):
        queue.publish(Run(0, words("a b")), publication)
    publication.arrived()
    await settle_down()
    [refused] = answers
    assert isinstance(refused, Refused)
    assert list(refused.places or ()) == [0, 1]


# --- large messages


class Preparing:
    """Lanes that take their time with large messages."""

    def __init__(self, bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "LARGE_BYTES", 4)
        self.asked: list[bytes] = []
        self.ready = asyncio.Event()
        for lane in bed.lanes:
            monkeypatch.setattr(lane, "prepare", self._prepare)

    async def _prepare(self, run: Run) -> None:
        self.asked.append(bytes(run.messages[0][1]))
        await self.ready.wait()


@on_queues
async def test_what_comes_after_a_large_message_waits_for_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue()
    preparing = Preparing(bed, monkeypatch)
    for name in ("a", "large1", "b", "large2", "c"):
        bed.publish_run(queue, words(name), name)
    await settle_down()
    bed.publish_run(queue, words("d"), "d")
    await settle_down()
    assert (preparing.asked, ready(queue)) == ([b"large1"], "a")
    preparing.ready.set()
    await settle_down()
    assert preparing.asked == [b"large1", b"large2"]
    assert ready(queue) == "a large1 b large2 c d"
    assert [name for name, _ in bed.confirms] == ["a", "large1", "b", "large2", "c", "d"]


@on_queues
async def test_a_queue_goes_while_a_large_message_is_prepared(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue()
    preparing = Preparing(bed, monkeypatch)
    for name in ("large1", "b"):
        bed.publish_run(queue, words(name), name)
    await settle_down()
    queue.close()
    preparing.ready.set()
    await settle_down()
    assert [str(failure) for _, failure in bed.confirms] == ["the queue is gone"] * 2


@on_queues
async def test_a_queue_that_is_deleted_is_nothing_to_its_publishers(bed: Bed) -> None:
    """Whoever deletes a queue wants its messages gone, also those that came just before."""
    queue = bed.queue()
    bed.publish_run(queue, words("a"), "a")
    queue.delete()
    await settle_down()
    assert bed.confirms == [("a", None)]


@on_queues
async def test_a_queue_that_is_closed_refuses_what_it_did_not_store(bed: Bed) -> None:
    queue = bed.queue()
    bed.publish_run(queue, words("a"), "a")
    queue.close()
    await settle_down()
    assert [str(failure) for _, failure in bed.confirms] == ["the queue is gone"]


@on_queues
async def test_a_mistake_while_a_large_message_is_prepared_stops_the_queue(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for ever: neither its publisher, nor those behind it."""
    bed.surroundings = bed.surroundings._replace(faults=Faults())
    queue = bed.queue()
    preparing = Preparing(bed, monkeypatch)
    for name in ("large1", "b"):
        bed.publish_run(queue, words(name), name)
    await settle_down()
    monkeypatch.setattr(bed.lane, "append", lambda runs: 1 // 0)
    preparing.ready.set()
    await settle_down()
    assert queue.is_stopped
    texts = [str(failure) for _, failure in bed.confirms]
    assert texts == ["internal error", "the queue is gone"]


@on_queues
async def test_a_large_message_without_room_is_not_prepared(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bed.queue({"x-max-length": 1, "x-overflow": "reject-publish"})
    preparing = Preparing(bed, monkeypatch)
    for name in ("a", "large1", "b"):
        bed.publish_run(queue, words(name), name)
    await settle_down()
    assert preparing.asked == []
    assert [failure is None for _, failure in bed.confirms] == [True, False, False]
