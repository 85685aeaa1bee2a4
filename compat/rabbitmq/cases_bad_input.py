"""Bytes that no library sends. What one connection does wrong is not another's harm.

RabbitMQ words such a refusal as Erlang prints terms, and of some the process just dies. So it is
the code, its name and the method that are compared here, and where it dies, what the
specification wants is what must be said.
"""

import re
import struct

from pika import spec
from raw import any_frame, header_frame, method_frame, publish_frame
from stage import Inbox, Stage

WORDS = re.compile(r" - .*(?= \()")


def _method(class_id: int, method_id: int, payload: bytes = b"") -> bytes:
    return any_frame(1, 1, struct.pack(">HH", class_id, method_id) + payload)


def _after(stage: Stage, *parts: bytes, frame_max: int = 131072) -> str:
    raw = stage.raw().connect(frame_max)
    raw.send(*parts)
    return WORDS.sub("", raw.answer())


def unknown_methods(stage: Stage) -> None:
    """an unknown class, an unknown method, a method of the broker's own"""
    refused = "connection 540 NOT_IMPLEMENTED ({})"
    stage.see("class", _after(stage, _method(99, 10)), {"gone": refused.format("99.10")})
    stage.see("method", _after(stage, _method(60, 199)), {"gone": refused.format("60.199")})
    stage.see("of the broker's", _after(stage, method_frame(1, spec.Basic.GetEmpty())))


def unfinished_methods(stage: Stage) -> None:
    """methods that end too early, or too late"""
    stage.see("no class", _after(stage, any_frame(1, 1, b"\0")))
    stage.see("no arguments", _after(stage, _method(60, 40)))
    cut = struct.pack(">HB", 0, 200) + b"too short"
    stage.see("a text cut off", _after(stage, _method(50, 10, cut)))


def frame_too_large(stage: Stage) -> None:
    """a frame larger than was agreed on"""
    queue = stage.queue()
    large = any_frame(3, 1, bytes(5000))
    parts = publish_frame(1, "", queue), header_frame(1, 5000), large
    stage.see("said", _after(stage, *parts, frame_max=4096))
    fits = any_frame(3, 1, bytes(4088))
    raw = stage.raw().connect(4096)
    raw.send(publish_frame(1, "", queue), header_frame(1, 4088), fits)
    raw.ask(1, spec.Basic.Qos())
    stage.see("as large as agreed", type(raw.read()).__name__)


def frame_end(stage: Stage) -> None:
    """a frame that does not end as it should"""
    stage.see("said", _after(stage, any_frame(1, 1, b"\0\x3c\0\x0a" + bytes(7), b"\0")))


def frame_kinds(stage: Stage) -> None:
    """frames of no known kind, and on the wrong channel"""
    stage.see("kind 5", _after(stage, any_frame(5, 1, b"x")))
    stage.see("a heartbeat", _after(stage, any_frame(8, 0, b""), method_frame(1, spec.Basic.Qos())))
    stage.see("a body on channel 0", _after(stage, any_frame(3, 0, b"x")))
    stage.see("a channel's method on 0", _after(stage, method_frame(0, spec.Basic.Qos())))


def content(stage: Stage) -> None:
    """contents without their beginning, or with another in between"""
    queue = stage.queue()
    publish = publish_frame(1, "", queue)
    qos = method_frame(1, spec.Basic.Qos())
    for what, parts in {
        "a header alone": [header_frame(1, 5)],
        "a body alone": [any_frame(3, 1, b"hello")],
        "a body after publish": [publish, any_frame(3, 1, b"hello")],
        "a method after publish": [publish, qos],
        "a method after the header": [publish, header_frame(1, 5), qos],
        "two publishes": [publish, publish],
        "another class in the header": [publish, header_frame(1, 5, 50), any_frame(3, 1, b"hello")],
    }.items():
        stage.see(what, _after(stage, *parts))
    stage.see("nothing came", stage.count(queue))


