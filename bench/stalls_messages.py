"""Rows of `stalls` about messages: one that is very large, and very many that change hands.

A row prepares its own queue and leaves it empty or deleted, so that any of them can be run
without the others.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bench import amqp_wire, wide
from bench.amqp_wire import BODY, CHANNEL, HEADER, QUEUE_DECLARE_OK, frame, method, short
from bench.wire import Refused

if TYPE_CHECKING:
    from bench.stalls import Rows, Stage, Work

LARGE_BYTES = 128 << 20  # The most that queues.max_message_bytes may be.
HTTP_BYTES = 32 << 20  # The most that a request's body may be.
MANY = 100_000
_FRAME_BYTES = amqp_wire.FRAME_MAX - amqp_wire.ENVELOPE_BYTES
_GET_OK, _RECOVER_OK, _SELECT_OK, _COMMIT_OK = (60, 71), (60, 111), (90, 11), (90, 21)
_WAIT_S = 60


def rows() -> Rows:
    yield from _one_large()
    yield from _many()
    yield "compaction of a batch of 1,000,000 keys", _compaction
    yield from _over_http()


# --- one large message


def _one_large() -> Rows:
    for kind in ("classic", "quorum", "stream"):
        yield f"128 MiB published to a {kind} queue", partial(_publish_large, kind)
    yield "128 MiB published between others", _publish_between
    yield "128 MiB delivered from a stream", partial(_deliver_large, "stream")
    yield "128 MiB delivered to a consumer", partial(_deliver_large, "classic")
    yield "128 MiB by basic.get, from the disk", _get_large
    yield "128 MiB dead-lettered", _dead_letter_large


def _declare(stage: Stage, name: str, **given: str | int) -> None:
    arguments = _table({f"x-{key.replace('_', '-')}": value for key, value in given.items()})
    stage.amqp.send(method(50, 10, b"\0\0" + short(name) + b"\x02" + arguments))
    stage.amqp.expect(QUEUE_DECLARE_OK)


def _table(fields: dict[str, str | int]) -> bytes:
    encoded = b""
    for name, value in fields.items():
        encoded += short(name)
        if isinstance(value, int):
            encoded += b"l" + struct.pack(">q", value)
        else:
            encoded += b"S" + struct.pack(">I", len(value)) + value.encode()
    return struct.pack(">I", len(encoded)) + encoded


def _large_publication(queue: str, size: int = LARGE_BYTES) -> bytes:
    publish = method(60, 40, b"\0\0" + short("") + short(queue) + b"\0")
    head = frame(HEADER, CHANNEL, struct.pack(">HHQHB", 60, 0, size, 0x1000, 2))
    body = bytes(_FRAME_BYTES)
    whole, rest = divmod(size, _FRAME_BYTES)
    return publish + head + whole * frame(BODY, CHANNEL, body) + frame(BODY, CHANNEL, body[:rest])


def _publish_confirmed(stage: Stage, queue: str, size: int = LARGE_BYTES) -> None:
    with stage.broker.amqp() as other:
        other.confirm()
        other.send(_large_publication(queue, size))
        other.expect(amqp_wire.ACK)


def _publish_between(stage: Stage) -> Work:
    """As a busy client does: others are in the same block of bytes as its end."""
    _declare(stage, "large-between")
    small = amqp_wire.publication("", "large-between", b"hello", persistent=True)
    sent = 10 * small + _large_publication("large-between") + 10 * small

    def work() -> None:
        with stage.broker.amqp() as other:
            other.send(sent)
            _await_count(stage, "large-between", 21)

    return work


def _publish_large(kind: str, stage: Stage) -> Work:
    _declare(stage, f"large-{kind}", queue_type=kind)
    return lambda: _publish_confirmed(stage, f"large-{kind}")


def _deliver_large(kind: str, stage: Stage) -> Work:
    _declare(stage, f"large-{kind}", queue_type=kind)
    _publish_confirmed(stage, f"large-{kind}")
    other = stage.broker.amqp()
    other.prefetch(1)
    begin = _table({"x-stream-offset": "first"}) if kind == "stream" else _table({})

    def work() -> None:
        consume = b"\0\0" + short(f"large-{kind}") + short("tag") + b"\0" + begin
        other.send(method(60, 20, consume))
        other.expect(amqp_wire.CONSUME_OK)
        other.expect(amqp_wire.DELIVER)
        _read_body(other)
        other.socket.close()

    return work


def _read_body(other: amqp_wire.Connection) -> None:
    _, head = other.frame()
    left = struct.unpack_from(">Q", head, 4)[0]
    while left:
        left -= len(other.frame()[1])


def _get_large(stage: Stage) -> Work:
    """Others push it out of the cache before."""
    _declare(stage, "large-got")
    _publish_confirmed(stage, "large-got")
    _declare(stage, "large-other")
    _publish_confirmed(stage, "large-other")
    stage.amqp.delete_queue("large-other")

    def work() -> None:
        with stage.broker.amqp() as other:
            other.send(method(60, 70, b"\0\0" + short("large-got") + b"\x01"))
            other.expect(_GET_OK)
            _read_body(other)

    return work


def _dead_letter_large(stage: Stage) -> Work:
    _declare(stage, "large-dead")
    _declare(stage, "large-dying", dead_letter_exchange="", dead_letter_routing_key="large-dead")
    _publish_confirmed(stage, "large-dying")
    other = stage.broker.amqp()
    other.consume("large-dying", "tag", auto_ack=False)
    other.expect(amqp_wire.DELIVER)
    _read_body(other)

    def work() -> None:
        other.send(method(60, 90, struct.pack(">QB", 1, 0)))
        _await_count(stage, "large-dead", 1)
        other.socket.close()

    return work


def _await_count(stage: Stage, queue: str, count: int) -> None:
    with stage.broker.amqp() as looking:
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            if looking.count(queue) == count:
                return
            time.sleep(0.05)
        raise Refused(f"{queue} has {looking.count(queue)} messages, not {count}")


# --- many messages


def _many() -> Rows:
    for queue in ("transient", "durable"):
        for name, frames in _answers().items():
            yield f"{name} of 100,000, {queue}", partial(_answered, name, frames, queue)
    yield "basic.nack of 100,000, dead-lettered", _nack_dead
    yield "tx.commit of 100,000 messages", _commit
    yield "expiry of 100,000, dead-lettered", _expire
    yield "queue.delete with 100,000", _delete_full
    yield "rewind of 1,000,000", _rewind
    yield "rewind of 1,000,000, all but one dropped", partial(_rewind, max_length=1)
    yield "rewind of 1,000,000, counted in bytes", partial(_rewind, max_length_bytes=1 << 30)
    yield "move of 100,000", _move
    yield "disconnect with 100,000 unacked, durable", partial(_answered, "", (), "durable")


def _answers() -> dict[str, tuple[bytes, ...]]:
    return {
        "basic.ack": (method(60, 80, struct.pack(">QB", 0, 1)),),
        "basic.nack": (method(60, 120, struct.pack(">QB", 0, 3)),),
        "basic.nack, not requeued,": (method(60, 120, struct.pack(">QB", 0, 1)),),
        "basic.recover": (method(60, 110, b"\x01"),),
    }


def _filled(stage: Stage, queue: str, **given: str | int) -> None:
    """A new queue with many messages, persistent where the queue is durable."""
    stage.amqp.delete_queue(queue)
    if given.pop("transient", 0):
        stage.amqp.declare_queue(queue)
        message = amqp_wire.publication("", queue, b"hello", persistent=False)
    else:
        _declare(stage, queue, **given)
        message = amqp_wire.publication("", queue, b"hello", persistent=True)
    with stage.broker.amqp() as other:
        for _ in range(MANY // 1_000):
            other.send(1_000 * message)
        _await_count(stage, queue, MANY)


def _held(stage: Stage, queue: str) -> amqp_wire.Connection:
    """A connection that has all of them, and no room for more."""
    other = stage.broker.amqp()
    other.consume(queue, "tag", auto_ack=False)
    for _ in range(3 * MANY):
        other.frame()
    other.send(method(60, 30, short("tag") + b"\0"))
    other.expect(amqp_wire.CANCEL_OK)
    return other


def _answered(name: str, frames: tuple[bytes, ...], kind: str, stage: Stage) -> Work:
    _filled(stage, "many", transient=int(kind == "transient"))
    other = _held(stage, "many")

    def work() -> None:
        if not frames:
            other.socket.close()
        for each in frames:
            other.send(each)
        time.sleep(1)
        if name == "basic.recover":
            other.expect(_RECOVER_OK)
        other.socket.close()

    return work


def _dead_lettering(stage: Stage, **given: str | int) -> None:
    stage.amqp.delete_queue("dead")
    _declare(stage, "dead")
    letters: dict[str, str | int] = {
        "dead_letter_exchange": "",
        "dead_letter_routing_key": "dead",
    }
    _filled(stage, "dying", **letters, **given)


def _nack_dead(stage: Stage) -> Work:
    _dead_lettering(stage)
    other = _held(stage, "dying")

    def work() -> None:
        other.send(method(60, 120, struct.pack(">QB", 0, 1)))
        _await_count(stage, "dead", MANY)
        other.socket.close()

    return work


def _expire(stage: Stage) -> Work:
    _dead_lettering(stage, message_ttl=10_000)
    return lambda: _await_count(stage, "dead", MANY)


def _commit(stage: Stage) -> Work:
    stage.amqp.delete_queue("many")
    _declare(stage, "many")
    other = stage.broker.amqp()
    other.send(method(90, 10, b""))
    other.expect(_SELECT_OK)
    message = amqp_wire.publication("", "many", b"hello", persistent=True)
    for _ in range(MANY // 1_000):
        other.send(1_000 * message)

    def work() -> None:
        other.send(method(90, 20, b""))
        other.expect(_COMMIT_OK)
        other.socket.close()

    return work


def _delete_full(stage: Stage) -> Work:
    _filled(stage, "many")
    return lambda: stage.amqp.delete_queue("many")


def _rewind(stage: Stage, **given: str | int) -> Work:
    """A queue that keeps few has had all of them, one after the other."""
    stage.amqp.delete_queue("rewound")
    _declare(stage, "rewound", **given)
    message = amqp_wire.publication("", "rewound", b"hello", persistent=True)
    with stage.broker.amqp() as other:
        for _ in range(1_000):
            other.send(1_000 * message)
        _await_count(stage, "rewound", int(given.get("max_length", 1_000_000)))
    stage.http("DELETE", "/api/queues/%2F/rewound/contents")

    def work() -> None:
        stage.http("POST", "/api/queues/%2F/rewound/rewind", b'{"offset": 0}')
        time.sleep(2)

    return work


def _move(stage: Stage) -> Work:
    _filled(stage, "many")
    stage.amqp.delete_queue("moved")
    _declare(stage, "moved")
    return lambda: stage.http("POST", "/api/queues/%2F/many/move", b'{"to": "moved"}')


# --- compaction


def _compaction(stage: Stage) -> Work:
    """One of the keys comes again, so all that is left of the batch is written anew."""
    settings = [("cleanup.policy", "compact"), ("max.message.bytes", str(64 << 20))]
    settings += [("segment.bytes", "1048576"), ("min.cleanable.dirty.ratio", "0.01")]
    stage.ask(wide.create_topics([("cleaned", 1)], settings))
    now_ms = int(time.time() * 1_000)
    body = wide.distinct_records(1_000_000)
    batches = [wide.record_batch(body, 1_000_000, now_ms, is_gzip=True)]
    batches += [wide.record_batch(wide.distinct_records(1), 1, now_ms)]
    batches += [wide.record_batch(wide.distinct_records(100_000), 100_000, now_ms)] * 2

    def work() -> None:
        for batch in batches:
            stage.ask(wide.produce([("cleaned", 0, batch)]))
        time.sleep(15)

    return work


# --- over HTTP


def _over_http() -> Rows:
    yield "POST publish, 32 MiB of base64", _publish_base64
    yield "POST publish, 32 MiB of escapes", _publish_escaped
    yield "POST publish, 32 MiB of objects", _refused(_publish_path, _objects)
    yield "POST definitions, 32 MiB of objects", _refused("/api/definitions", _objects)
    yield "POST definitions, 32 MiB of queues", _refused("/api/definitions", _wrong_queues)
    yield "POST get, 10,000 messages", partial(_taken, "ack_requeue_true", 1)
    yield "POST get, 32 MiB", partial(_taken, "ack_requeue_false", 3_000)
    yield "POST get, peek", partial(_taken, "peek", 1)
    yield "lease of 100,000", _lease
    yield "lease of one message of 32 MiB", _lease_large


_publish_path = "/api/exchanges/%2F/amq.default/publish"


def _message(payload: str, encoding: str) -> bytes:
    fields = {"properties": {}, "routing_key": "posted", "payload_encoding": encoding}
    return json.dumps({**fields, "payload": payload}).encode()


def _publish_base64(stage: Stage) -> Work:
    _declare(stage, "posted")
    body = _message(base64.b64encode(bytes(HTTP_BYTES // 4 * 3 - 3_000)).decode(), "base64")
    return lambda: stage.http("POST", _publish_path, body)


def _publish_escaped(stage: Stage) -> Work:
    _declare(stage, "posted")
    body = _message((HTTP_BYTES // 6 - 100) * "\0", "string")
    return lambda: stage.http("POST", _publish_path, body)


def _objects(stage: Stage) -> bytes:
    return b'{"queues":[' + (HTTP_BYTES // 3 - 10) * b"{}," + b"{}]}"


def _wrong_queues(stage: Stage) -> bytes:
    """The first has no name, so it ends there."""
    row = json.dumps({"vhost": "/", "durable": True, "arguments": {"a": [1, 2, "three"]}}).encode()
    return b'{"queues":[' + (HTTP_BYTES // (len(row) + 1) - 10) * (row + b",") + row + b"]}"


def _refused(path: str, make: Callable[[Stage], bytes]) -> Callable[[Stage], Work]:
    def prepare(stage: Stage) -> Work:
        body = make(stage)

        def work() -> None:
            try:
                stage.http("POST", path, body)
            except Refused:
                return
            raise AssertionError("it was not refused")

        return work

    return prepare


def _taken(mode: str, size: int, stage: Stage) -> Work:
    stage.amqp.delete_queue("taken")
    _declare(stage, "taken")
    message = amqp_wire.publication("", "taken", size * b"x", persistent=True)
    with stage.broker.amqp() as other:
        for _ in range(10):
            other.send(1_000 * message)
        _await_count(stage, "taken", 10_000)
    body = json.dumps({"count": 10_000, "ackmode": mode, "encoding": "auto"}).encode()
    return lambda: stage.http("POST", "/api/queues/%2F/taken/get", body)


def _lease(stage: Stage) -> Work:
    _filled(stage, "many")
    body = json.dumps({"count": MANY, "seconds": 1}).encode()

    def work() -> None:
        stage.http("POST", "/api/queues/%2F/many/lease", body)
        time.sleep(1.5)

    return work


def _lease_large(stage: Stage) -> Work:
    stage.amqp.delete_queue("large-leased")
    _declare(stage, "large-leased")
    _publish_confirmed(stage, "large-leased", HTTP_BYTES)
    body = json.dumps({"count": 1, "messages": True, "encoding": "base64"}).encode()
    return lambda: stage.http("POST", "/api/queues/%2F/large-leased/lease", body)
