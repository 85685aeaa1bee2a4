"""Frames that are passed on as they are, however the bytes come."""

import pytest

from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import HEARTBEAT_FRAME, frame, method_frame
from entrepot.wire.amqp.methods import basic
from entrepot.wire.amqp.scan import BODY
from entrepot.wire.amqp.split import Frame, FrameSplitter


def feed(splitter: FrameSplitter, data: bytes, step: int) -> list[Frame]:
    found: list[Frame] = []
    for start in range(0, len(data), step):
        left = data[start : start + step]
        while left:
            view = splitter.writable()
            size = min(len(view), len(left))
            view[:size] = left[:size]
            found += splitter.received(size)
            left = left[size:]
    return found


@pytest.mark.parametrize("step", [1, 7, 4_096, 10**6])
def test_every_split_gives_the_same_frames(step: int) -> None:
    data = [
        HEARTBEAT_FRAME,
        method_frame(1, basic.Ack(7)),
        frame(BODY, 2, bytes(100_000)),
        method_frame(3, basic.QosOk()),
    ]
    splitter = FrameSplitter(128 * 1024)
    found = feed(splitter, b"".join(data), step)
    assert [each.data for each in found] == data
    assert [each.channel for each in found] == [0, 1, 2, 3]
    assert [each.size for each in found] == [len(each) - 8 for each in data]
    assert splitter.unfinished_bytes == 0


def test_a_frame_that_is_too_large_is_refused_when_it_is_announced() -> None:
    splitter = FrameSplitter(4_096)
    with pytest.raises(AmqpError):
        feed(splitter, frame(BODY, 1, bytes(5_000))[:7], 7)


def test_a_frame_without_its_end_is_refused() -> None:
    splitter = FrameSplitter(4_096)
    with pytest.raises(AmqpError):
        feed(splitter, method_frame(1, basic.Ack(7))[:-1] + b"x", 100)
