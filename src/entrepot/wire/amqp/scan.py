"""From bytes to events: methods, and complete messages in runs.

A message is three frames or more: a method, a header, and the body in pieces. Frames of
several channels may interleave, and a read may end anywhere. The scanner takes a block
of bytes, gives the events in it in their order and says how much of the block that was;
contents that are not whole yet it keeps, by channel.

Most of what a busy broker reads is `basic.publish` after `basic.publish` to the same
exchange, and `basic.ack` after `basic.ack`. Those come out as runs: a publish whose method
frame equals the one before costs a comparison, one unpacking and two slices, and nothing
in it is decoded; those that have the same size and properties, too, are cut in one go. A
method frame that was seen before on this connection is not decoded either. A message's
properties stay the bytes they are, unchecked; whoever takes the message looks into them with
`properties`.

A body is always one piece of memory. A small one is bytes of its own, for they are
cheaper than a reference to them; a larger one that came in one frame refers to the
block; one that came in several frames is put together as it comes. Nothing is allocated
for a size that was only announced.

The scanner never raises. An error is an `AmqpError` among the events, and the last of
them unless it closes only a channel. Of a channel that is being closed, what was on its
way is passed over, as the specification asks: until the peer's `close-ok`.
"""

from collections.abc import Callable
from struct import Struct, iter_unpack
from typing import Any, NamedTuple

from entrepot.core.message import OPAQUE, Envelope, Format, Message
from entrepot.core.ports import Buffer
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.methods import METHODS, basic
from entrepot.wire.amqp.methods.channel import Close, CloseOk
from entrepot.wire.amqp.publish_method import PublishMethod, PublishTarget, read_publish_method

METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
SMALL_BYTES = 512  # Up to this size a copy costs less than a reference.
_ALIKE_BYTES_MAX = 4_096  # The same, for many messages of one size.

FRAME_HEAD = Struct(">BHI")  # Type, channel, size of the payload.
FRAME_HEAD_BYTES = FRAME_HEAD.size
_ID = Struct(">HH")
_PUBLISH, _ACK = _ID.pack(*basic.Publish.ID), _ID.pack(*basic.Ack.ID)
_CLOSE, _CLOSE_OK = _ID.pack(*Close.ID), _ID.pack(*CloseOk.ID)
_CONTENT_METHODS = tuple(_ID.pack(*each.ID) for each in METHODS.values() if each.HAS_CONTENT)

_CONTENT_HEADER = Struct(">HHQ")  # Class, weight, size of the body; then the properties.
_PROPERTIES_BYTES_MIN = 2  # Flags.
_HEADER_BYTES_MIN = _CONTENT_HEADER.size + _PROPERTIES_BYTES_MIN
_BASIC = basic.Publish.ID[0]
_HEADER_LEAD = Struct(">BHIHH")  # A header frame up to the size of the body.
_ACK_FRAME = Struct(">11sQ2s")  # What precedes the delivery tag; the tag; bits and end.
_ACK_PAYLOAD_BYTES = _ACK_FRAME.size - FRAME_HEAD_BYTES - 1
_UNFINISHED_BYTES = 512  # Memory for an incomplete message, besides its content.
_LAYOUTS_MAX = 1_000  # Sizes of properties whose layouts are remembered.

# What header frames of one channel and size share: their bytes up to the size of the body; the
# bytes from their end to the size of the body frame; a function that unpacks the size of the
# body, the properties, those bytes and the size of the body frame; the offset of the body.
_Shape = tuple[bytes, bytes, Callable[..., Any], int]
_SHORTEST = Struct(f">Q{_PROPERTIES_BYTES_MIN}s4sI")
_NO_SHAPE: _Shape = (  # Matches no frame.
    b"\xff" * _HEADER_LEAD.size,
    b"",
    _SHORTEST.unpack_from,
    _HEADER_LEAD.size + _SHORTEST.size,
)


class Publishes(NamedTuple):
    """Messages published one after the other, on one channel, to one exchange."""

    channel: int
    target: PublishTarget
    messages: list[Message]


