"""The scanner's contract, for every form of it: runs, splits, interleaving, mistakes.

A compiled twin joins `SCANNERS` and must pass all of this.
"""

import tracemalloc
from collections.abc import Callable
from random import Random
from struct import pack

import pytest

from entrepot.core.limits import KIB, MIB
from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp import scan
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.frames import frame, method_frame
from entrepot.wire.amqp.methods import basic, channel, decode, encode
from entrepot.wire.amqp.scan import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    SMALL_BYTES,
    Acks,
    Content,
    Heartbeat,
    MethodFrame,
    Publishes,
    PublishTarget,
    Scanner,
)
from tests.unit.wire.amqp.oracle import (
    FRAME_BYTES_MAX,
    ack,
    flat,
    header_frame,
    publish_frames,
    read_slowly,
    split,
    stream,
)

SCANNERS = [scan.Scanner]
WORK = PublishTarget("", False, False)
PUBLISH = frame(METHOD, 1, encode(basic.Publish(0, "", "work")))

Make = Callable[..., Scanner]


def work(properties: bytes = b"\0\0") -> Envelope:
    return Envelope("", "work", properties, OPAQUE)


@pytest.fixture(params=SCANNERS)
def make(request: pytest.FixtureRequest) -> Make:
    def make_scanner(
        payload_bytes_max: int = FRAME_BYTES_MAX, message_bytes_max: int = 16 * MIB
    ) -> Scanner:
        return request.param(payload_bytes_max, message_bytes_max)

    return make_scanner


def refusal(scanner: Scanner, data: bytes) -> AmqpError:
    """The one mistake in this, which is its last event."""
    events, _ = scanner.scan(data)
    errors = [event for event in events if isinstance(event, AmqpError)]
    assert errors == events[-1:], events
    return errors[0]


# Runs.


def test_publishes_to_one_place_are_one_run(make: Make) -> None:
    bodies = [b"a", b"bb", b"x" * 300]
    data = b"".join(publish_frames(1, body) for body in bodies)
    events, taken = make().scan(data)
    assert taken == len(data)
    assert events == [Publishes(1, WORK, [(work(), body) for body in bodies])]


def test_a_run_goes_on_over_other_properties_and_empty_bodies(make: Make) -> None:
    messages = [(b"\0\0", b"a"), (b"\x10\0\x02", b""), (b"\0\x80\x02id", b"bb"), (b"\0\0", b"")]
    data = b"".join(publish_frames(1, body, properties=each) for each, body in messages)
    expected = [(work(each), body) for each, body in messages]
    assert make().scan(data) == ([Publishes(1, WORK, expected)], len(data))


def test_a_run_goes_on_over_other_keys(make: Make) -> None:
    keys = ["a", "b", "b", "a", "c" * 255, ""]
    data = b"".join(publish_frames(1, b"x", key=key) for key in keys)
    expected = [(Envelope("", key, b"\0\0", OPAQUE), b"x") for key in keys]
    assert make().scan(data) == ([Publishes(1, WORK, expected)], len(data))
    # Also when the last one is not all there, wherever it ends.
    scanner = make()
    for end in range(len(data) - 60, len(data)):
        events, taken = scanner.scan(data[:end])
        rest, _ = scanner.scan(data[taken:])
        assert flat(events + rest) == read_slowly(data)


def test_messages_to_one_place_share_an_envelope(make: Make) -> None:
    (run,), _ = make().scan(b"".join(publish_frames(1, b"x", key=key) for key in "abab"))
    first, second, third, fourth = (envelope for envelope, _ in run.messages)
    assert first is third
    assert second is fourth


def test_another_target_or_channel_begins_another_run(make: Make) -> None:
    data = (
        publish_frames(1, b"a")
        + publish_frames(1, b"b", mandatory=True)
        + publish_frames(2, b"c", exchange="amq.fanout", key="other", mandatory=True)
        + publish_frames(1, b"d", exchange="amq.fanout")
        + publish_frames(1, b"e")
    )
    events, _ = make().scan(data)
    assert [event[:2] for event in events] == [
        (1, WORK),
        (1, PublishTarget("", True, False)),
        (2, PublishTarget("amq.fanout", True, False)),
        (1, PublishTarget("amq.fanout", False, False)),
        (1, WORK),
    ]
    assert [bytes(event.messages[0][1]) for event in events] == [b"a", b"b", b"c", b"d", b"e"]


