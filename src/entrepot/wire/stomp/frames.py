"""STOMP's frames, versions 1.0 to 1.2: turns a stream of bytes into events, and builds frames.

A frame is a command, headers and a body, and ends with a NUL. A body may contain NULs if the
header `content-length` says how long it is. Between frames there may be ends of lines, which
are heart-beats. Lines may end with LF or CR LF in every version, because terminals send the
latter.

The versions differ in how headers are written. 1.0 escapes nothing, and spaces before a value do
not count. 1.1 escapes line feeds, colons and backslashes, 1.2 carriage returns, too; `CONNECT`
and `CONNECTED` are never escaped. The version is agreed on by the first frame, so the reader
decodes those after it correctly even if they come in the same read. They are decoded when the
login is over, because until then a peer may send little. Of several headers with the
same name the first one counts.

Frames of `SEND` that come together are one event, because they are published together. A mistake
is the last event: frames before it are served first, and nothing after it is read.

`FrameReader` never allocates memory for bytes that were only announced, and never returns memory
that a later read overwrites.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame, PeerError
from entrepot.core.limits import KIB
from entrepot.wire.stomp import limits as stomp_limits

V1_0, V1_1, V1_2 = "1.0", "1.1", "1.2"
VERSIONS = (V1_0, V1_1, V1_2)

CONNECT, STOMP, DISCONNECT = "CONNECT", "STOMP", "DISCONNECT"
SEND, SUBSCRIBE, UNSUBSCRIBE, ACK, NACK = "SEND", "SUBSCRIBE", "UNSUBSCRIBE", "ACK", "NACK"
BEGIN, COMMIT, ABORT = "BEGIN", "COMMIT", "ABORT"
CONNECTED, MESSAGE, RECEIPT, ERROR = "CONNECTED", "MESSAGE", "RECEIPT", "ERROR"
CLIENT_COMMANDS = (
    *(CONNECT, STOMP, SEND, SUBSCRIBE, UNSUBSCRIBE),
    *(ACK, NACK, BEGIN, COMMIT, ABORT, DISCONNECT),
)
SERVER_COMMANDS = (CONNECTED, MESSAGE, RECEIPT, ERROR)

AREA_BYTES_MIN = 4 * KIB  # The buffer of an idle connection.
AREA_BYTES_MAX = 64 * KIB  # Read at once from a busy connection: two thousand small frames.

_HELD_BYTES_MAX = 2 * AREA_BYTES_MAX  # After the first frame, while its login is not over.

HEART_BEAT = b"\n"
_NUL = 0
# A receipt without escapes, spaces and the end of a line that some write with CR.
_PLAIN_RECEIPT = re.compile(rb"\nreceipt:([!-\[\]-~]+)(?=\n|\Z)")
_HEAD_END = re.compile(rb"\n\r?\n")
_HEART_BEATS = re.compile(rb"[\r\n]+")
_NO_ESCAPES = (CONNECT, CONNECTED)
_DIGITS = re.compile("[0-9]{1,10}", re.ASCII)
_HEART_BEAT = re.compile("([0-9]{1,10}),([0-9]{1,10})", re.ASCII)
_BACKSLASH = re.compile(r"\\(.?)", re.DOTALL)
_PLAIN_TEXTS: dict[str, str] = {"\\": "\\", "n": "\n", "c": ":"}
_PLAIN_OF = {V1_1: _PLAIN_TEXTS, V1_2: {**_PLAIN_TEXTS, "r": "\r"}}
_ESCAPED_1_1 = str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c"})
_ESCAPED_1_2 = str.maketrans({"\\": "\\\\", "\n": "\\n", ":": "\\c", "\r": "\\r"})

# Headers without which a frame has no meaning.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    SEND: ("destination",),
    SUBSCRIBE: ("destination",),
    BEGIN: ("transaction",),
    COMMIT: ("transaction",),
    ABORT: ("transaction",),
}
_REQUIRED_OF: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    V1_0: {**_REQUIRED, ACK: ("message-id",), NACK: ("message-id",)},
    V1_1: {
        **_REQUIRED,
        SUBSCRIBE: ("destination", "id"),
        UNSUBSCRIBE: ("id",),
        ACK: ("message-id", "subscription"),
        NACK: ("message-id", "subscription"),
    },
    V1_2: {
        **_REQUIRED,
        SUBSCRIBE: ("destination", "id"),
        UNSUBSCRIBE: ("id",),
        ACK: ("id",),
        NACK: ("id",),
    },
}

Headers = Mapping[str, str]


class Frame(NamedTuple):
    command: str
    headers: Headers  # Frames with the same head share one object.
    body: bytes = b""


class Sends(NamedTuple):
    """Frames of `SEND` that came together."""

    frames: list[Frame]


Event = Frame | Sends | PeerError


# Versions and heart-beats.


def negotiate(headers: Headers) -> str | None:
    """Return the highest version that the client and we speak; None if there is none.

    A client that does not say which versions it speaks speaks 1.0.
    """
    accepted = [each.strip() for each in headers.get("accept-version", V1_0).split(",")]
    return next((each for each in reversed(VERSIONS) if each in accepted), None)


def read_heart_beat(headers: Headers) -> tuple[int, int]:
    """Return how often a peer can send heart-beats, and how often it wants them, in milliseconds.

    0 means: it cannot, or does not want any. Raises PeerError.
    """
    text = headers.get("heart-beat", "0,0")
    found = _HEART_BEAT.fullmatch(text.replace(" ", ""))
    if found is None:
        raise PeerError(f"heart-beat:{text[:100]} is not two numbers of milliseconds")
    return int(found[1]), int(found[2])


def check_headers(frame: Frame, version: str) -> None:
    """Raise PeerError if the frame lacks a header that its command needs."""
    for name in _REQUIRED_OF[version].get(frame.command, ()):
        if name not in frame.headers:
            raise PeerError(f"{frame.command} needs the header {name}")
    if frame.command == UNSUBSCRIBE and not frame.headers.keys() & {"id", "destination"}:
        raise PeerError(f"{UNSUBSCRIBE} needs the header id or destination")


# Reading.


class FrameReader:
    """Turns bytes into events. After a mistake, which is the last event, there are no more."""

    def __init__(
        self,
        *,
        body_bytes_max: int | None = None,
        commands: Collection[str] = CLIENT_COMMANDS,
    ) -> None:
        """Without `body_bytes_max`, only one small frame is read before `allow` is called."""
        self.version = V1_0  # Until the first frame says more.
        self._awaits_login = body_bytes_max is None
        self._body_bytes_max = (
            limits.LOGIN_FRAME_BYTES_MAX if body_bytes_max is None else body_bytes_max
        )
        self._commands = commands
        self._has_begun = False  # Whether the first frame is over.
        self._area = bytearray(AREA_BYTES_MIN)
        self._filled = 0  # Bytes in the area; fewer than it holds.
        self._taken = 0  # Bytes that were in the area and are processed.
        self._searched = 0  # Bytes of the area in which the end of the frame's part is not.
        self._needed = 1  # With fewer bytes than this in the area no frame is complete.
        self._head: _Head | None = None  # Of the frame at the start of the area, once it is known.
        self._heads: dict[bytes, _Head] = {}  # Heads of earlier frames.
        self._is_over = False

    def allow(self, body_bytes_max: int) -> None:
        """Set how long bodies may be from now on. `received(0)` returns what came meanwhile."""
        self._body_bytes_max = body_bytes_max
        self._awaits_login = False

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return self._filled

    @property
    def unfinished_number(self) -> int:
        """Return a number that identifies the incomplete frame."""
        return self._taken

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty.

        There is room for the rest of the frame, but behind it for not more than AREA_BYTES_MAX.
        """
        end = max(self._filled + AREA_BYTES_MAX, self._needed)
        return memoryview(self._area)[self._filled : end]

    def received(self, size: int) -> list[Event]:
        """Return the complete events. The last may be a PeerError: then there are no more."""
        filled = self._filled + size
        events: list[Event] = []
        taken = 0
        if self._is_over:
            taken = filled
        elif filled >= self._needed:
            try:
                taken = self._take(filled, events)
            except PeerError as error:
                events.append(error)
                self._is_over = True
                taken = filled
        left = filled - taken
        if taken and left:
            self._area[:left] = self._area[taken:filled]
        self._taken += taken
        self._filled = left
        self._searched = max(0, self._searched - taken)
        self._fit(filled)
        return events

    def _fit(self, filled: int) -> None:
        """Make the area larger if it was full, and smaller if little came."""
        room, left = len(self._area), self._filled
        if filled == room:
            head = self._head
            is_known = head is not None and head.content_length is not None
            size = max(AREA_BYTES_MAX, min(2 * left, self._needed) if is_known else 2 * left)
        elif left == 0 and (room > AREA_BYTES_MAX or filled < AREA_BYTES_MIN < room):
            size = AREA_BYTES_MIN
        else:
            return
        if size != room:
            area = bytearray(size)
            area[:left] = memoryview(self._area)[:left]
            self._area = area

    def _take(self, end: int, events: list[Event]) -> int:
        """Add the frames that are complete; return how many bytes are processed."""
        start = 0
        area = self._area
        while True:
            if self._has_begun and self._awaits_login and self._head is None:
                if end - start > _HELD_BYTES_MAX:
                    raise MalformedFrame("too much before the login is over")
                self._searched, self._needed = start, 1
                return start
            if self._head is None:
                beats = _HEART_BEATS.match(area, start, end)
                start = start if beats is None else beats.end()
            if start == end:
                self._searched, self._needed = start, 1
                return start
            if self._head is None and not self._find_head(start, end):
                self._needed = end - start + 1
                return start
            head = self._head
            assert head is not None
            body_end = self._find_body_end(start, head, end)
            if body_end is None:
                return start
            with memoryview(area) as view:
                body = bytes(view[start + head.size : body_end])
            self._add(Frame(head.command, head.headers, body), events)
            self._head = None
            start = self._searched = body_end + 1

    def _add(self, frame: Frame, events: list[Event]) -> None:
        if frame.command != SEND:
            events.append(frame)
        elif events and isinstance(last := events[-1], Sends):
            last.frames.append(frame)
        else:
            events.append(Sends([frame]))

    def _find_head(self, start: int, end: int) -> bool:
        """Return whether the head of the frame is complete, and decode it. Raises PeerError."""
        from_ = max(start, self._searched - 2)
        found = _HEAD_END.search(self._area, from_, end)
        head_end = end if found is None else found.start()
        if head_end - start > stomp_limits.HEAD_BYTES_MAX:
            raise MalformedFrame(f"a head of more than {stomp_limits.HEAD_BYTES_MAX} bytes")
        if self._area.find(_NUL, from_, head_end) >= 0:
            raise MalformedFrame("a frame without an empty line after its headers")
        if found is None:
            self._searched = end
            return False
        with memoryview(self._area) as view:
            block = bytes(view[start:head_end])
        head, size = self._heads.get(block), found.end() - start
        if head is None or head.size != size:  # The empty line may end with LF or CR LF.
            head = self._with_receipt(block, size) or self._decode(block, size)
        self._head, self._searched = head, found.end()
        return True

    def _with_receipt(self, block: bytes, size: int) -> _Head | None:
        """Return the decoded head if it has a plain receipt; None if not. Raises PeerError.

        A client that waits for each receipt numbers them: all else in its heads is the same.
        """
        if not self._has_begun or len(block) > stomp_limits.HEAD_CACHED_BYTES_MAX:
            return None
        found = _PLAIN_RECEIPT.search(block)
        if found is None:
            return None
        rest = block[: found.start()] + block[found.end() :]
        known = self._heads.get(rest) or self._decode(rest, 0)
        if "receipt" in known.headers:  # It has two, of which the first counts.
            return None
        headers = {**known.headers, "receipt": found[1].decode()}
        return _Head(known.command, headers, size, known.content_length)

    def _decode(self, block: bytes, size: int) -> _Head:
        try:
            text = block.decode()
        except UnicodeDecodeError:
            raise MalformedFrame("a head that is not UTF-8") from None
        command, *lines = text.split("\n")
        command = command.removesuffix("\r")
        if command not in self._commands:
            raise MalformedFrame(f"unknown command {command[:100]!r}")
        if len(lines) > stomp_limits.HEADERS_MAX:
            raise MalformedFrame(f"more than {stomp_limits.HEADERS_MAX} headers")
        if not self._has_begun:
            self._begin(command, lines)
        headers = _decoded(command, lines, self.version)
        head = _Head(command, headers, size, _content_length(headers))
        # One with a receipt has an id that does not come again: see `_with_receipt`.
        if len(block) <= stomp_limits.HEAD_CACHED_BYTES_MAX and "receipt" not in headers:
            if len(self._heads) >= stomp_limits.HEADS_CACHED_MAX:
                self._heads.clear()
            self._heads[block] = head
        return head

    def _begin(self, command: str, lines: list[str]) -> None:
        """Choose the version by the first frame."""
        self._has_begun = True
        plain = _decoded(CONNECT, lines, V1_0)
        if command == CONNECTED:
            self.version = plain.get("version", V1_0)
        elif command in (CONNECT, STOMP):
            self.version = negotiate(plain) or V1_0

    def _find_body_end(self, start: int, head: _Head, end: int) -> int | None:
        """Return where the NUL after the body is. None means: it is not there yet.

        Raises PeerError.
        """
        body_start, length = start + head.size, head.content_length
        if length is not None:
            self._check_size(length)
            if end <= body_start + length:
                self._needed = head.size + length + 1
                return None
            if self._area[body_start + length] != _NUL:
                raise MalformedFrame("a body that does not end where content-length says")
            return body_start + length
        found = self._area.find(_NUL, max(body_start, self._searched), end)
        self._check_size((end if found < 0 else found) - body_start)
        if found < 0:
            self._searched, self._needed = end, end - start + 1
            return None
        return found

    def _check_size(self, size: int) -> None:
        if size > self._body_bytes_max:
            raise MalformedFrame(f"a body of more than {self._body_bytes_max} bytes")