class Acks(NamedTuple):
    """Consecutive `basic.ack` on one channel."""

    channel: int
    is_multiple: bool  # Whether each acknowledges all tags before it, too.
    tags: list[int]


class MethodFrame(NamedTuple):
    """Any other method without content, for `methods.decode`."""

    channel: int
    payload: bytes


class Content(NamedTuple):
    """Any other method with content, which only servers send."""

    channel: int
    payload: bytes  # The method's.
    properties: bytes
    body: Buffer


class Heartbeat(NamedTuple):
    """A heartbeat. Any other frame counts as one, too."""


Event = Publishes | Acks | MethodFrame | Content | Heartbeat | AmqpError


class _Unfinished:
    """A message that is incomplete."""

    __slots__ = ("body", "held", "left", "number", "payload", "properties", "publish_method")

    def __init__(self, number: int, payload: bytes, publish_method: PublishMethod | None) -> None:
        self.number = number  # Unique in the connection, and below 0.
        self.payload = payload
        self.publish_method = publish_method  # None means: not a publish.
        self.properties: bytes | None = None  # None means: the header has not come.
        self.left = 0  # Bytes of the body that have not come.
        self.body: bytearray | None = None  # Created for a body of several frames.
        self.held = 0  # Bytes counted for it in `unfinished_bytes`.


