"""Frames of STOMP against the specification's words, cut anywhere, and at their bounds."""

import pytest

from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import (
    AREA_BYTES_MAX,
    AREA_BYTES_MIN,
    SERVER_COMMANDS,
    VERSIONS,
    Event,
    Frame,
    FrameReader,
    Sends,
    check_headers,
    frame_bytes,
    header_line,
    negotiate,
    read_heart_beat,
)
from tests.unit.wire.stomp.vectors import Vector, feed, read, reader

VECTORS = read()
SEND = b"SEND\ndestination:/queue/a\n\n"


def check(vector: Vector, events: list[Event]) -> None:
    if vector.mistake is not None:
        error = events.pop()
        assert isinstance(error, PeerError), error
        assert vector.mistake in str(error)
    assert events == vector.frames


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_golden_frames(vector: Vector) -> None:
    check(vector, feed(reader(vector.version), [vector.data]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.name)
def test_every_split_decodes_alike(vector: Vector) -> None:
    data = vector.data
    for cut in range(len(data) + 1):
        check(vector, feed(reader(vector.version), [data[:cut], data[cut:]]))
    check(vector, feed(reader(vector.version), [data[at : at + 1] for at in range(len(data))]))


def test_every_vector_has_a_name_of_its_own() -> None:
    assert len({vector.name for vector in VECTORS}) == len(VECTORS) > 30


# Versions.


@pytest.mark.parametrize(
    ("accepted", "agreed"),
    [
        (None, "1.0"),
        ("1.0", "1.0"),
        ("1.0,1.1,2.0", "1.1"),
        ("1.2,1.1,1.0", "1.2"),
        ("1.1 , 1.2", "1.2"),
        ("2.1", None),
        ("", None),
    ],
)
def test_the_highest_common_version_is_agreed_on(accepted: str | None, agreed: str | None) -> None:
    assert negotiate({} if accepted is None else {"accept-version": accepted}) == agreed


def test_frames_behind_the_first_are_decoded_by_its_version() -> None:
    for version, value in (("1.0", "a\\cb"), ("1.1", "a:b"), ("1.2", "a:b")):
        connect = b"CONNECT\naccept-version:%s\n\n\0" % version.encode()
        _, send = feed(
            FrameReader(body_bytes_max=9), [connect + b"SEND\ndestination:a\nk:a\\cb\n\n\0"]
        )
        assert isinstance(send, Frame)
        assert send.headers["k"] == value


def test_connect_is_not_escaped_and_stomp_is() -> None:
    for command, value in ((b"CONNECT", "a\\cb"), (b"STOMP", "a:b")):
        [frame] = feed(FrameReader(), [command + b"\naccept-version:1.2\npasscode:a\\cb\n\n\0"])
        assert isinstance(frame, Frame)
        assert frame.headers["passcode"] == value


def test_a_second_connect_changes_no_version() -> None:
    made = reader("1.2")
    feed(made, [b"CONNECT\naccept-version:1.0\n\n\0"])
    assert made.version == "1.2"


@pytest.mark.parametrize(
    ("command", "version", "headers", "missing"),
    [
        ("SEND", "1.0", {}, "destination"),
        ("SUBSCRIBE", "1.0", {"destination": "a"}, None),
        ("SUBSCRIBE", "1.1", {"destination": "a"}, "id"),
        ("UNSUBSCRIBE", "1.0", {"destination": "a"}, None),
        ("UNSUBSCRIBE", "1.0", {}, "id or destination"),
        ("UNSUBSCRIBE", "1.2", {"destination": "a"}, "id"),
        ("ACK", "1.0", {}, "message-id"),
        ("ACK", "1.1", {"message-id": "1"}, "subscription"),
        ("NACK", "1.2", {"message-id": "1"}, "id"),
        ("BEGIN", "1.2", {}, "transaction"),
        ("COMMIT", "1.2", {}, "transaction"),
        ("ABORT", "1.2", {"transaction": "t"}, None),
        ("DISCONNECT", "1.2", {}, None),
    ],
)
def test_headers_that_a_command_needs(
    command: str, version: str, headers: dict[str, str], missing: str | None
) -> None:
    frame = Frame(command, headers)
    if missing is None:
        check_headers(frame, version)
    else:
        with pytest.raises(PeerError, match=f"{command} needs the header {missing}$"):
            check_headers(frame, version)


def test_heart_beats() -> None:
    assert read_heart_beat({}) == (0, 0)
    assert read_heart_beat({"heart-beat": "1000,0"}) == (1_000, 0)
    for wrong in ("1000", "a,b", "1,2,3", "-1,0", "1.5,0", "99999999999,0", "\u0661,0"):
        with pytest.raises(PeerError, match="heart-beat"):
            read_heart_beat({"heart-beat": wrong})


# Runs.


def test_sends_that_come_together_are_one_event_and_share_their_headers() -> None:
    made = reader("1.2")
    data = 3 * (SEND + b"x\0") + b"DISCONNECT\n\n\0" + SEND + b"y\0"
    view = made.writable()
    view[: len(data)] = data
    first, between, last = made.received(len(data))
    assert isinstance(first, Sends)
    assert isinstance(last, Sends)
    assert between == Frame("DISCONNECT", {})
    assert [frame.body for frame in first.frames] == [b"x"] * 3
    assert len({id(frame.headers) for frame in (*first.frames, *last.frames)}) == 1


def test_bodies_do_not_change_with_later_reads() -> None:
    made = reader("1.2")
    [first] = feed(made, [SEND + b"first\0"])
    feed(made, [SEND + b"other\0"])
    assert isinstance(first, Frame)
    assert first.body == b"first"


# Bounds.


@pytest.mark.parametrize("has_length", [False, True])
def test_a_body_of_any_allowed_size(has_length: bool) -> None:
    size = 3 * limits.MIB
    head = b"SEND\ndestination:a\n" + (b"content-length:%d\n" % size if has_length else b"") + b"\n"
    made = reader("1.2", body_bytes_max=size)
    pieces = [head, *[b"x" * 65_536] * (size // 65_536)]
    assert feed(made, pieces) == []
    assert made.unfinished_bytes == len(head) + size
    frame, behind = feed(made, [b"\0" + SEND + b"y\0"])
    assert isinstance(frame, Frame)
    assert len(frame.body) == size
    assert isinstance(behind, Frame)
    feed(made, [b"\n"])
    assert len(made.writable()) <= AREA_BYTES_MAX


@pytest.mark.parametrize("has_length", [False, True])
def test_behind_a_large_body_not_much_is_read_at_once(has_length: bool) -> None:
    """It could be a hundred thousand small frames."""
    size = 3 * limits.MIB
    head = b"SEND\ndestination:a\n" + (b"content-length:%d\n" % size if has_length else b"") + b"\n"
    made = reader("1.2", body_bytes_max=size)
    rooms = []
    for piece in [head, *[b"x" * 65_536] * (size // 65_536), b"\0SEND\n"]:
        feed(made, [piece])
        rooms.append(len(made.writable()))
    if has_length:
        assert max(rooms) <= size
        assert max(rooms[-2:]) <= AREA_BYTES_MAX
    else:
        assert max(rooms) <= AREA_BYTES_MAX


@pytest.mark.parametrize("has_length", [False, True])
def test_a_body_that_is_too_long(has_length: bool) -> None:
    size = 100
    head = b"SEND\ndestination:a\n" + (b"content-length:101\n" if has_length else b"") + b"\n"
    [error] = feed(reader("1.2", body_bytes_max=size), [head + b"x" * 101])
    assert "more than 100 bytes" in str(error)


def test_what_is_announced_takes_no_memory() -> None:
    made = reader("1.2", body_bytes_max=limits.MESSAGE_BYTES_MAX)
    feed(made, [b"SEND\ndestination:a\ncontent-length:%d\n\n" % limits.MESSAGE_BYTES_MAX])
    assert len(made.writable()) <= AREA_BYTES_MIN


def test_before_the_login_a_frame_is_small_and_alone() -> None:
    size = limits.LOGIN_FRAME_BYTES_MAX + 1
    head = b"SEND\ndestination:a\ncontent-length:%d\n\n" % size
    [error] = feed(FrameReader(), [head])
    assert isinstance(error, PeerError)
    made = FrameReader()
    connect = b"CONNECT\naccept-version:1.2\n\n\0\n"
    [first] = feed(made, [connect + head, b"x" * size, b"\0BOGUS"])
    assert isinstance(first, Frame)
    made.allow(size)
    [event] = made.received(0)
    assert isinstance(event, Sends)
    assert [len(frame.body) for frame in event.frames] == [size]
    assert isinstance(feed(made, [b"\n\n\0"])[0], PeerError)


def test_what_is_kept_for_the_end_of_the_login_has_a_bound() -> None:
    made = FrameReader()
    _, error = feed(made, [b"CONNECT\n\n\0", *[b"x" * 65_536] * 5])
    assert str(error) == "too much before the login is over"
    assert made.unfinished_bytes == 0


def test_a_head_has_bounds() -> None:
    for data in (
        b"SEND\n" + b"a:b\n" * (stomp_limits.HEADERS_MAX + 1) + b"\n\0",
        b"SEND\na:" + b"x" * stomp_limits.HEAD_BYTES_MAX + b"\n\n\0",
        b"x" * (stomp_limits.HEAD_BYTES_MAX + 1),
    ):
        [error] = feed(reader("1.2"), [data])
        assert "more than" in str(error)
    data = b"SEND\n" + b"a:b\n" * stomp_limits.HEADERS_MAX + b"\n\0"
    assert isinstance(feed(reader("1.2"), [data])[0], Frame)


def test_after_a_mistake_nothing_is_read() -> None:
    made = reader("1.2")
    assert len(feed(made, [b"BOGUS\n\n\0"])) == 1
    assert feed(made, [SEND + b"x\0", b"\xff" * 100_000]) == []
    assert made.unfinished_bytes == 0


def test_heads_that_are_remembered_are_few() -> None:
    made = reader("1.2")
    for number in range(3 * stomp_limits.HEADS_CACHED_MAX):
        [frame] = feed(made, [b"SEND\ndestination:a\nn:%d\n\n\0" % number])
        assert frame == Frame("SEND", {"destination": "a", "n": str(number)})
    assert len(made._heads) <= stomp_limits.HEADS_CACHED_MAX


# Writing.


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_written_is_read_again(version: str) -> None:
    headers = {"destination": "/queue/a", "message-id": "1", "k": "v"}
    data = frame_bytes("CONNECTED", [("version", version)], version=version)
    data += frame_bytes("MESSAGE", headers.items(), b"a\0b", version)
    connected, message = feed(FrameReader(commands=SERVER_COMMANDS, body_bytes_max=9), [data])
    assert connected == Frame("CONNECTED", {"version": version})
    assert message == Frame("MESSAGE", {**headers, "content-length": "3"}, b"a\0b")


def test_what_a_version_cannot_express_is_left_out() -> None:
    assert header_line("a:b", "c\nd\re\\", "1.2") == b"a\\cb:c\\nd\\re\\\\\n"
    assert header_line("a:b", "c\nd\\", "1.1") == b"a\\cb:c\\nd\\\\\n"
    assert header_line("a", "b:c\\", "1.0") == b"a:b:c\\\n"
    for version, name, value in (
        ("1.0", "a:b", "c"),
        ("1.0", "a\nb", "c"),
        ("1.0", "a", "b\nc"),
        ("1.0", "a", "b\r"),
        ("1.1", "a", "b\r"),
        ("1.2", "a", "b\0"),
        ("1.2", "", "b"),
    ):
        assert header_line(name, value, version) == b""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "lines",
    [
        b"receipt:1\ndestination:/queue/a",
        b"destination:/queue/a\nreceipt:1",
        b"destination:/queue/a\nreceipt:1:2\nx:y",
        b"destination:/queue/a\nreceipt:1\nreceipt:2",
        b"destination:/queue/a\nreceipt: 1",
        b"destination:/queue/a\nreceipt:\\c1",
        b"destination:/queue/a\r\nreceipt:1\r",
        b"destination:/queue/a\nxreceipt:1",
        b"destination:/queue/a\nreceipt:",
    ],
)
def test_a_receipt_is_read_alike_whatever_was_read_before(version: str, lines: bytes) -> None:
    """A head that differs in its receipt only is not decoded again."""
    frame = b"SEND\n" + lines + b"\n\nhi\0"
    before = b"SEND\ndestination:/queue/a\nreceipt:0\n\nhi\0" + SEND + b"hi\0" + frame
    once = _headers(feed(reader(version), [frame]))
    assert _headers(feed(reader(version), [before, frame]))[-1:] == once
    assert once[0]["destination"] == "/queue/a"


def _headers(events: list[Event]) -> list[dict[str, str]]:
    return [dict(each.headers) for each in events if isinstance(each, Frame)]