def test_a_run_ends_where_something_else_is_said(make: Make) -> None:
    flow = method_frame(1, channel.Flow())
    data = publish_frames(1, b"a") + flow + publish_frames(1, b"b")
    events, _ = make().scan(data)
    assert [type(event) for event in events] == [Publishes, MethodFrame, Publishes]
    assert decode(events[1].payload) == channel.Flow()


def test_acks_are_runs_by_channel_and_kind(make: Make) -> None:
    data = b"".join(
        [ack(1, 5, False), ack(1, 6, False), ack(1, 9, True), ack(2, 1, False), ack(2, 2, False)]
    )
    assert make().scan(data + data[:10]) == (
        [Acks(1, False, [5, 6]), Acks(1, True, [9]), Acks(2, False, [1, 2])],
        len(data),
    )


def test_what_a_server_says_comes_with_its_message(make: Make) -> None:
    deliver = basic.Deliver("ctag", 5, True, "ex", "key")
    data = frame(METHOD, 3, encode(deliver)) + header_frame(3, 2, b"\x10\0\x02")
    data += frame(BODY, 3, b"hi") + frame(METHOD, 3, encode(basic.GetOk(6))) + header_frame(3, 0)
    events, taken = make().scan(data)
    assert taken == len(data)
    assert events == [
        Content(3, encode(deliver), b"\x10\0\x02", b"hi"),
        Content(3, encode(basic.GetOk(6)), b"\0\0", b""),
    ]


def test_small_bodies_are_their_own_and_large_ones_are_not_copied(make: Make) -> None:
    data = publish_frames(1, b"s" * SMALL_BYTES) + publish_frames(1, b"l" * (SMALL_BYTES + 1))
    events, _ = make().scan(data)
    small, large = (body for _, body in events[0].messages)
    assert type(small) is bytes
    assert large.obj is data
    assert large.readonly


@pytest.mark.parametrize("size", [4_096, 10_000, 100_000])
def test_a_body_in_many_frames_is_one_piece(make: Make, size: int) -> None:
    body = Random(size).randbytes(size)
    data = publish_frames(1, body, frame_bytes_max=4_096) * 2
    assert len(split(data)) > 4
    events, taken = make(4_096).scan(data)
    assert taken == len(data)
    (run,) = events
    assert [body for _, body in run.messages] == [body, body]
    assert all(memoryview(body).contiguous for _, body in run.messages)


# Any stream, in any pieces.


def test_lively_streams_are_read_as_the_slow_reader_reads_them(make: Make, seed: int) -> None:
    data = stream(Random(seed), 60)
    events, taken = make().scan(data)
    assert taken == len(data)
    assert flat(events) == read_slowly(data)


def test_the_same_in_pieces(make: Make, seed: int) -> None:
    random = Random(seed)
    data = stream(random, 60)
    scanner, found, rest = make(), [], b""
    position = 0
    while position < len(data):
        size = random.choice((1, 10, 100, 5_000))
        block = rest + data[position : position + size]
        position += size
        events, taken = scanner.scan(block)
        rest = block[taken:]
        found += flat(events)
    assert rest == b""
    assert found == read_slowly(data)


def test_every_split_of_three_publishes(make: Make) -> None:
    data = publish_frames(1, b"one") + publish_frames(1, b"") + publish_frames(2, b"three" * 200)
    for cut in range(len(data) + 1):
        scanner = make()
        first, taken = scanner.scan(data[:cut])
        second, rest = scanner.scan(data[taken:])
        assert taken + rest == len(data)
        assert flat(first + second) == read_slowly(data)


def test_a_header_of_another_channel_does_not_belong_to_the_method_before(make: Make) -> None:
    """Also when the last header on that other channel looked just the same."""
    scanner = make()
    scanner.scan(publish_frames(2, b"x"))
    one, two = split(publish_frames(1, b"one")), split(publish_frames(2, b"two"))
    data = b"".join([two[0], one[0], two[1], two[2], one[1], one[2]])
    assert flat(scanner.scan(data)[0]) == [
        (2, WORK, work(), b"two"),
        (1, WORK, work(), b"one"),
    ]


def test_of_a_closing_channel_nothing_is_heard_but_its_close(make: Make) -> None:
    scanner = make()
    scanner.scan(PUBLISH + header_frame(1, 5))
    scanner.close_channel(1)
    data = frame(BODY, 1, b"x" * 5) + publish_frames(1, b"x") * 2 + ack(1, 1, False)
    data += method_frame(1, basic.Qos()) + PUBLISH + method_frame(1, channel.Close())
    events, taken = scanner.scan(data + publish_frames(2, b"other"))
    assert taken > len(data)
    close, other = events
    assert decode(close.payload) == channel.Close()
    assert flat([other]) == [(2, WORK, work(), b"other")]
    data = method_frame(1, channel.CloseOk()) + publish_frames(1, b"new")
    close_ok, new = scanner.scan(data)[0]
    assert decode(close_ok.payload) == channel.CloseOk()
    assert flat([new]) == [(1, WORK, work(), b"new")]


