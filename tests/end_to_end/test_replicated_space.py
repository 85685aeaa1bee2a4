"""The replicated space after Xu and Liskov, over partitions of a real broker."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.client.messaging import xu_liskov
from entrepot.client.messaging.replicated_space import decoded, encoded
from entrepot.client.messaging.xu_liskov import Release, Remove, Take, Write
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

WAIT_S = 20.0


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


def test_the_verbs_and_their_steps(client: entrepot.Client, server: Broker) -> None:
    steps: list[tuple[str, str]] = []
    space = client.replicated_space("verbs", trace=lambda step, who: steps.append((step, who)))
    space.write("point", 1, [2])
    eventually(lambda: len(steps) == 4)
    assert [step for step, _ in steps] == ["write 1", *["write 2"] * 3]
    assert {who for _, who in steps[1:]} == {"site 0", "site 1", "site 2"}
    steps.clear()
    with connect(server) as other:
        same = other.replicated_space("verbs", sites=5)  # How many there are is not asked again.
        assert len(same.inner.sites) == 3
        assert same.read("point", int, list, timeout_s=WAIT_S) == ("point", 1, [2])
        assert space.take("point", ..., ..., timeout_s=WAIT_S) == ("point", 1, [2])
        eventually(lambda: not any(site.tuples for site in same.inner.sites))
        with pytest.raises(TimeoutError):
            same.take("point", ..., ..., timeout_s=0)
        with ThreadPoolExecutor(1) as pool:
            later = pool.submit(same.take, "late", int, timeout_s=WAIT_S)
            time.sleep(0.1)
            space.write("late", 7)
            assert later.result() == ("late", 7)
    order = list(dict.fromkeys(step for step, _ in steps))
    assert order[:6] == ["take 1.1", "take 1.2", "take 1.3", "take 1.5", "take 2.1", "take 2.2"]
    for wrong in ((), (object(),), (float("nan"),), tuple(range(101))):
        with pytest.raises(ClientError):
            space.write(*wrong)
    with pytest.raises(ClientError, match="no type"):
        space.read(dict, timeout_s=0)
    with pytest.raises(ClientError, match="sites"):
        client.replicated_space("none", sites=0)


def test_who_is_killed_is_as_it_was(server: Broker) -> None:
    """The sites are on disk; what somebody else wrote there is passed over."""
    with connect(server) as client:
        space = client.replicated_space("lasting", sites=2)
        client.topic("sites.lasting").append("no message", partition=0)
        client.topic("sites.lasting").append(["Take", {"request": 1}], partition=1)
        for number in range(5):
            space.write("job", number)
        assert space.take("job", 3, timeout_s=WAIT_S) == ("job", 3)
        server.kill()
        server.start()
        assert space.take("job", 2, timeout_s=WAIT_S) == ("job", 2)
    with connect(server) as again:
        same = again.replicated_space("lasting")
        left = [same.take("job", int, timeout_s=WAIT_S)[1] for _ in range(3)]
        assert sorted(left) == [0, 1, 4]
        assert not any(site.is_locked for site in same.inner.sites)


def test_takers_at_once(client: entrepot.Client, server: Broker) -> None:
    """Takers collide, reject each other and try again; one has no time, and loses nothing."""
    space = client.replicated_space("race")
    count = 30

    async def write_all() -> None:
        await asyncio.gather(*(space.inner.write("job", number) for number in range(count)))

    space._loop.wait(write_all())
    with ExitStack() as stack:
        others = [stack.enter_context(connect(server)) for _ in range(3)]
        spaces = [each.replicated_space("race") for each in others]

        def take_ten(same: Any) -> list[int]:
            return [same.take("job", int, timeout_s=3 * WAIT_S)[1] for _ in range(count // 3 - 1)]

        with ThreadPoolExecutor(4) as pool:
            hasty = pool.submit(take_hastily, space)
            taken = [each for some in pool.map(take_ten, spaces) for each in some]
            taken += hasty.result()
        left = []
        while len(taken) + len(left) < count:
            left.append(space.take("job", int, timeout_s=WAIT_S)[1])
    assert Counter(taken + left) == Counter(range(count))


def test_the_locks_of_a_dead_taker_are_broken(
    client: entrepot.Client, server: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A taker has locked all sites, and has removed a tuple at the first, when it dies."""
    monkeypatch.setattr(xu_liskov, "LOCK_MS", 2_000)
    space = client.replicated_space("locked")
    for number in range(3):
        space.write("job", number)
    found = {value[1]: id for id, value in space.inner.sites[0].tuples.items()}
    topic = client.topic("sites.locked")
    locked_at = time.monotonic()
    for site in range(3):
        topic.append(encoded(Take("dead/1", ("job", int))), partition=site)
    topic.append(encoded(Remove("dead/1", found[1], False)), partition=0)
    with connect(server) as other:
        same = other.replicated_space("locked")
        eventually(lambda: all(site.is_locked for site in same.inner.sites[1:]))
        taken = [same.take("job", int, timeout_s=3 * WAIT_S)[1] for _ in range(2)]
        assert time.monotonic() - locked_at > 1.5
        assert sorted(taken) == [0, 2]
        with pytest.raises(TimeoutError):
            same.take("job", int, timeout_s=1)


def take_hastily(space: Any) -> list[int]:
    for _ in range(10):
        try:
            return [space.take("job", int, timeout_s=0.001)[1]]
        except TimeoutError:
            pass
    return []


def test_messages_are_what_they_were() -> None:
    for message in (
        Write("r", "t", ("x", 1, [2])),
        Take("r/1", ("x", int, ..., None, [2], type(None))),
        Release("r/1"),
        Remove("r/1", "t", True),
    ):
        assert decoded(encoded(message)) == message
    for wrong in (b"", b"{}", b"[1,2,3]", b'["Take",{"request":"r","template":[{"type":"x"}]}]',
                  b'["Write",{"request":"r","id":"i","value":[]}]', b'["Else",{}]'):  # fmt: skip
        assert decoded(wrong) is None