class _Head(NamedTuple):
    """What is before a frame's body, decoded."""

    command: str
    headers: Headers
    size: int  # Bytes, with the empty line.
    content_length: int | None


def _decoded(command: str, lines: Iterable[str], version: str) -> dict[str, str]:
    """Return the headers in these lines. Raises PeerError."""
    headers: dict[str, str] = {}
    escapes = None if command in _NO_ESCAPES else _PLAIN_OF.get(version)
    for line in lines:
        name, colon, value = line.removesuffix("\r").partition(":")
        if not colon or not name:
            raise MalformedFrame(f"not a header: {line[:100]!r}")
        if escapes is not None:
            if "\\" in line:
                name, value = _unescaped(name, escapes), _unescaped(value, escapes)
        elif version == V1_0:
            value = value.lstrip(" ")
        headers.setdefault(name, value)
    return headers


def _unescaped(text: str, escapes: Mapping[str, str]) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[1] not in escapes:
            raise MalformedFrame(f"unknown escape sequence {found[0]!r} in a header")
        return escapes[found[1]]

    return _BACKSLASH.sub(plain, text)


def _content_length(headers: Headers) -> int | None:
    text = headers.get("content-length")
    if text is None:
        return None
    if not _DIGITS.fullmatch(text.strip(" ")):
        raise MalformedFrame(f"content-length:{text[:100]} is not a number of bytes")
    return int(text)


