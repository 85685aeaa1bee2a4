"""Frames in, bytes out: examples of RFC 6455, cut anywhere, and what ends a connection."""

import struct
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.wire.http.websocket import FrameStream, answer, head

KEY = "dGhlIHNhbXBsZSBub25jZQ=="  # Section 1.3, as its answer below.
ACCEPTED = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
HANDSHAKE = {
    "host": "server.example.com",
    "upgrade": "websocket",
    "connection": "keep-alive, Upgrade",
    "sec-websocket-key": KEY,
    "sec-websocket-version": "13",
}
MASK = bytes.fromhex("37fa213d")  # Section 5.7.
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(
    opcode: int, payload: bytes = b"", *, is_last: bool = True, mask: bytes | None = MASK
) -> bytes:
    """Return a client's frame."""
    first, bit = opcode | (0x80 if is_last else 0), 0x80 if mask is not None else 0
    size = len(payload)
    if size < 126:
        start = struct.pack("!BB", first, bit | size)
    elif size < 65_536:
        start = struct.pack("!BBH", first, bit | 126, size)
    else:
        start = struct.pack("!BBQ", first, bit | 127, size)
    if mask is None:
        return start + payload
    return start + mask + bytes(byte ^ mask[at & 3] for at, byte in enumerate(payload))


def stream(*, accepts_text: bool = True, frame_bytes_max: int = 100_000) -> FrameStream:
    return FrameStream(accepts_text=accepts_text, frame_bytes_max=frame_bytes_max)


def feed(made: FrameStream, data: bytes, cuts: Iterable[int] = ()) -> bytes:
    found, at = b"", 0
    for cut in [*cuts, len(data)]:
        found += b"".join(made.received(data[at:cut]))
        at = cut
    return found


def closed_with(made: FrameStream) -> tuple[int, str]:
    """Return code and reason of the close frame that was sent."""
    assert made.is_over
    (sent,) = made.take_output()
    data = bytes(sent)
    assert data[0] == 0x80 | CLOSE
    assert data[1] == len(data) - 2
    return int.from_bytes(data[2:4], "big"), data[4:].decode()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (None, None),
        ("mqtt", "mqtt"),
        ("mqttv3.1", "mqttv3.1"),
        ("mqttv3.1, mqtt", "mqtt"),
        ("x, mqttv3.1", "mqttv3.1"),
        ("x", None),
    ],
)
def test_a_handshake_is_answered(offered: str | None, chosen: str | None) -> None:
    headers = HANDSHAKE | {"sec-websocket-extensions": "permessage-deflate"}
    if offered is not None:
        headers["sec-websocket-protocol"] = offered
    found = answer("GET", "HTTP/1.1", headers, ("mqtt", "mqttv3.1"))
    expected = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": ACCEPTED,
    }
    if chosen is not None:
        expected["Sec-WebSocket-Protocol"] = chosen
    assert (found.status, dict(found.headers)) == (101, expected)


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"upgrade": "h2c"}, 426),
        ({"connection": "keep-alive"}, 426),
        ({"sec-websocket-version": "8"}, 400),
        ({"sec-websocket-key": "short"}, 400),
        ({"sec-websocket-key": f"{KEY}, {KEY}"}, 400),
        ({"sec-websocket-protocol": "mqtt,\x00"}, 400),
    ],
)
def test_another_handshake_is_refused(changed: dict[str, str], status: int) -> None:
    found = answer("GET", "HTTP/1.1", HANDSHAKE | changed, ("mqtt",))
    assert found.status == status
    assert ("Sec-WebSocket-Version", "13") in found.headers
    assert "not a WebSocket handshake" in found.text


def test_other_methods_and_versions_are_refused() -> None:
    assert answer("POST", "HTTP/1.1", HANDSHAKE, ()).status == 405
    assert answer("GET", "HTTP/1.0", HANDSHAKE, ()).status == 505


def test_the_examples_of_the_specification() -> None:
    made = stream()
    hello = bytes.fromhex("818537fa213d7f9f4d5158")
    assert feed(made, hello, range(1, len(hello))) == b"Hello"
    assert made.speaks_text
    assert frame(TEXT, b"Hello") == hello
    assert feed(made, frame(PING, b"Hello")) == b""
    assert made.take_output() == [bytes.fromhex("8a0548656c6c6f")]
    assert head(5, is_text=True) + b"Hello" == bytes.fromhex("810548656c6c6f")
    assert head(256, is_text=False) == bytes.fromhex("827e0100")
    assert head(65_536, is_text=False) == bytes.fromhex("827f0000000000010000")


