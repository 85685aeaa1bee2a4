"""One channel that is forwarded: what must be known of it to go on at another home of queues.

Numbers differ on the two sides once the home has changed: each home counts deliveries and
publishes from 1 on. To the client they go on, so the number that the client sees is the home's
plus what there was before. What a lost home has delivered cannot be acknowledged any more: such
acknowledgements are dropped, as the next home delivers it again. What was published there and not
confirmed is nacked: nobody knows whether it is stored.

A request that was not answered is made again. Answers to what only the replay has asked for are
swallowed; if the replay fails, because a queue was lost with its home, the consumer is cancelled,
or the channel is closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from struct import Struct
from typing import NamedTuple

from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import frame as make_frame
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.method import Id, Method, read_id
from entrepot.wire.amqp.methods import basic, channel, confirm, decode, queue, tx
from entrepot.wire.amqp.scan import BODY, HEADER, METHOD
from entrepot.wire.amqp.split import Frame

_TAG = Struct(">Q")
_TAG_AT = 4  # Where a delivery tag is, in most methods that have one.
_CONTENT_SIZE_AT = 4  # Where the size of the body is, in a header.
_HELD_BYTES_MAX = 256 * 1024  # A larger message is passed on as it comes.
_REQUESTS_MAX = 10_000
_ACKS = (basic.Ack.ID, basic.Nack.ID, basic.Reject.ID)
_LOST = "the queues have moved to another node"


class Request(NamedTuple):
    """What was asked and is not answered."""

    id: Id
    data: bytes  # The frame.
    method: Method


class ForwardedChannel:
    def __init__(self, number: int, *, hears_cancels: bool) -> None:
        self._number = number
        self._hears_cancels = hears_cancels
        self.is_over = False  # Closed, on both sides.
        self.owns_queues = False  # It has declared an exclusive queue.
        self._is_closing = False  # The client is told that it is closed, and has not agreed.
        self._requests: deque[Request] = deque()
        self._replayed: deque[Method] = deque()  # Whose answers the client does not get.
        self._is_open = False  # The client knows that it is open.
        self._is_transactional = False
        # Publishing.
        self._confirms = False
        self._published = 0  # Since confirms were asked for.
        self._confirm_base = 0  # Those before the present home.
        self._unconfirmed: dict[int, None] = {}
        self._content_left = 0  # Bytes of a body that the client still sends; -1: and its header.
        self._drops_content = False  # The home that got the beginning is lost.
        # Consuming.
        self._delivered = 0  # The last tag that the client got.
        self._tag_base = 0  # Those before the present home.
        self._qos: basic.Qos | None = None
        self._qos_global: basic.Qos | None = None
        self._consumers: dict[str, tuple[basic.Qos | None, basic.Consume]] = {}
        self._queue_last = ""  # That an empty name refers to.
        self._held: list[bytes] = []  # Frames of a message that is not whole.
        self._held_bytes = 0
        self._held_left = 0
        self._held_get: Request | None = None  # That the message answers.
        self._is_streaming = False  # A large message is passed on as it comes.

    @property
    def is_amid_message(self) -> bool:
        """Return whether the client has a part of a message."""
        return self._is_streaming

    # --- from the client

    def from_client(self, frame: Frame) -> list[bytes]:
        """Return the frames for the home. Raises AmqpError."""
        if frame.kind == METHOD:
            return self._method_from_client(frame)
        if frame.kind == HEADER and self._content_left == -1:
            (self._content_left,) = _TAG.unpack_from(frame.payload, _CONTENT_SIZE_AT)
        elif frame.kind == BODY and self._content_left > 0:
            self._content_left -= frame.size
        is_dropped = self._drops_content or self._is_closing
        if self._content_left == 0:
            self._drops_content = False
        return [] if is_dropped else [frame.data]

    def _method_from_client(self, frame: Frame) -> list[bytes]:
        payload = frame.payload
        number = read_id(payload)
        if self._is_closing:
            if number == channel.CloseOk.ID:
                self.is_over = True
            return []
        if number == basic.Publish.ID:
            self._content_left = -1
            if self._confirms:
                self._published += 1
                self._unconfirmed[self._published] = None
            return [frame.data]
        if number in _ACKS:
            return self._settle(frame, payload)
        if number == channel.CloseOk.ID:
            self.is_over = True
            return [frame.data]
        return self._request(number, frame, decode(payload))

    def _settle(self, frame: Frame, payload: bytes) -> list[bytes]:
        """Return an acknowledgement with the home's tag; nothing if a lost home has delivered."""
        if not self._tag_base or len(payload) < _TAG_AT + _TAG.size:
            return [frame.data]
        (tag,) = _TAG.unpack_from(payload, _TAG_AT)
        if tag == 0:
            return [frame.data] if self._delivered > self._tag_base else []
        if tag <= self._tag_base:
            return []
        return [self._with_tag(payload, _TAG_AT, tag - self._tag_base)]

    def _with_tag(self, payload: bytes, at: int, tag: int) -> bytes:
        changed = b"".join((payload[:at], _TAG.pack(tag), payload[at + _TAG.size :]))
        return make_frame(METHOD, self._number, changed)

    def _request(self, number: Id, frame: Frame, method: Method) -> list[bytes]:
        match method:
            case basic.Qos():
                if method.is_global:
                    self._qos_global = method
                else:
                    self._qos = method
            case basic.Consume(nowait=True):
                self._consumers[method.consumer_tag] = self._qos, method
            case basic.Cancel():
                self._consumers.pop(method.consumer_tag, None)
            case queue.Declare():
                self.owns_queues = self.owns_queues or method.exclusive
                self._queue_last = method.queue
            case confirm.Select():
                self._confirms = True
            case tx.Select():
                self._is_transactional = True
        if number != basic.RecoverAsync.ID and not getattr(method, "nowait", False):
            if len(self._requests) >= _REQUESTS_MAX:
                raise AmqpError(ReplyCode.RESOURCE_ERROR, "too many requests without an answer")
            self._requests.append(Request(number, frame.data, method))
        return [frame.data]

    # --- from the home

    def from_home(self, frame: Frame) -> tuple[list[bytes], list[bytes]]:
        """Return the frames for the client, and those for the home."""
        if frame.kind != METHOD:
            return self._content(frame), []
        payload = frame.payload
        number = read_id(payload)
        if number == basic.Deliver.ID:
            at = _TAG_AT + 1 + payload[_TAG_AT]
            return self._message(frame, payload, at), []
        if number == basic.GetOk.ID:
            self._held_get = self._requests.popleft() if self._requests else None
            return self._message(frame, payload, _TAG_AT), []
        if number == basic.Return.ID:
            self._begin_content(frame.data)
            return [], []
        if number in (basic.Ack.ID, basic.Nack.ID):
            return [self._confirmed(frame, payload)], []
        if number == channel.Close.ID:
            return self._closed(frame)
        return self._answered(number, frame, payload), []

    def _message(self, frame: Frame, payload: bytes, at: int) -> list[bytes]:
        (tag,) = _TAG.unpack_from(payload, at)
        data = frame.data
        if self._tag_base:
            tag += self._tag_base
            data = self._with_tag(payload, at, tag)
        self._delivered = max(self._delivered, tag)
        self._begin_content(data)
        return []

    def _begin_content(self, data: bytes) -> None:
        self._held, self._held_bytes, self._held_left = [data], len(data), -1

    def _content(self, frame: Frame) -> list[bytes]:
        """Return what the client gets of a message, now that there is more of it."""
        if frame.kind == HEADER:
            (self._held_left,) = _TAG.unpack_from(frame.payload, _CONTENT_SIZE_AT)
        else:
            self._held_left -= frame.size
        self._held.append(frame.data)
        self._held_bytes += len(frame.data)
        is_whole = self._held_left <= 0
        if not is_whole and self._held_bytes + self._held_left <= _HELD_BYTES_MAX:
            return []
        self._is_streaming = not is_whole
        out, self._held, self._held_bytes, self._held_get = self._held, [], 0, None
        return out

    def _confirmed(self, frame: Frame, payload: bytes) -> bytes:
        (tag,) = _TAG.unpack_from(payload, _TAG_AT)
        tag += self._confirm_base
        if payload[_TAG_AT + _TAG.size] & 1:  # All up to this one.
            for each in [*self._unconfirmed]:
                if each > tag:
                    break
                del self._unconfirmed[each]
        else:
            self._unconfirmed.pop(tag, None)
        return self._with_tag(payload, _TAG_AT, tag) if self._confirm_base else frame.data

    def _answered(self, number: Id, frame: Frame, payload: bytes) -> list[bytes]:
        if number == basic.Cancel.ID:
            method = decode(payload)
            assert isinstance(method, basic.Cancel)
            self._consumers.pop(method.consumer_tag, None)
            return [frame.data]
        if number == channel.Flow.ID:
            return [frame.data]
        if self._replayed:
            self._replayed.popleft()
            return []
        if not self._requests:
            return [frame.data]
        request = self._requests.popleft().method
        match request:
            case channel.Open():
                self._is_open = True
            case channel.Close():
                self.is_over = True
            case basic.Consume():
                answer = decode(payload)
                assert isinstance(answer, basic.ConsumeOk)
                tag = answer.consumer_tag
                consume = replace(request, consumer_tag=tag)
                self._consumers[tag] = self._qos, consume
            case queue.Declare():
                declared = decode(payload)
                assert isinstance(declared, queue.DeclareOk)
                self._queue_last = declared.queue
        return [frame.data]

    def _closed(self, frame: Frame) -> tuple[list[bytes], list[bytes]]:
        """Take in that the home has closed the channel: for a mistake, or since a replay fails."""
        if not self._replayed:
            self._is_closing = True
            self._requests.clear()
            return [frame.data], [method_frame(self._number, channel.CloseOk())]
        out = [self.home_lost()]
        failed = self._replayed.popleft()
        match failed:
            case basic.Consume():
                self._consumers.pop(failed.consumer_tag, None)
                if self._hears_cancels:
                    cancel = basic.Cancel(failed.consumer_tag, nowait=True)
                    out.append(method_frame(self._number, cancel))
            case queue.Declare():
                self._queue_last = ""
            case _:
                self._is_closing = True
                return [frame.data], [method_frame(self._number, channel.CloseOk())]
        return out, [method_frame(self._number, channel.CloseOk()), *self.replay()]

    # --- another home

    def home_lost(self) -> bytes:
        """Forget what the home knew of the channel; return what the client is told."""
        out: list[Method] = []
        if self._is_closing:
            return b""
        if any(isinstance(each.method, channel.Close) for each in self._requests):
            self.is_over = True
            return method_frame(self._number, channel.CloseOk())
        if self._unconfirmed:
            out.append(basic.Nack(self._published, multiple=True, requeue=False))
            self._unconfirmed.clear()
        self._confirm_base, self._tag_base = self._published, self._delivered
        self._drops_content = self._content_left != 0
        if self._held_get is not None:
            self._requests.appendleft(self._held_get)
        self._held, self._held_bytes, self._held_get = [], 0, None
        if self._is_transactional:
            self._is_closing = True
            self._requests.clear()
            error = AmqpError(ReplyCode.PRECONDITION_FAILED, _LOST, method_id=tx.Commit.ID)
            out.append(channel.Close(error.code, error.text, *error.method_id))
        return b"".join([method_frame(self._number, each) for each in out])

    def replay(self) -> list[bytes]:
        """Return what opens the channel at another home, and asks again what was not answered."""
        if self._is_closing:
            return []
        methods: list[Method] = []
        if self._is_open:
            methods.append(channel.Open())
        if self._confirms and not self._is_asking(confirm.Select.ID):
            methods.append(confirm.Select())
        if self._queue_last and self._is_open and not self._is_asking(queue.Declare.ID):
            methods.append(queue.Declare(queue=self._queue_last, passive=True))
        qos: basic.Qos | None = None
        if self._qos_global is not None:
            methods.append(self._qos_global)
        for wanted, consume in self._consumers.values():
            if wanted is not qos and wanted is not None:
                methods.append(wanted)
                qos = wanted
            methods.append(replace(consume, nowait=False))
        if self._qos is not None and self._qos is not qos:
            methods.append(self._qos)
        self._replayed = deque(methods)
        frames = [method_frame(self._number, each) for each in methods]
        return [*frames, *(each.data for each in self._requests)]

    def _is_asking(self, number: Id) -> bool:
        return any(each.id == number for each in self._requests)
