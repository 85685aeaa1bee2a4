"""Encoding of messages that are sent: a method, a header and the body, as chunks of bytes.

Deliveries to one consumer differ little: usually only the delivery tag and the body change from
one to the next. What stays the same is encoded once for a run.

Small bodies are copied into one chunk with the frames around them; a large one is a chunk of its
own, and is never copied. A body that is longer than a frame is sent in several frames.

Properties are bytes that were checked when they came. Those of other protocols must be
translated, by a function that is given to the encoder.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from struct import Struct

from entrepot.core.message import Envelope, Message
from entrepot.core.ports import Buffer
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.frames import END, FRAME_ENVELOPE_BYTES, frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, encode
from entrepot.wire.amqp.scan import BODY, FRAME_HEAD, HEADER, METHOD
from entrepot.wire.amqp.table import short_string

COPIED_BYTES_MAX = 8_192  # A longer body is not copied.

_CONTENT_HEADER = Struct(">BHIHHQ")  # A header frame up to the properties.
CONTENT_HEADER_BYTES = 12  # Of its payload, before the properties.
_METHOD_LEAD = Struct(">BHIHH")
_TAG = Struct(">Q?")
_FRESH_TAG = Struct(">Qx")  # The `redelivered` bit is not set.
_BASIC = basic.Deliver.ID[0]

# Delivery tag, whether it was delivered before, envelope, body.
OutgoingDelivery = tuple[int, bool, Envelope, Buffer]
# Returns the properties of a message as bytes of AMQP.
ToHead = Callable[[Envelope], bytes]


class Tails:
    """A cache of how frames of `basic.deliver` end: with exchange, routing key and frame end."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bytes] = {}

    def of(self, exchange: str, key: str) -> bytes:
        tail = self._known.get((exchange, key))
        if tail is None:
            tail = short_string(exchange) + short_string(key) + END
            if len(self._known) >= amqp_limits.ROUTES_CACHED_MAX:
                self._known.clear()
            self._known[exchange, key] = tail
        return tail


class DeliverEncoder:
    """Encodes the deliveries to one consumer."""

    __slots__ = (
        "_channel",
        "_consumer_tag",
        "_ends_last",
        "_exchange",
        "_heads",
        "_key",
        "_piece_bytes_max",
        "_tails",
        "_to_head",
    )

    def __init__(
        self,
        channel: int,
        consumer_tag: str,
        frame_bytes_max: int,
        to_head: ToHead,
        tails: Tails | None = None,
    ) -> None:
        """Encoders of one connection should share their tails."""
        self._to_head = to_head
        self._channel = channel
        self._consumer_tag = short_string(consumer_tag)
        self._piece_bytes_max = frame_bytes_max - FRAME_ENVELOPE_BYTES
        self._tails = Tails() if tails is None else tails
        self._heads: dict[int, bytes] = {}  # How frames begin, by the size of the tail.
        self._exchange = self._key = ""  # Of the last message that was encoded alone,
        self._ends_last = self._ends("", "")  # and how its method's frame begins and ends.

    def encode(self, run: Iterable[OutgoingDelivery]) -> list[Buffer]:
        """Return `basic.deliver` for each message, as chunks to be sent in order."""
        chunks: list[Buffer] = []
        pieces: list[Buffer] = []
        copied_max = min(COPIED_BYTES_MAX, self._piece_bytes_max)
        pack = _TAG.pack
        head = tail = lead = b""
        envelope_before: Envelope | None = None
        exchange = key = properties = None
        size_before = -1
        for tag, redelivered, envelope, body in run:
            size = len(body)
            if envelope is not envelope_before:
                if envelope.subject is not key or envelope.exchange is not exchange:
                    exchange, key = envelope.exchange, envelope.subject
                    head, tail = self._ends(exchange, key)
                envelope_before, properties = envelope, self._to_head(envelope)
                size_before = -1
            if size != size_before:
                assert properties is not None
                lead = _content_lead(self._channel, properties, size, copied_max)
                size_before = size
            if 0 < size <= copied_max:
                pieces += (head, pack(tag, redelivered), tail, lead, body, END)
                continue
            pieces += (head, pack(tag, redelivered), tail, lead)
            if size > copied_max:
                _add_body(chunks, pieces, self._channel, body, self._piece_bytes_max)
        if pieces:
            chunks.append(b"".join(pieces))
        return chunks

    def encode_one(self, tag: int, message: Message) -> list[Buffer]:
        """Encode a message that was never delivered before."""
        envelope, body = message
        size = len(body)
        if not 0 < size <= COPIED_BYTES_MAX or size > self._piece_bytes_max:
            return self.encode([(tag, False, envelope, body)])
        if envelope.subject is not self._key or envelope.exchange is not self._exchange:
            self._ends_last = self._ends(envelope.exchange, envelope.subject)
            self._exchange, self._key = envelope.exchange, envelope.subject
        head, tail = self._ends_last
        channel, properties = self._channel, self._to_head(envelope)
        header_bytes = CONTENT_HEADER_BYTES + len(properties)
        pieces: list[Buffer] = [
            head,
            _FRESH_TAG.pack(tag),
            tail,
            _CONTENT_HEADER.pack(HEADER, channel, header_bytes, _BASIC, 0, size),
            properties,
            END,
            FRAME_HEAD.pack(BODY, channel, size),
            body,
            END,
        ]
        return [b"".join(pieces)]

    def encode_run(self, tag: int, messages: Sequence[Message]) -> list[Buffer]:
        """Encode messages that were never delivered before and get consecutive tags.

        Most runs have one envelope and bodies of one size; those are not encoded one by one.
        """
        bodies = [body for _, body in messages]
        sizes = list(map(len, bodies))
        envelopes = [envelope for envelope, _ in messages]
        first, count, size = envelopes[0], len(messages), sizes[0]
        copied_max = min(COPIED_BYTES_MAX, self._piece_bytes_max)
        if not (
            0 < size <= copied_max
            and sizes.count(size) == count
            and envelopes.count(first) == count
        ):
            return self.encode(zip(range(tag, tag + count), repeat(False), envelopes, bodies))
        head, tail = self._ends(first.exchange, first.subject)
        lead = _content_lead(self._channel, self._to_head(first), size, copied_max)
        pieces: list[Buffer] = [tail + lead] * (4 * count)
        pieces[0::4] = map(_FRESH_TAG.pack, range(tag, tag + count))
        pieces[2::4] = bodies
        pieces[3::4] = [END + head] * count
        pieces[-1] = END
        return [head + b"".join(pieces)]

    def _ends(self, exchange: str, key: str) -> tuple[bytes, bytes]:
        """Return the method's frame before and after the delivery tag and the `redelivered` bit."""
        tail = self._tails.of(exchange, key)
        head = self._heads.get(len(tail))
        if head is None:
            size = 4 + len(self._consumer_tag) + _TAG.size + len(tail) - len(END)
            lead = _METHOD_LEAD.pack(METHOD, self._channel, size, *basic.Deliver.ID)
            head = self._heads[len(tail)] = lead + self._consumer_tag
        return head, tail


