"""What a publisher hears, and in how many words."""

from random import Random
from typing import Any, cast

import pytest

from entrepot.broker.queue.message import Failure, Refused
from entrepot.core.errors import StorageError
from entrepot.gateway.amqp.confirms import Confirm, Confirms
from entrepot.wire.amqp.frames import FrameBuffer
from entrepot.wire.amqp.methods import basic, decode
from entrepot.wire.amqp.scan import Acks, MethodFrame

pytestmark = pytest.mark.pure  # A compiled confirm takes no connection but a real one.


class FakeConnection:
    """What a confirm needs of its connection."""

    def __init__(self) -> None:
        self.confirming: dict[Confirms, None] = {}

    def publish_ended(self, size: int | None) -> None:
        assert size is None

    def guard(self, call: Any, error: Exception) -> None:
        raise error


def expect(confirms: Confirms, count: int, connection: FakeConnection | None = None) -> Confirm:
    found = cast("Any", connection or FakeConnection())
    return confirms.expect(found, None, count)


def tell(run: Confirm, failure: Failure | None = None) -> None:
    run.arrived(failure)


def said(confirms: Confirms) -> list[basic.Ack | basic.Nack]:
    inbox = FrameBuffer(is_client=True)
    heard: list[basic.Ack | basic.Nack] = []
    data = b"".join(confirms.take_frames())
    while data:
        view = inbox.writable()
        size = min(len(view), len(data))
        view[:size] = data[:size]
        del view
        for event in inbox.received(size):
            if isinstance(event, Acks):
                heard += [basic.Ack(tag, event.is_multiple) for tag in event.tags]
            else:
                assert isinstance(event, MethodFrame)
                method = decode(event.payload)
                assert isinstance(method, basic.Nack)
                heard.append(method)
        data = data[size:]
    return heard


def test_one_for_all() -> None:
    confirms = Confirms(3)
    runs = [expect(confirms, count) for count in (10, 5, 1)]
    assert confirms.waiting == 16
    for run in runs[:2]:
        tell(run)
    assert said(confirms) == [basic.Ack(15, multiple=True)]
    tell(runs[2])
    assert said(confirms) == [basic.Ack(16)]
    assert said(confirms) == []
    assert confirms.waiting == 0


def test_what_overtakes_is_told_one_by_one() -> None:
    confirms = Confirms(3)
    first, second = expect(confirms, 2), expect(confirms, 3)
    tell(second)
    assert said(confirms) == [basic.Ack(3), basic.Ack(4), basic.Ack(5)]
    tell(first)
    assert said(confirms) == [basic.Ack(2, multiple=True)]


def test_what_is_lost() -> None:
    confirms = Confirms(3)
    first, second, third = (expect(confirms, 2) for _ in range(3))
    tell(first)
    tell(second, StorageError("no"))
    tell(third)
    assert said(confirms) == [
        basic.Ack(2, multiple=True),
        basic.Nack(3, requeue=False),
        basic.Nack(4, requeue=False),
        basic.Ack(5),
        basic.Ack(6),
    ]


def test_a_queue_that_took_some_of_them() -> None:
    confirms = Confirms(3)
    run = expect(confirms, 4)
    tell(run, Refused("full", [1, 3]))
    assert said(confirms) == [
        basic.Ack(1),
        basic.Nack(2, requeue=False),
        basic.Ack(3),
        basic.Nack(4, requeue=False),
    ]


def test_nothing_is_told_of_a_closed_channel() -> None:
    connection = FakeConnection()
    confirms = Confirms(3)
    run = expect(confirms, 1, connection)
    confirms.is_over = True
    tell(run)
    assert connection.confirming == {}


def test_every_message_is_told_of_once(seed: int) -> None:
    random = Random(seed)
    confirms = Confirms(1)
    told: dict[int, bool] = {}
    lost: dict[int, None] = {}
    flying = []
    number = 0
    for _ in range(200):
        if random.random() < 0.6:
            count = random.randrange(1, 8)
            flying.append((expect(confirms, count), range(number + 1, number + count + 1)))
            number += count
        elif flying:
            run, numbers = flying.pop(random.randrange(min(3, len(flying))))
            fails = random.random() < 0.2
            tell(run, StorageError("no") if fails else None)
            lost.update(dict.fromkeys(numbers) if fails else {})
        if random.random() < 0.5:
            for each in said(confirms):
                first = 1 if each.multiple else each.delivery_tag
                for tag in range(first, each.delivery_tag + 1):
                    if each.multiple and tag in told:
                        continue
                    assert tag not in told
                    told[tag] = isinstance(each, basic.Ack)
    waiting = {tag for _, numbers in flying for tag in numbers}
    assert all(told[tag] is (tag not in lost) for tag in told)
    assert not waiting & set(told)