def body_too_long(stage: Stage) -> None:
    """a body longer than its header says"""
    queue = stage.queue()
    parts = publish_frame(1, "", queue), header_frame(1, 3), any_frame(3, 1, b"hello")
    stage.see("said", _after(stage, *parts, method_frame(1, spec.Basic.Qos())))


def interleaved(stage: Stage) -> None:
    """contents of two channels in turns"""
    queue = stage.queue()
    raw = stage.raw().connect()
    raw.ask(2, spec.Channel.Open())
    raw.read()
    parts = []
    for channel in (1, 2):
        parts.append(publish_frame(channel, "", queue))
    for channel in (1, 2):
        parts.append(header_frame(channel, 6))
    for half in (b"abc", b"def"):
        for channel in (1, 2):
            parts.append(any_frame(3, channel, half))
    raw.send(*parts)
    raw.ask(1, spec.Basic.Qos())
    raw.read()
    raw.ask(2, spec.Basic.Qos())
    raw.read()
    stage.see("both", stage.drain(queue))


def byte_by_byte(stage: Stage) -> None:
    """frames that come a byte at a time"""
    queue = stage.queue()
    raw = stage.raw().connect()
    data = publish_frame(1, "", queue) + header_frame(1, 3) + any_frame(3, 1, b"abc")
    data += method_frame(1, spec.Basic.Qos())
    for byte in data:
        raw.send(bytes((byte,)))
    stage.see("answer", type(raw.read()).__name__)
    stage.see("came", stage.drain(queue))


def tables(stage: Stage) -> None:
    """tables that are not"""
    queue = struct.pack(">HB", 0, 1) + b"q" + b"\0"

    def declared(table: bytes) -> str:
        return _after(stage, _method(50, 10, queue + struct.pack(">I", len(table)) + table))

    refused = {"gone": "connection 502 SYNTAX_ERROR (50.10)"}
    stage.see("unknown type", declared(b"\x01a?x"), refused)
    stage.see("cut off", declared(b"\x01aS\0\0\0\x09x"), refused)
    long = _after(stage, _method(50, 10, queue + struct.pack(">I", 1000) + b"short"))
    stage.see("longer than the frame", long)


def names(stage: Stage) -> None:
    """names of 255 bytes, of none, and not in UTF-8"""
    name = stage.name("x" * (255 - len(stage.name(""))))
    stage._queues.append(name)
    stage.see_refusal("255 bytes", lambda c: c.queue_declare(name))
    stage.publish(name, "m")
    stage.see("got", stage.get(name)[2])
    raw = stage.raw().connect()
    raw.send(publish_frame(1, "amq.direct", "k" * 255), header_frame(1, 0))
    raw.ask(1, spec.Basic.Qos())
    stage.see("a key of 255 bytes", type(raw.read()).__name__)


def others_go_on(stage: Stage) -> None:
    """what one connection does wrong is not another's harm"""
    queue = stage.queue()
    inbox = Inbox(stage.channel, queue, auto_ack=True)
    for data in (b"\xff" * 100, any_frame(1, 1, b"\xff" * 100), any_frame(9, 9, b""), bytes(1000)):
        raw = stage.raw().connect()
        raw.send(data)
        raw.answer()
        half = stage.raw()
        half.start()
        half.send(data[:20])
        half.close()
    stage.publish(queue, "m")
    stage.see("goes on", inbox.wait(1))


def cut_in_the_middle(stage: Stage) -> None:
    """a publish that is cut in the middle did not happen"""
    queue = stage.queue()
    raw = stage.raw().connect()
    raw.send(publish_frame(1, "", queue), header_frame(1, 10), any_frame(3, 1, b"half"))
    raw.close()
    raw = stage.raw().connect()
    raw.send(publish_frame(1, "", queue), header_frame(1, 4), any_frame(3, 1, b"full"))
    raw.ask(1, spec.Basic.Qos())
    raw.read()
    stage.see("came", stage.drain(queue))