def _content_lead(channel: int, properties: bytes, size: int, one_frame_max: int) -> bytes:
    """Return the header frame, and the head of the body frame if the body is that small."""
    header = _CONTENT_HEADER.pack(
        HEADER, channel, CONTENT_HEADER_BYTES + len(properties), _BASIC, 0, size
    )
    if 0 < size <= one_frame_max:
        return b"".join((header, properties, END, FRAME_HEAD.pack(BODY, channel, size)))
    return b"".join((header, properties, END))


def content(
    channel: int, method: Method, properties: bytes, body: Buffer, frame_bytes_max: int
) -> list[Buffer]:
    """Return one method with its message: `get-ok`, `return`, or a client's `publish`."""
    assert method.HAS_CONTENT, method
    piece_bytes_max = frame_bytes_max - FRAME_ENVELOPE_BYTES
    copied_max = min(COPIED_BYTES_MAX, piece_bytes_max)
    pieces: list[Buffer] = [
        frame(METHOD, channel, encode(method)),
        _content_lead(channel, properties, len(body), copied_max),
    ]
    chunks: list[Buffer] = []
    if len(body) > copied_max:
        _add_body(chunks, pieces, channel, body, piece_bytes_max)
    elif len(body):
        pieces += (body, END)
    return [*chunks, b"".join(pieces)]


def returned(channel: int, code: ReplyCode, message: Message, frame_bytes_max: int) -> list[Buffer]:
    """Return `basic.return` for a message that could not be routed."""
    envelope, body = message
    method = basic.Return(code, code.name, envelope.exchange, envelope.subject)
    return content(channel, method, envelope.head, body, frame_bytes_max)


def _add_body(
    chunks: list[Buffer], pieces: list[Buffer], channel: int, body: Buffer, piece_bytes_max: int
) -> None:
    """Add `pieces` and then the body, in frames, to `chunks`; leave its last byte in `pieces`."""
    view = memoryview(body)
    size = len(view)
    for start in range(0, size, piece_bytes_max):
        piece = view[start : start + piece_bytes_max]
        pieces.append(FRAME_HEAD.pack(BODY, channel, len(piece)))
        chunks.append(b"".join(pieces))
        chunks.append(piece)
        pieces[:] = (END,)
