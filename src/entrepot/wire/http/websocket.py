"""WebSocket (RFC 6455), as a stream of bytes in each direction.

The protocols that are spoken over it frame their packets themselves, and may begin a packet in one
message and end it in another. So messages are not put together: the payload of a frame is passed
on as soon as the frame is whole, and how large a packet may be is for its protocol to say. Frames,
control frames and the end of a connection are read by the library `websockets`; what it leaves to
its caller is here: that texts are UTF-8, and which kind of message is accepted.

No extension is agreed on: a compressed message may be a thousand times as large as it looks.
"""

from __future__ import annotations

import codecs
import logging
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHeader
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request as Handshake
from websockets.protocol import OPEN, SERVER, Protocol
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from entrepot.core.ports import Buffer

log = logging.getLogger("entrepot.websocket")

_SHORT_MAX, _MEDIUM_MAX = 125, 0xFFFF
_FIN = 0x80
_HEADERS = ("Upgrade", "Connection", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol")
_READ = (
    "upgrade",
    "connection",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-protocol",
)
_MISTAKES = (
    CloseCode.PROTOCOL_ERROR,
    CloseCode.UNSUPPORTED_DATA,
    CloseCode.INVALID_DATA,
    CloseCode.MESSAGE_TOO_BIG,
)
_WANTED = (("Sec-WebSocket-Version", "13"), ("Upgrade", "websocket"))


class Answer(NamedTuple):
    """The answer to a request to upgrade: 101, or why not."""

    status: int
    headers: tuple[tuple[str, str], ...]
    text: str = ""


def answer(
    method: str, version: str, headers: Mapping[str, str], subprotocols: Sequence[str]
) -> Answer:
    """Return the answer to a request. A client that names no subprotocol is accepted without."""
    given = Headers()
    try:
        for name in _READ:
            if name in headers:
                given[name] = headers[name]
    except InvalidHeader as error:
        return Answer(400, _WANTED, f"not a WebSocket handshake: {error}")
    server = ServerProtocol(
        subprotocols=[*map(Subprotocol, subprotocols)],
        select_subprotocol=_select,
        logger=log,
    )
    found = server.accept(Handshake("/", given, method, version))
    if found.status_code != 101:
        text = f"not a WebSocket handshake: {server.handshake_exc}"
        return Answer(found.status_code, _WANTED, text)
    chosen = tuple((name, found.headers[name]) for name in _HEADERS if name in found.headers)
    return Answer(101, chosen)


def _select(server: ServerProtocol, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Return the best of ours that the client offers; None if there is none."""
    for each in server.available_subprotocols or ():
        if each in offered:
            return each
    return None


def head(size: int, *, is_text: bool) -> bytes:
    """Return what precedes a message of so many bytes that a server sends in one frame."""
    first = _FIN | (Opcode.TEXT if is_text else Opcode.BINARY)
    if size <= _SHORT_MAX:
        return bytes((first, size))
    if size <= _MEDIUM_MAX:
        return struct.pack("!BBH", first, 126, size)
    return struct.pack("!BBQ", first, 127, size)


class FrameStream:
    """A server's side of an open connection: frames in, the bytes of their payload out.

    After `is_over` nothing more comes out. What it has to say to the peer (pongs, and the close
    frame) is taken with `take_output`.
    """

    __slots__ = ("_accepts_text", "_protocol", "_text", "frames", "is_over", "speaks_text")

    def __init__(self, *, accepts_text: bool, frame_bytes_max: int) -> None:
        # No limit for messages, which are not kept, and one for frames.
        self._protocol = Protocol(SERVER, state=OPEN, max_size=(None, frame_bytes_max), logger=log)
        self._accepts_text = accepts_text
        self._text: codecs.IncrementalDecoder | None = None  # While a text is incomplete.
        self.speaks_text = False  # Whether the latest message is a text.
        self.frames = 0  # That were whole.
        self.is_over = False  # A close frame was sent or received.

    @property
    def unfinished_bytes(self) -> int:
        """Return how many bytes of an incomplete frame are held."""
        return len(self._protocol.reader.buffer)

    def received(self, data: bytes) -> list[Buffer]:
        """Return the payload of all frames that are now whole."""
        protocol = self._protocol
        found: list[Buffer] = []
        if self.is_over:
            return found
        protocol.receive_data(data)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            self.frames += 1
            opcode = frame.opcode
            if opcode is Opcode.CLOSE:
                break
            if opcode is Opcode.PING or opcode is Opcode.PONG:
                continue
            if not self._may_come(opcode, frame.data, frame.fin):
                break
            if frame.data:
                found.append(frame.data)
        if protocol.eof_sent or protocol.close_sent is not None:
            self.is_over = True
        return found

    def _may_come(self, opcode: Opcode, data: Buffer, is_last: bool) -> bool:
        """Check a frame of data; close the connection if it must not come."""
        if opcode is not Opcode.CONT:
            self.speaks_text = opcode is Opcode.TEXT
            if self.speaks_text:
                if not self._accepts_text:
                    self.close(CloseCode.UNSUPPORTED_DATA, "messages are binary here")
                    return False
                self._text = codecs.getincrementaldecoder("utf-8")()
        if self._text is not None:
            try:
                self._text.decode(data, is_last)
            except UnicodeDecodeError:
                self.close(CloseCode.INVALID_DATA, "a text that is not UTF-8")
                return False
            if is_last:
                self._text = None
        return True

    def close(self, code: int = CloseCode.NORMAL_CLOSURE, reason: str = "") -> None:
        """Say that the connection is over, with a close code; nothing more is read."""
        if not self.is_over:
            self.is_over = True
            self._protocol.fail(code, reason)

    @property
    def failure(self) -> str | None:
        """Return what the peer did wrong; None if it is not to blame."""
        sent, received = self._protocol.close_sent, self._protocol.close_rcvd
        is_mistake = sent is not None and received is None and sent.code in _MISTAKES
        return f"{sent}" if is_mistake else None

    def allow(self, frame_bytes_max: int) -> None:
        """Accept frames of this size from now on."""
        self._protocol.max_fragment_size = frame_bytes_max

    def take_output(self) -> list[Buffer]:
        """Return what is to be sent, and forget it."""
        return [each for each in self._protocol.data_to_send() if each]
