"""The delivery encoder's contract, for every form of it, and messages sent one by one.

A compiled twin joins `ENCODERS` and must pass all of this.
"""

from collections.abc import Callable
from operator import attrgetter
from random import Random
from typing import Any

import pytest

from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.amqp import deliver
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import COPIED_BYTES_MAX, OutgoingDelivery, content, returned
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.methods import basic, encode
from tests.unit.wire.amqp.oracle import FRAME_BYTES_MAX, read_slowly, split

ENCODERS = [deliver.DeliverEncoder]
HEAD = attrgetter("head")
PLAIN, PERSISTENT = (Envelope("ex", "key", each, OPAQUE) for each in (b"\0\0", b"\x10\0\x02"))
SIZES = (0, 1, 100, COPIED_BYTES_MAX, COPIED_BYTES_MAX + 1, 50_000, 131_064, 131_065, 300_000)


@pytest.fixture(params=ENCODERS)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


def one_by_one(channel: int, consumer_tag: str, run: list[OutgoingDelivery]) -> list[Any]:
    """What a client hears: each method, its properties and its body."""
    return [
        (
            channel,
            encode(basic.Deliver(consumer_tag, tag, redelivered, each.exchange, each.subject)),
            each.head,
            bytes(body),
        )
        for tag, redelivered, each, body in run
    ]


def test_a_run_of_deliveries(make: Callable[..., Any]) -> None:
    run = [(tag, tag % 2 == 0, PERSISTENT, b"hello") for tag in range(1, 100)]
    chunks = make(7, "ctag", FRAME_BYTES_MAX, HEAD).encode(run)
    assert len(chunks) == 1
    assert read_slowly(chunks[0]) == one_by_one(7, "ctag", run)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "other", [None, PERSISTENT, PLAIN, Envelope("ex", "b", PERSISTENT.head, OPAQUE)]
)
def test_a_run_of_one_kind(make: Callable[..., Any], size: int, other: Envelope | None) -> None:
    messages = [(PERSISTENT, bytes(size))] * 20
    if other is not None:
        messages += [(other, b"other"), (other, bytes(size))]
    for count in (1, 3, len(messages)):
        chunks = make(7, "ctag", FRAME_BYTES_MAX, HEAD).encode_run(5, messages[-count:])
        run = [(tag, False, *message) for tag, message in enumerate(messages[-count:], 5)]
        assert read_slowly(b"".join(chunks)) == one_by_one(7, "ctag", run)
    encoder = make(7, "ctag", FRAME_BYTES_MAX, HEAD)
    for tag, message in enumerate(messages[-3:], 5):
        alone = b"".join(encoder.encode_one(tag, message))
        assert read_slowly(alone) == one_by_one(7, "ctag", [(tag, False, *message)])


def test_any_run_of_deliveries(make: Callable[..., Any], seed: int) -> None:
    random = Random(seed)
    run = [
        (
            random.randrange(1 << 64),
            random.random() < 0.5,
            Envelope(
                random.choice(("", "amq.topic")),
                random.choice(("work", "", "\udcff")),
                random.choice((b"\0\0", b"\x10\0\x02", b"\x08\0\x02")),
                OPAQUE,
            ),
            random.choice((bytes, memoryview))(bytes(random.choice(SIZES))),
        )
        for _ in range(30)
    ]
    for frame_bytes_max in (4_096, FRAME_BYTES_MAX):
        data = b"".join(make(1, "ctag", frame_bytes_max, HEAD).encode(run))
        assert read_slowly(data) == one_by_one(1, "ctag", run)
        assert max(map(len, split(data))) <= frame_bytes_max


def test_no_deliveries_are_no_chunks(make: Callable[..., Any]) -> None:
    assert make(1, "ctag", FRAME_BYTES_MAX, HEAD).encode([]) == []


def test_large_bodies_are_not_copied(make: Callable[..., Any]) -> None:
    body = bytes(100_000)
    run = [(tag, False, PLAIN, body) for tag in (1, 2)]
    chunks = make(1, "ctag", FRAME_BYTES_MAX, HEAD).encode(run)
    assert len(chunks) == 5
    for chunk in (chunks[1], chunks[3]):
        assert chunk.obj is body
        assert len(chunk) == len(body)


def test_the_bytes_of_one_delivery(make: Callable[..., Any]) -> None:
    envelope = Envelope("e", "k", b"\x10\0\x02", OPAQUE)
    (data,) = make(1, "c", 4_096, HEAD).encode([(258, True, envelope, b"hi")])
    assert data.hex(" ") == (
        "01 00 01 00 00 00 13 00 3c 00 3c 01 63 00 00 00 00 00 00 01 02 01 01 65 01 6b ce "
        "02 00 01 00 00 00 0f 00 3c 00 00 00 00 00 00 00 00 00 02 10 00 02 ce "
        "03 00 01 00 00 00 02 68 69 ce"
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("frame_bytes_max", [4_096, FRAME_BYTES_MAX])
def test_one_message_with_any_method(size: int, frame_bytes_max: int) -> None:
    method = basic.GetOk(5, False, "ex", "key", 17)
    body = Random(size).randbytes(size)
    data = b"".join(content(3, method, b"\x10\0\x02", body, frame_bytes_max))
    assert read_slowly(data) == [(3, encode(method), b"\x10\0\x02", body)]
    assert max(map(len, split(data))) <= frame_bytes_max


def test_a_message_that_comes_back() -> None:
    data = b"".join(returned(3, ReplyCode.NO_ROUTE, (PLAIN, b"x"), FRAME_BYTES_MAX))
    method = basic.Return(312, "NO_ROUTE", "ex", "key")
    assert read_slowly(data) == [(3, encode(method), b"\0\0", b"x")]


def test_a_method_without_content_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError):
        content(1, basic.Qos(), b"\0\0", b"", FRAME_BYTES_MAX)


def test_many_places_are_not_remembered_for_ever(make: Callable[..., Any]) -> None:
    tails = deliver.Tails()
    encoder = make(1, "ctag", FRAME_BYTES_MAX, HEAD, tails)
    for number in range(2 * amqp_limits.ROUTES_CACHED_MAX + 10):
        run = [(number, False, Envelope("ex", f"key-{number % 5_000}", b"\0\0", OPAQUE), b"x")]
        assert read_slowly(b"".join(encoder.encode(run))) == one_by_one(1, "ctag", run)
    assert 0 < len(tails._known) <= amqp_limits.ROUTES_CACHED_MAX