def test_fragments_with_control_frames_between_them() -> None:
    made = stream()
    data = (
        frame(BINARY, b"one ", is_last=False)
        + frame(PING, b"?")
        + frame(CONT, b"", is_last=False)
        + frame(PONG, b"unasked")
        + frame(CONT, b"two")
        + frame(BINARY, b"!")
    )
    for cut in range(len(data)):
        made = stream()
        assert feed(made, data, [cut]) == b"one two!"
        assert made.take_output() == [b"\x8a\x01?"]
        assert (made.frames, made.is_over, made.unfinished_bytes) == (6, False, 0)


def test_a_frame_that_is_not_whole_is_counted() -> None:
    made = stream()
    whole = frame(BINARY, bytes(1_000))
    assert feed(made, whole[:-1]) == b""
    assert made.unfinished_bytes == 999
    assert feed(made, whole[-1:]) == bytes(1_000)
    assert made.unfinished_bytes == 0


@pytest.mark.parametrize("code", [b"", b"\x03\xe8", b"\x03\xe9going"])
def test_a_close_is_echoed_after_what_came_before_it(code: bytes) -> None:
    made = stream()
    assert feed(made, frame(BINARY, b"last") + frame(CLOSE, code) + frame(BINARY, b"more")) == (
        b"last"
    )
    assert made.take_output() == [bytes((0x80 | CLOSE, len(code))) + code]
    assert made.is_over
    assert made.failure is None
    assert feed(made, frame(BINARY, b"more")) == b""


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(BINARY, b"x", mask=None), 1002),  # A client masks.
        (b"\xc2\x80" + MASK, 1002),  # A reserved bit: no extension was agreed on.
        (frame(3), 1002),
        (frame(11), 1002),
        (frame(CONT, b"x"), 1002),
        (frame(BINARY, is_last=False) + frame(BINARY), 1002),
        (frame(PING, is_last=False), 1002),
        (frame(PING, bytes(126)), 1002),
        (frame(CLOSE, b"\x03"), 1002),
        (frame(CLOSE, b"\x03\xec"), 1002),  # 1004 is reserved.
        (frame(CLOSE, b"\x03\xe8\xff"), 1007),
        (frame(TEXT, b"\xff"), 1007),
        (frame(TEXT, "é".encode()[:1]), 1007),
        (frame(TEXT, "é".encode()[:1], is_last=False) + frame(CONT, b"x"), 1007),
        (b"\x82\xff" + (100_001).to_bytes(8, "big"), 1009),
        (b"\x82\xff" + (1 << 63).to_bytes(8, "big"), 1009),
    ],
)
def test_what_is_wrong_ends_it_with_a_code(data: bytes, code: int) -> None:
    for cut in range(len(data)):
        made = stream()
        feed(made, frame(BINARY, b"good") + data, [cut])
        assert closed_with(made)[0] == code
        assert made.failure is not None
        assert made.unfinished_bytes == 0
        assert feed(made, frame(BINARY, b"more")) == b""
        assert made.take_output() == []


def test_texts_are_refused_where_messages_are_binary() -> None:
    made = stream(accepts_text=False)
    assert feed(made, frame(BINARY, b"a") + frame(TEXT, b"b") + frame(BINARY, b"c")) == b"a"
    assert closed_with(made) == (1003, "messages are binary here")


def test_a_text_may_be_cut_inside_of_a_character() -> None:
    made = stream()
    text = "größer".encode()
    for at in range(len(text)):
        data = frame(TEXT, text[:at], is_last=False) + frame(CONT, text[at:])
        assert feed(made, data) == text


def test_larger_frames_are_accepted_when_allowed() -> None:
    made = stream(frame_bytes_max=10)
    made.allow(11)
    assert feed(made, frame(BINARY, bytes(11))) == bytes(11)
    feed(made, frame(BINARY, bytes(12)))
    assert closed_with(made)[0] == 1009


def test_our_own_end() -> None:
    made = stream()
    made.close()
    assert closed_with(made) == (1000, "")
    made.close(1001)
    assert made.take_output() == []


_FRAMES = st.lists(
    st.tuples(st.sampled_from([BINARY, PING, PONG]), st.binary(max_size=100)), max_size=8
)


@given(_FRAMES, st.lists(st.integers(0, 400), max_size=5))
def test_any_cut_is_read_alike(frames: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(frame(*each) for each in frames)
    expected = b"".join(payload for opcode, payload in frames if opcode == BINARY)
    made = stream()
    assert feed(made, data, sorted(min(cut, len(data)) for cut in cuts)) == expected
    pongs = b"".join(b"\x8a" + bytes((len(each),)) + each for code, each in frames if code == PING)
    assert b"".join(made.take_output()) == pongs


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=5))
def test_any_bytes_are_read_or_refused(data: bytes, cuts: list[int]) -> None:
    made, whole = stream(), stream()
    first = feed(made, data, sorted(min(cut, len(data)) for cut in cuts))
    assert first == feed(whole, data)
    assert made.is_over == whole.is_over