class Scanner:
    __slots__ = (
        "_body_bytes_max",
        "_closing",
        "_format",
        "_layouts",
        "_message_bytes_max",
        "_opened",
        "_payload_bytes_max",
        "_publish_methods",
        "_shape",
        "_shape_channel",
        "_unfinished",
        "unfinished_bytes",
    )

    def __init__(
        self,
        payload_bytes_max: int,
        message_bytes_max: int,
        format: Format = OPAQUE,
    ) -> None:
        """The format is that of the envelopes of what is published."""
        self._format = format
        self._message_bytes_max = message_bytes_max
        self.limit_payload(payload_bytes_max)
        self._closing: dict[int, None] = {}  # Channels we closed, until close-ok.
        self._unfinished: dict[int, _Unfinished] = {}  # By channel; none is closing.
        self.unfinished_bytes = 0  # Held by all incomplete messages.
        self._opened = 0  # How many incomplete messages there were.
        self._publish_methods: dict[bytes, PublishMethod] = {}  # By the bytes of the method frame.
        self._layouts: dict[int, Struct] = {}  # By size of the content header.

    def limit_payload(self, bytes_max: int) -> None:
        """Refuse frames with a larger payload from now on."""
        self._payload_bytes_max = bytes_max
        self._shape_channel, self._shape = 0, _NO_SHAPE  # Of the last header frame.
        self._body_bytes_max = min(bytes_max, self._message_bytes_max)

    def close_channel(self, channel: int) -> None:
        """Ignore a channel that we close, until the peer's close-ok."""
        self._drop(channel)
        self._closing[channel] = None

    @property
    def unfinished_number(self) -> int:
        """Return the number of the oldest incomplete message. 0 means: there is none."""
        return next((each.number for each in self._unfinished.values()), 0)

    def scan(self, block: bytes) -> tuple[list[Event], int]:
        """Return the events in the block, and where the first incomplete frame begins."""
        events: list[Event] = []
        position = 0
        end = len(block)
        try:
            while end - position >= FRAME_HEAD_BYTES:
                kind, channel, size = FRAME_HEAD.unpack_from(block, position)
                if size > self._payload_bytes_max:
                    raise _frame_error(
                        f"a frame of {size} bytes; {self._payload_bytes_max} are taken"
                    )
                stop = position + FRAME_HEAD_BYTES + size
                if stop >= end:
                    break
                if block[stop] != FRAME_END:
                    raise _frame_error(f"a frame that ends with {block[stop]}, not {FRAME_END}")
                if kind == METHOD:
                    position = self._method(block, position, stop, channel, events)
                    continue
                start = position + FRAME_HEAD_BYTES
                if kind == BODY:
                    self._body(block, start, stop, channel, events)
                elif kind == HEADER:
                    self._header(block, start, stop, channel, events)
                elif kind == HEARTBEAT:
                    events.append(_heartbeat(channel, size))
                else:
                    raise _frame_error(f"a frame of unknown type {kind}")
                position = stop + 1
        except AmqpError as error:
            events.append(error)
        return events, position

    # Methods.

    def _method(
        self, block: bytes, position: int, stop: int, channel: int, events: list[Event]
    ) -> int:
        """Read the method, and perhaps more; return where the next frame begins."""
        start = position + FRAME_HEAD_BYTES
        identity = block[start : start + _ID.size]
        if channel in self._closing:
            if identity == _CLOSE_OK:
                del self._closing[channel]
            elif identity != _CLOSE:
                return stop + 1
        if channel in self._unfinished:
            raise _unexpected("a method within a message", self._unfinished[channel])
        if identity == _PUBLISH:
            return self._publishes(block, position, stop, channel, events)
        if identity == _ACK and stop - start == _ACK_PAYLOAD_BYTES:
            return _acks(block, position, channel, events)
        payload = block[start:stop]
        if identity in _CONTENT_METHODS:
            end = self._whole(block, stop + 1, channel, payload, events)
            if end:
                return end
            self._open(channel, payload, None)
        else:
            events.append(MethodFrame(channel, payload))
        return stop + 1

    def _whole(
        self, block: bytes, start: int, channel: int, payload: bytes, events: list[Event]
    ) -> int:
        """Read the content of a method, if it is here in two frames, and return where it ends.

        0 means: it is not, and nothing was read. This is how clients read most of what they get.
        """
        shape = self._shape if self._shape_channel == channel else _NO_SHAPE
        if not block.startswith(shape[0], start):
            if not self._reshape(block, start, channel):
                return 0
            shape = self._shape
        lead, between, unpack, offset = shape
        body_start = start + offset
        if body_start > len(block):
            return 0
        size_all, properties, found, size = unpack(block, start + len(lead))
        body_end = body_start + size
        if (
            found != between
            or size != size_all
            or not 0 < size <= self._body_bytes_max
            or body_end >= len(block)
            or block[body_end] != FRAME_END
        ):
            return 0
        body: Buffer = block[body_start:body_end]
        events.append(Content(channel, payload, properties, body))
        return int(body_end) + 1

    def _publishes(
        self, block: bytes, position: int, stop: int, channel: int, events: list[Event]
    ) -> int:
        """Read all publishes that follow on this channel to the same exchange, with any keys."""
        method = block[position : stop + 1]
        publish_method = self._publish_methods.get(method) or self._publish_method(method)
        target, envelope = publish_method.target, publish_method.envelope
        messages: list[Message] = []
        append, starts = messages.append, block.startswith
        publish_methods, end, bytes_max = self._publish_methods, len(block), self._body_bytes_max
        view: memoryview | None = None
        shape = self._shape if self._shape_channel == channel else _NO_SHAPE
        lead, between, unpack, offset = shape
        size_before, envelope_before = 0, envelope  # Of the last message.
        while True:
            start = position + len(method)
            if not starts(lead, start):
                if not self._reshape(block, start, channel):
                    break
                lead, between, unpack, offset = self._shape
            body_start = start + offset
            if body_start > end:
                break
            size_all, properties, found, size = unpack(block, start + len(lead))
            body_end = body_start + size
            if (
                found != between
                or size != size_all
                or not 0 < size <= bytes_max
                or body_end >= end
                or block[body_end] != FRAME_END
            ):
                break
            if properties != envelope.head:
                envelope = Envelope(envelope.exchange, envelope.subject, properties, self._format)
                publish_method.envelope = envelope
            if size <= SMALL_BYTES:
                append((envelope, block[body_start:body_end]))
            else:
                view = view or memoryview(block)
                append((envelope, view[body_start:body_end]))
            if envelope is envelope_before and size == size_before <= _ALIKE_BYTES_MAX:
                position = _alike(block, position, body_start, body_end, messages)
            else:
                position = body_end + 1
                size_before, envelope_before = size, envelope
            if starts(method, position):
                continue
            method = b"" if position == end else _method_frame(block, position, channel)
            known = publish_methods.get(method)
            if known is None or known.target != target:  # The run ends: another method,
                _publish(events, channel, target, messages)  # or another target.
                return position
            publish_method, envelope = known, known.envelope
        # Not a message of the usual shape, or an incomplete one.
        if messages:
            _publish(events, channel, target, messages)
        self._open(channel, method[FRAME_HEAD_BYTES:-1], publish_method)
        return position + len(method)

    def _reshape(self, block: bytes, start: int, channel: int) -> bool:
        """Set `_shape` to that of the header frame at `start`; return whether there is one."""
        if len(block) - start < _HEADER_LEAD.size:
            return False
        kind, found, size, class_id, weight = _HEADER_LEAD.unpack_from(block, start)
        if kind != HEADER or found != channel or class_id != _BASIC or weight != 0:
            return False
        if channel == 0 or not _HEADER_BYTES_MIN <= size <= self._payload_bytes_max:
            return False
        layout = self._layouts.get(size)
        if layout is None:
            if len(self._layouts) >= _LAYOUTS_MAX:
                self._layouts.clear()
            layout = Struct(f">Q{size - _CONTENT_HEADER.size}s4sI")
            self._layouts[size] = layout
        lead = block[start : start + _HEADER_LEAD.size]
        between = b"\xce\x03" + lead[1:3]
        self._shape_channel = channel
        self._shape = lead, between, layout.unpack_from, len(lead) + layout.size
        return True

    def _publish_method(self, method: bytes) -> PublishMethod:
        """Read and cache the method frame of a publish."""
        publish_method = read_publish_method(method[FRAME_HEAD_BYTES:-1], self._format)
        if len(self._publish_methods) >= amqp_limits.ROUTES_CACHED_MAX:
            self._publish_methods.clear()
        self._publish_methods[method] = publish_method
        return publish_method

    # Contents.

    def _header(
        self, block: bytes, start: int, stop: int, channel: int, events: list[Event]
    ) -> None:
        content = self._unfinished.get(channel)
        if channel in self._closing:
            return
        if content is None or content.properties is not None:
            raise _unexpected("a content header without a method before it", content)
        if stop - start < _HEADER_BYTES_MIN:
            raise _frame_error(f"a content header of {stop - start} bytes")
        class_id, weight, size = _CONTENT_HEADER.unpack_from(block, start)
        if class_id != _BASIC or weight != 0:
            raise _unexpected(f"a content header of class {class_id}, weight {weight}", content)
        content.properties = block[start + _CONTENT_HEADER.size : stop]
        content.left = size
        if size > self._message_bytes_max:
            self.close_channel(channel)
            events.append(
                AmqpError(
                    ReplyCode.PRECONDITION_FAILED,
                    f"message size {size} is larger than max size {self._message_bytes_max}",
                    channel=channel,
                    method_id=basic.Publish.ID,
                )
            )
        elif size == 0:
            self._finish(channel, content, b"", events)
        else:
            self._hold(content, len(content.properties))

    def _body(self, block: bytes, start: int, stop: int, channel: int, events: list[Event]) -> None:
        content = self._unfinished.get(channel)
        if channel in self._closing:
            return
        if content is None or content.properties is None:
            raise _unexpected("a content body without a content header before it", content)
        size = stop - start
        if size > content.left:
            raise _unexpected(
                f"a body frame of {size} bytes where {content.left} are left", content
            )
        content.left -= size
        if content.left == 0 and content.body is None:
            small = size <= SMALL_BYTES
            body = block[start:stop] if small else memoryview(block)[start:stop]
            self._finish(channel, content, body, events)
        else:
            self._hold(content, size)
            if content.body is None:
                content.body = bytearray()
            content.body += memoryview(block)[start:stop]
            if content.left == 0:
                self._finish(channel, content, memoryview(content.body).toreadonly(), events)

    def _open(self, channel: int, payload: bytes, publish_method: PublishMethod | None) -> None:
        if channel == 0:
            raise AmqpError(ReplyCode.CHANNEL_ERROR, "a message on channel 0")
        self._opened += 1
        content = _Unfinished(-self._opened, payload, publish_method)
        self._unfinished[channel] = content
        self._hold(content, _UNFINISHED_BYTES + len(payload))

    def _hold(self, content: _Unfinished, size: int) -> None:
        content.held += size
        self.unfinished_bytes += size
        if self.unfinished_bytes > amqp_limits.UNFINISHED_BYTES_MAX:
            raise AmqpError(ReplyCode.RESOURCE_ERROR, "too many unfinished messages")

    def _drop(self, channel: int) -> None:
        content = self._unfinished.pop(channel, None)
        if content is not None:
            self.unfinished_bytes -= content.held

    def _finish(
        self, channel: int, content: _Unfinished, body: Buffer, events: list[Event]
    ) -> None:
        self._drop(channel)
        assert content.properties is not None
        if content.publish_method is None:
            events.append(Content(channel, content.payload, content.properties, body))
        else:
            envelope = content.publish_method.sealed(content.properties)
            _publish(events, channel, content.publish_method.target, [(envelope, body)])


