"""What happens now, told to all who watch: computed once, and only while somebody does."""

import asyncio
import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from entrepot.core.measures import MessageCount, Traffic
from entrepot.core.ports import Buffer, Space
from entrepot.gateway.http.adapter import Upgrade
from entrepot.gateway.http.console.event_stream import EventStreams
from entrepot.gateway.http.console.feed import Feed
from entrepot.gateway.http.console.live import Live, live
from entrepot.gateway.http.management.call import Sources
from entrepot.wire.http import limits as http_limits
from entrepot.wire.http.request import HttpError, Request
from tests.unit.gateway.http.management.house import BOSS, House, in_house

Told = tuple[str, Any]


class FakeLink:
    def __init__(self) -> None:
        self.sent: list[Told] = []
        self.backlog = 0
        self.ended = ""

    def send(self, chunks: Sequence[Buffer]) -> None:
        for chunk in chunks:
            head, data, *_ = bytes(chunk).decode().split("\n")
            self.sent.append((head.removeprefix("event: "), json.loads(data[6:])))

    def close(self, reason: str) -> None:
        self.ended = reason

    abort = close

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        call(*arguments)


async def nearly_full() -> Space:
    return Space(2**29, 2**40)


class Watched:
    """A house that can be watched."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.traffic, self.messages = Traffic(), MessageCount()
        sources = Sources(lambda: {"amqp": self.traffic}, {"amqp": self.messages})
        self.feed = Feed()
        self.live: Live = live(house.broker, house.clock, sources, nearly_full, self.feed)
        self.streams = EventStreams(self.live, house.logins)

    def ask(self, user: str = BOSS, *, log_in: bool = True, **headers: str) -> Upgrade | None:
        principal = self.house.broker.access.principal(user, "127.0.0.1")
        cookie = self.house.logins.begin(principal)[1].partition(";")[0] if log_in else ""
        sent = {"cookie": cookie} | {name.replace("_", "-"): each for name, each in headers.items()}
        return self.streams(Request("GET", "/api/console/events", sent, b""), "127.0.0.1")

    def watch(self, user: str = BOSS) -> tuple[FakeLink, Any]:
        found = self.ask(user)
        assert found is not None
        assert found.answer.is_stream
        link = FakeLink()
        return link, found.attach(link)  # type: ignore[arg-type]


@in_house(asks=True)
async def test_everybody_is_told_the_same_once_a_second(house: House) -> None:
    watched = Watched(house)
    await house.declare("q")
    await house.publish("q", "one", "two")
    watched.traffic.opened, watched.messages.published = 3, 100
    one, stream = watched.watch()
    await asyncio.sleep(2.5)
    watched.messages.published, watched.traffic.opened = 130, 5
    watched.feed.add(0, "info", "x", "said")
    other, _ = watched.watch()
    await asyncio.sleep(1)
    assert one.sent[-1] == other.sent[-1]
    name, told = one.sent[-1]
    sample = told["sample"]
    assert (name, sample["protocols"]["amqp"]["in"]) == ("now", 30.0)
    assert (sample["ready"], sample["queues"], sample["connections"]) == (2, 1, 5)
    assert "The disk is nearly full: 512 MiB are free." in sample["alarms"]
    texts = [line[4] for line in told["lines"]]
    assert texts == ["said", "connections: 2 opened"]
    name, past = other.sent[0]
    assert (name, len(past["samples"])) == ("past", 3)

    stream.closed("")
    count = len(other.sent)
    await asyncio.sleep(1)
    assert len(other.sent) == count + 1
    assert len(watched.live) == 1


@in_house(asks=True)
async def test_what_is_not_known_yet_is_not_told_as_nothing(house: House) -> None:
    """A chart that begins with zeros shows a rise that never was."""
    watched = Watched(house)
    await house.declare("q")
    link, _ = watched.watch()
    first = link.sent[0][1]["samples"][0]
    assert [first[name] for name in ("ready", "queues", "log_bytes", "commits")] == [None] * 4
    assert [first["protocols"]["amqp"][name] for name in ("in", "out", "bytes_in")] == [None] * 3
    await asyncio.sleep(1.5)
    then = link.sent[-1][1]["sample"]
    assert (then["ready"], then["queues"], then["protocols"]["amqp"]["in"]) == (0, 1, 0.0)


@in_house(asks=True)
async def test_nothing_is_computed_while_nobody_watches(house: House) -> None:
    watched = Watched(house)
    looked: dict[int, None] = {}

    def traffic() -> dict[str, Traffic]:
        looked[house.clock.now_ms()] = None
        return {}

    sources = Sources(traffic)
    watched.live = live(house.broker, house.clock, sources, nearly_full, watched.feed)
    watched.streams = EventStreams(watched.live, house.logins)
    await asyncio.sleep(5)
    assert not looked
    _, stream = watched.watch()
    await asyncio.sleep(2.5)
    assert len(looked) == 3
    stream.closed("")
    await asyncio.sleep(5)
    assert len(looked) == 3


@in_house(asks=True)
async def test_who_does_not_read_is_dropped(house: House) -> None:
    watched = Watched(house)
    slow, _ = watched.watch()
    slow.backlog = http_limits.WATCHER_BACKLOG_BYTES_MAX + 1
    await asyncio.sleep(1.5)
    assert slow.ended == "a page that watches does not read"
    assert len(watched.live) == 0
    talker, stream = watched.watch()
    for _ in range(100):
        stream.received(len(stream.writable()))
    assert talker.ended == "a page that watches has nothing to say"


@in_house(asks=True)
async def test_whose_login_has_ended_is_told_so(house: House) -> None:
    watched = Watched(house)
    link, _ = watched.watch()
    await house.add_user(BOSS)  # Its password was set again.
    await asyncio.sleep(1.5)
    assert link.sent[-1] == ("expired", {})
    assert link.ended == "its login has ended"
    assert len(watched.live) == 0


@in_house(asks=True)
async def test_who_may_not_watch(house: House) -> None:
    watched = Watched(house)
    for status, user, log_in, headers in (
        (401, BOSS, False, {}),
        (403, "ann", True, {}),
        (403, BOSS, True, {"origin": "http://evil.example"}),
    ):
        with pytest.raises(HttpError) as refused:
            watched.ask(user, log_in=log_in, **headers)
        assert refused.value.status == status
    streams = [watched.watch()[1] for _ in range(http_limits.WATCHERS_MAX)]
    with pytest.raises(HttpError) as refused:
        watched.watch()
    assert refused.value.status == 503
    for stream in streams:
        stream.closed("")