# Mistakes.


def test_what_came_before_a_mistake_is_not_lost(make: Make) -> None:
    events, _ = make().scan(publish_frames(1, b"a") * 3 + b"\x07\0\x01\0\0\0\0\xce")
    assert flat(events) == [(1, WORK, work(), b"a")] * 3 + [(501, 0)]


@pytest.mark.parametrize(
    ("data", "code", "text"),
    [
        (frame(7, 1, b""), 501, "unknown type 7"),
        (frame(METHOD, 1, b"\0\x3c\0\x0a")[:-1] + b"\0", 501, "ends with 0, not 206"),
        (publish_frames(1, b"abc")[:-1] + b"x", 501, "ends with 120"),
        (pack(">BHI", BODY, 1, FRAME_BYTES_MAX + 1), 501, "131072 are taken"),
        (PUBLISH + pack(">BHI", HEADER, 1, 1 << 31), 501, "a frame of 2147483648 bytes"),
        (header_frame(1, 0), 505, "header without a method"),
        (frame(BODY, 1, b"x"), 505, "body without a content header"),
        (PUBLISH + frame(BODY, 1, b"x"), 505, "body without a content header"),
        (PUBLISH + PUBLISH, 505, "a method within a message"),
        (PUBLISH + header_frame(1, 5) + PUBLISH, 505, "a method within a message"),
        (PUBLISH + header_frame(1, 5) * 2, 505, "header without a method"),
        (PUBLISH + header_frame(1, 0) + frame(BODY, 1, b""), 505, "body without a content"),
        (PUBLISH + header_frame(2, 0), 505, "header without a method"),
        (PUBLISH + header_frame(1, 5, class_id=50), 505, "header of class 50"),
        (PUBLISH + frame(HEADER, 1, pack(">HHQH", 60, 1, 5, 0)), 505, "weight 1"),
        (PUBLISH + frame(HEADER, 1, pack(">HHQ", 60, 0, 5)), 501, "header of 12 bytes"),
        (PUBLISH + frame(HEADER, 1, b""), 501, "header of 0 bytes"),
        (PUBLISH + header_frame(1, 2) + frame(BODY, 1, b"xxx"), 505, "where 2 are left"),
        (frame(METHOD, 0, encode(basic.Publish())), 504, "a message on channel 0"),
        (publish_frames(0, b"x"), 504, "a message on channel 0"),
        (publish_frames(0, b"x") + publish_frames(0, b"x"), 504, "a message on channel 0"),
        (frame(METHOD, 1, encode(basic.Publish())[:-1]), 501, "basic.publish: cannot decode"),
        (frame(METHOD, 1, encode(basic.Publish()) + b"\0"), 501, "after its last field"),
        (frame(HEARTBEAT, 0, b"x"), 501, "a heartbeat of 1 bytes"),
        (frame(HEARTBEAT, 1, b""), 505, "a heartbeat on channel 1"),
    ],
)
def test_mistakes_close_the_connection(make: Make, data: bytes, code: int, text: str) -> None:
    error = refusal(make(), data)
    assert error.code == code
    assert text in error.text
    assert error.closes_connection


def test_a_damaged_ack_is_left_to_who_decodes_methods(make: Make) -> None:
    payload = encode(basic.Ack(1)) + b"\0"
    assert make().scan(frame(METHOD, 1, payload))[0] == [MethodFrame(1, payload)]


def test_a_method_too_short_for_a_number_too(make: Make) -> None:
    (event,), _ = make().scan(frame(METHOD, 1, b"\0"))
    with pytest.raises(AmqpError, match="without a method"):
        decode(event.payload)


def test_the_bound_of_frames_can_be_changed(make: Make) -> None:
    large_body = publish_frames(1, b"x" * 101)
    large_header = publish_frames(1, b"x", properties=b"\0\x80\x78" + bytes(120))
    for data in (large_body, large_header):
        assert refusal(make(100), data).code == 501
        scanner = make(FRAME_BYTES_MAX)
        assert len(scanner.scan(data)[0][0].messages) == 1
        scanner.limit_payload(100)
        assert refusal(scanner, data).code == 501