def _method_frame(block: bytes, position: int, channel: int) -> bytes:
    """Return the frame there if it is a method of that channel. It may be incomplete."""
    if len(block) - position < FRAME_HEAD_BYTES:
        return b""
    kind, found, size = FRAME_HEAD.unpack_from(block, position)
    if kind != METHOD or found != channel:
        return b""
    return block[position : position + FRAME_HEAD_BYTES + size + 1]


def _acks(block: bytes, position: int, channel: int, events: list[Event]) -> int:
    """Read acknowledgements that differ only in their tags; return where the next frame begins."""
    lead, first, tail = _ACK_FRAME.unpack_from(block, position)
    end_first = position + _ACK_FRAME.size
    if not block.startswith(lead, end_first):  # Alone, as when messages come one at a time.
        events.append(Acks(channel, tail[0] & 1 != 0, [first]))
        return end_first
    count = (len(block) - position) // _ACK_FRAME.size
    run = memoryview(block)[position : position + count * _ACK_FRAME.size]
    tags = []
    for found, tag, end in _ACK_FRAME.iter_unpack(run):
        if found != lead or end != tail:
            break
        tags.append(tag)
    events.append(Acks(channel, tail[0] & 1 != 0, tags))
    return position + len(tags) * _ACK_FRAME.size