# Writing.


def header_line(name: str, value: str, version: str, *, is_escaped: bool = True) -> bytes:
    """Return a header with its end of line; nothing if the version cannot express it.

    1.0 has no escapes, and no version has one for NUL: what cannot be written must not become
    another header, or another frame.
    """
    if version == V1_0 or not is_escaped:
        if "\n" in name or ":" in name or "\n" in value:
            return b""
    else:
        table = _ESCAPED_1_1 if version == V1_1 else _ESCAPED_1_2
        name, value = name.translate(table), value.translate(table)
    line = f"{name}:{value}\n"
    if not name or "\0" in line or line.endswith("\r\n"):
        return b""
    return line.encode("utf-8", "replace")


def receipt_bytes(receipt: str, version: str) -> bytes:
    """Return a frame of RECEIPT."""
    if receipt.isalnum():  # Mostly it is a number, which no version escapes.
        return f"RECEIPT\nreceipt-id:{receipt}\n\n\0".encode()
    return b"RECEIPT\n%s\n\0" % header_line("receipt-id", receipt, version)


def frame_bytes(
    command: str, headers: Iterable[tuple[str, str]], body: bytes = b"", version: str = V1_2
) -> bytes:
    """Return a frame. A body gets a `content-length`, unless the headers have one."""
    is_escaped = command not in _NO_ESCAPES
    pieces = [command.encode(), b"\n"]
    names = []
    for name, value in headers:
        names.append(name)
        pieces.append(header_line(name, value, version, is_escaped=is_escaped))
    if body and "content-length" not in names:
        pieces.append(b"content-length:%d\n" % len(body))
    pieces += (b"\n", body, b"\0")
    return b"".join(pieces)
