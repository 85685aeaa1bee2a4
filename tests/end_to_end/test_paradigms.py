"""The capabilities of the paradigms, each looked at on a real broker."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

import entrepot
from entrepot.cli import main
from entrepot.client.messaging.groups import Group, Sent
from entrepot.client.messaging.memory import Memory
from entrepot.client.messaging.paradigms import (
    EVENTS,
    GROUPS,
    LECTURE,
    MEMORY,
    OURS,
    PROPERTIES,
    QUEUES,
    SPACES,
    Associative,
    Pattern,
    Scales,
    Style,
    Uncoupled,
)
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

Get = Callable[[], Any]
SILENCE_S = 0.5


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


class Way:
    """How something is given to others, and got by them, in a paradigm."""

    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        raise NotImplementedError

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        """Return a function that returns what there is to be got now, or None."""
        raise NotImplementedError

    def prepare(self, client: entrepot.Client, name: str) -> None:
        """Do what the option asks of a receiver before it goes away."""


class _Hearing(Way):
    """What is told once."""

    def _get(self, heard: list[int]) -> Get:
        return lambda: heard.pop(0) if heard else None


class ByGroup(_Hearing):
    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        client.group(name, is_closed=False).send(value)

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        heard: list[int] = []

        def tell(event: Any) -> None:
            if isinstance(event, Sent):
                heard.append(event.value)

        after = -1 if with_option else None
        client.group(name, tell, is_closed=False, after=after).join()
        return self._get(heard)


class ByEvent(_Hearing):
    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        client.publish(name, value)

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        heard: list[int] = []
        durable = f"durable-{name}" if with_option else None
        client.subscribe(name, lambda _, event: heard.append(event.value), durable=durable)
        return self._get(heard)

    def prepare(self, client: entrepot.Client, name: str) -> None:
        self.get(client, name, with_option=True)


class ByQueue(Way):
    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        client.put(name, value)

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        def poll() -> Any:
            message = client.poll(name)
            return None if message is None else message.value

        return poll


class ByMemory(Way):
    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        client.memory(name)["value"] = value

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        memory = client.memory(name)
        return lambda: memory.read("value")


class BySpace(Way):
    def give(self, client: entrepot.Client, name: str, value: int) -> None:
        client.space(name).write("value", value)

    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        space = client.space(name)

        def read() -> Any:
            try:
                return space.read("value", int, timeout_s=0)[1]
            except TimeoutError:
                return None

        return read


class ByTaking(BySpace):
    def get(self, client: entrepot.Client, name: str, *, with_option: bool = False) -> Get:
        space = client.space(name)

        def take() -> Any:
            try:
                return space.take("value", int, timeout_s=0)[1]
            except TimeoutError:
                return None

        return take


WAYS = {
    GROUPS: ByGroup(),
    EVENTS: ByEvent(),
    QUEUES: ByQueue(),
    MEMORY: ByMemory(),
    SPACES: BySpace(),
}


def until(get: Get, times: int = 1) -> None:
    """Wait until something was got."""
    found: list[Any] = []

    def is_there() -> bool:
        value = get()
        if value is not None:
            found.append(value)
        return bool(found)

    for _ in range(times):
        found.clear()
        eventually(is_there)


def is_silent(*gets: Get) -> bool:
    end = time.monotonic() + SILENCE_S
    while time.monotonic() < end:
        if any(get() is not None for get in gets):
            return False
        time.sleep(0.01)
    return True


@pytest.mark.parametrize("paradigm", OURS)
def test_uncoupled_in_space(paradigm: str, server: Broker) -> None:
    """Both sides know a name, and nothing of each other."""
    name, way = f"space-{paradigm.replace('/', '-').replace(' ', '-')}", WAYS[paradigm]
    with connect(server) as giver, connect(server) as getter:
        get = way.get(getter, name)
        way.give(giver, name, 1)
        until(get)
    assert OURS[paradigm].space_uncoupled is Uncoupled.YES


@pytest.mark.parametrize("with_option", [False, True])
@pytest.mark.parametrize("paradigm", OURS)
def test_uncoupled_in_time(paradigm: str, with_option: bool, server: Broker) -> None:
    """The giver is gone before the getter is there."""
    plain = paradigm.replace("/", "-").replace(" ", "-")
    name, way = f"time-{plain}-{with_option}", WAYS[paradigm]
    if with_option:
        with connect(server) as before:
            way.prepare(before, name)
    with connect(server) as giver:
        way.give(giver, name, 1)
    with connect(server) as getter:
        get = way.get(getter, name, with_option=with_option)
        claimed = OURS[paradigm].time_uncoupled
        if claimed is Uncoupled.YES or with_option:
            assert claimed is not Uncoupled.NO
            until(get)
        else:
            assert claimed is Uncoupled.POSSIBLE
            assert is_silent(get)


@pytest.mark.parametrize("paradigm", OURS)
def test_style_and_pattern(paradigm: str, server: Broker) -> None:
    """How many get it, and whether it is still there then."""
    name, way = f"pattern-{paradigm.replace('/', '-').replace(' ', '-')}", WAYS[paradigm]
    claimed = OURS[paradigm]
    times = 2 if claimed.style is Style.STATE else 1
    with connect(server) as giver, connect(server) as one, connect(server) as other:
        gets = [way.get(one, name), way.get(other, name)]
        way.give(giver, name, 1)
        if claimed.pattern is Pattern.ONE_TO_ONE:
            eventually(lambda: any(get() is not None for get in gets))
        else:
            for get in gets:
                until(get, times)
        if claimed.style is Style.COMMUNICATION:
            assert is_silent(*gets)
        if claimed.pattern is Pattern.BOTH:  # To one of them, if it is taken.
            taking = [ByTaking().get(each, name) for each in (one, other)]
            eventually(lambda: any(get() is not None for get in taking))
            assert is_silent(*taking)


def test_scalability(server: Broker) -> None:
    """What may be spread over partitions, and so over nodes, scales; what is in one does not."""
    with connect(server) as client:
        client.group("scale", member="a").join()
        client.memory("scale")["x"] = 1
        client.space("scale", partitions=4).write("x")
        client.topic("scale", partitions=4).append("x")  # Of events, and of share groups' queues.
        topics = {GROUPS: "group", MEMORY: "memory", SPACES: "space", EVENTS: "", QUEUES: ""}
        for paradigm, prefix in topics.items():
            reader = client.topic(f"{prefix}.scale".lstrip(".")).read()
            is_spread = len(reader.positions) > 1
            assert OURS[paradigm].scalability is (Scales.POSSIBLE if is_spread else Scales.LIMITED)


def test_associative(server: Broker) -> None:
    with connect(server) as client:
        client.space("by-content").write("a", 1)
        assert client.space("by-content").take(str, 1, timeout_s=5) == ("a", 1)
        client.put("by-content", "dear", headers={"price": 120})
        client.put("by-content", "cheap", headers={"price": 90})
        assert client.get("by-content", 5, "price < 100").value == "cheap"
        heard: list[str] = []
        client.subscribe("by-content", lambda _, event: heard.append(event.value), where="price<9")
        for price in (10, 8):
            client.publish("by-content", str(price), headers={"price": price})
        eventually(lambda: heard == ["8"])
    for verb in (Group.join, Memory.read):
        assert not {"where", "template"} & {*inspect.signature(verb).parameters}
    claimed = {paradigm: each.associative for paradigm, each in OURS.items()}
    assert claimed == {
        GROUPS: Associative.NO,
        EVENTS: Associative.BY_CONTENT,
        QUEUES: Associative.BY_CONTENT,
        MEMORY: Associative.NO,
        SPACES: Associative.YES,
    }


def test_the_table_of_the_lecture() -> None:
    """Seven properties of five paradigms; where ours differ from the lectures', it is said."""
    result = CliRunner().invoke(main, ["spaces", "lab", "summary", "--json"])
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.output.splitlines()]
    assert len(PROPERTIES) == 7
    assert len(rows) == 14
    found = {(row["property"], row["whose"]): [row[each] for each in OURS] for row in rows}
    assert found["space uncoupled", "lecture"] == ["yes"] * 5
    assert found["time uncoupled", "lecture"] == ["possible", "possible", "yes", "yes", "yes"]
    assert found["style", "lecture"] == ["communication-based"] * 3 + ["state-based"] * 2
    many, one = "1-to-many", "1-to-1"
    assert found["pattern", "lecture"] == [many, many, one, many, f"{one} or {many}"]
    assert found["scalability", "lecture"] == ["limited", "possible", "possible"] + ["limited"] * 2
    assert found["associative", "lecture"] == ["no", "content-based only", "no", "no", "yes"]
    differ = {
        (paradigm, name)
        for name in PROPERTIES
        for paradigm, ours, theirs in zip(
            OURS,
            found[name.replace("_", " "), "here"],
            found[name.replace("_", " "), "lecture"],
            strict=True,
        )
        if ours != theirs
    }
    assert differ == {(paradigm, name) for paradigm, names in LECTURE.items() for name in names}