def _alike(
    block: bytes, start: int, body_start: int, body_end: int, messages: list[Message]
) -> int:
    """Read the messages that follow and differ from the one at `start` only in their bodies.

    Return where the next frame begins. Bodies are copied: for many at once that is cheaper.
    """
    head = block[start:body_start]
    position = body_end + 1
    if not block.startswith(head, position):
        return position
    envelope = messages[-1][0]
    append = messages.append
    size = position - start
    count = (len(block) - position) // size
    run = memoryview(block)[position : position + count * size]
    for found, body, end in iter_unpack(f"{len(head)}s{body_end - body_start}sB", run):
        if found != head or end != FRAME_END:
            break
        append((envelope, body))
        position += size
    return position


def _publish(
    events: list[Event], channel: int, target: PublishTarget, messages: list[Message]
) -> None:
    """Add the messages to the last event if they continue its run, else as a new event."""
    if events:
        last = events[-1]
        if type(last) is Publishes and last.channel == channel and last.target == target:
            last.messages.extend(messages)
            return
    events.append(Publishes(channel, target, messages))


def _heartbeat(channel: int, size: int) -> Heartbeat:
    if size != 0:
        raise _frame_error(f"a heartbeat of {size} bytes")
    if channel != 0:
        raise _unexpected(f"a heartbeat on channel {channel}", None)
    return Heartbeat()


def _frame_error(explanation: str) -> AmqpError:
    return AmqpError(ReplyCode.FRAME_ERROR, explanation)


def _unexpected(explanation: str, content: _Unfinished | None) -> AmqpError:
    is_publish = content is not None and content.publish_method is not None
    method_id = basic.Publish.ID if is_publish else (0, 0)
    return AmqpError(ReplyCode.UNEXPECTED_FRAME, explanation, method_id=method_id)