def test_a_message_too_large_closes_its_channel_and_is_passed_over(make: Make) -> None:
    data = publish_frames(1, b"x" * 1_001) + publish_frames(2, b"fits")
    events, taken = make(message_bytes_max=1_000).scan(data)
    assert taken == len(data)
    error, run = events
    assert (error.code, error.channel, error.closes_connection) == (406, 1, False)
    assert "1001 is larger than" in error.text
    assert flat([run]) == [(2, WORK, work(), b"fits")]


def test_a_message_too_large_in_many_frames(make: Make) -> None:
    data = publish_frames(1, b"x" * 50_000, frame_bytes_max=4_096) + publish_frames(1, b"next")
    close_ok = method_frame(1, channel.CloseOk())
    events, _ = make(message_bytes_max=10_000).scan(data + close_ok + publish_frames(1, b"new"))
    assert flat(events) == [
        (406, 1),
        MethodFrame(1, encode(channel.CloseOk())),
        (1, WORK, work(), b"new"),
    ]


# Bounds.


def test_nothing_is_held_for_what_was_only_announced(make: Make) -> None:
    announced = PUBLISH + header_frame(1, 15 * MIB)
    scanner = make()
    tracemalloc.start()
    scanner.scan(announced + frame(BODY, 1, b"x"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * KIB


def test_tiny_frames_cost_no_more_than_their_bytes(make: Make) -> None:
    scanner = make()
    scanner.scan(PUBLISH + header_frame(1, 15 * MIB))
    block = frame(BODY, 1, b"x") * 1_000 + frame(BODY, 1, b"") * 1_000
    tracemalloc.start()
    for _ in range(20):
        scanner.scan(block)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 40 * KIB


def test_unfinished_messages_are_bounded(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_limits, "UNFINISHED_BYTES_MAX", 10_000)
    piece = frame(BODY, 1, b"x" * 4_000)
    scanner = make()
    # What is finished does not count any more.
    for _ in range(5):
        events, _ = scanner.scan(PUBLISH + header_frame(1, 8_000) + piece + piece)
        assert [type(event) for event in events] == [Publishes]
    error = refusal(scanner, PUBLISH + header_frame(1, 16_000) + piece * 3)
    assert error.code == 506


def test_many_targets_and_shapes_are_not_remembered_for_ever(make: Make) -> None:
    scanner = make()
    for number in range(0, 3 * amqp_limits.ROUTES_CACHED_MAX, 50):
        keys = [f"key-{each}" for each in range(number, number + 50)]
        data = b"".join(
            publish_frames(1, b"x", key=key, properties=b"\0\x80" + bytes([number % 250]) * 251)
            for key in keys
        )
        events, _ = scanner.scan(data)
        [run] = events
        assert [envelope.subject for envelope, _ in run.messages] == keys
    assert len(scanner._publish_methods) <= amqp_limits.ROUTES_CACHED_MAX
    for size in range(2, 2_500):
        scanner.scan(publish_frames(1, b"x", properties=bytes(size)))
    assert len(scanner._layouts) <= 1_000


def test_heartbeats(make: Make) -> None:
    assert make().scan(frame(HEARTBEAT, 0, b"") * 2) == ([Heartbeat(), Heartbeat()], 16)


def test_a_target_is_what_the_method_says(make: Make, seed: int) -> None:
    """Read by hand, and by the method's declaration: whole, cut, with odd bits and lengths."""
    random = Random(seed)
    for _ in range(50):
        exchange, key = (random.choice(("", "x", "ü" * 60, "\udcff")) for _ in range(2))
        method = basic.Publish(7, exchange, key, random.random() < 0.5, random.random() < 0.5)
        payload = bytearray(encode(method)[: random.choice((None, None, -1, 8, 5))])
        if random.random() < 0.5:
            payload[random.randrange(4, len(payload))] = random.choice((0, 1, 2, 60, 255))
        events, _ = make().scan(frame(METHOD, 1, bytes(payload)) + header_frame(1, 0))
        assert flat(events[:1])[0] == expected(bytes(payload))


def expected(payload: bytes) -> tuple[object, ...]:
    """What `flat` gives for an empty publish of this payload, or its error, on channel 1."""
    try:
        method = decode(payload)
    except AmqpError as error:
        return error.code, 0
    assert isinstance(method, basic.Publish)
    target = PublishTarget(method.exchange, method.mandatory, method.immediate)
    return 1, target, Envelope(method.exchange, method.routing_key, b"\0\0", OPAQUE), b""
