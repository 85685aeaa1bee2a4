"""Rows of `stalls` about MQTT and STOMP, and about very many clients that go at once.

A row prepares what it needs, so that any of them can be run without the others.
"""

from __future__ import annotations

import resource
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from bench.wire import Refused

if TYPE_CHECKING:
    from bench.stalls import Rows, Stage, Work

MANY = 100_000
CLIENTS = 10_000
FILTERS = 10_000  # In one packet.
IN_TRANSACTION = 99_000
_CONNACK, _SUBACK, _PUBLISH, _PUBACK, _UNSUBACK, _PINGRESP = 0x20, 0x90, 0x30, 0x40, 0xB0, 0xD0


def rows() -> Rows:
    yield from _mqtt()
    yield from _stomp()
    for protocol in ("amqp", "mqtt", "stomp"):
        yield f"10,000 clients of {protocol} disconnect", partial(_disconnect_all, protocol)


# --- MQTT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def _packet(first: int, body: bytes) -> bytes:
    size, length = len(body), b""
    while True:
        size, digit = size >> 7, size & 127
        length += bytes([digit | (128 if size else 0)])
        if not size:
            return bytes([first]) + length + body


class Mqtt:
    """A client of MQTT 5, with next to nothing."""

    def __init__(self, stage: Stage, name: str, *, keeps: bool = False) -> None:
        """`keeps` means: its session outlives the connection."""
        self.socket = stage.connect("mqtt")
        self._input = bytearray()
        properties = b"\x11" + struct.pack(">I", 3_600 if keeps else 0)
        flags = 0 if keeps else 2
        body = _text("MQTT") + bytes([5, flags, 0, 0, len(properties)]) + properties + _text(name)
        self.socket.sendall(_packet(0x10, body))
        self.expect(_CONNACK)

    def packet(self) -> tuple[int, bytes]:
        while True:
            size = shift = 0
            for place, byte in enumerate(self._input[1:5], 1):
                size |= (byte & 127) << shift
                shift += 7
                if byte < 128:
                    end = place + 1 + size
                    if len(self._input) >= end:
                        found = self._input[0], bytes(self._input[place + 1 : end])
                        del self._input[:end]
                        return found
                    break
            data = self.socket.recv(1 << 20)
            if not data:
                raise Refused("the broker closed the connection")
            self._input += data

    def expect(self, kind: int) -> bytes:
        found, body = self.packet()
        if found & 0xF0 != kind:
            raise Refused(f"a packet {found:#x}, not {kind:#x}: {body[:100]!r}")
        return body

    def subscribe(self, filters: Iterable[str], qos: int = 1) -> None:
        body = b"\0\1\0" + b"".join(_text(each) + bytes([qos]) for each in filters)
        self.socket.sendall(_packet(0x82, body))

    def unsubscribe(self, filters: Iterable[str]) -> None:
        self.socket.sendall(_packet(0xA2, b"\0\1\0" + b"".join(map(_text, filters))))

    def publish(self, topics: list[str], body: bytes = b"hello", *, retained: bool = False) -> None:
        """One to each, at least once, and wait for all answers."""
        first = 0x32 | retained
        for start in range(0, len(topics), 500):
            some = topics[start : start + 500]
            self.socket.sendall(
                b"".join(
                    _packet(first, _text(topic) + struct.pack(">HB", number, 0) + body)
                    for number, topic in enumerate(some, 1)
                )
            )
            for _ in some:
                self.expect(_PUBACK)

    def take(self, count: int) -> None:
        """Read so many publishes, and acknowledge them."""
        for _ in range(count):
            first, body = self.packet()
            if first & 0xF0 != _PUBLISH:
                raise Refused(f"a packet {first:#x}, not a PUBLISH")
            if first & 0x06:
                size = struct.unpack_from(">H", body)[0]
                self.socket.sendall(b"\x40\x02" + body[2 + size : 4 + size])


def _mqtt() -> Rows:
    yield "SUBSCRIBE, 10,000 filters", _subscribe
    yield "UNSUBSCRIBE, 10,000 filters", _unsubscribe
    yield "SUBSCRIBE, # with 100,000 retained", _retained
    yield "CONNECT, 100,000 messages wait", _waiting_session
    yield "CONNECT, 100,000 subscriptions, clean start", _clean_start
    yield "PUBLISH to 20,000 sessions", _publish_wide
    yield "PUBLISH to 5,000 clients, at most once", _publish_live


def _filters(kind: str) -> list[str]:
    return [f"{kind}/{number}/+" for number in range(FILTERS)]


def _subscribe(stage: Stage) -> Work:
    client = Mqtt(stage, "wide", keeps=True)

    def work() -> None:
        client.subscribe(_filters("a"))
        client.expect(_SUBACK)

    return work


def _unsubscribe(stage: Stage) -> Work:
    client = Mqtt(stage, "wide", keeps=True)
    client.subscribe(_filters("a"))
    client.expect(_SUBACK)

    def work() -> None:
        client.unsubscribe(_filters("a"))
        client.expect(_UNSUBACK)

    return work


def _retained(stage: Stage) -> Work:
    sender = Mqtt(stage, "sender")
    sender.publish([f"kept/{number}" for number in range(MANY)], retained=True)
    client = Mqtt(stage, "collector")

    def work() -> None:
        client.subscribe(["#"], 0)
        client.expect(_SUBACK)
        client.take(MANY)

    return work


def _waiting_session(stage: Stage) -> Work:
    client = Mqtt(stage, "away", keeps=True)
    client.subscribe(["away"])
    client.expect(_SUBACK)
    client.socket.close()
    Mqtt(stage, "sender").publish(["away"] * MANY)
    return lambda: Mqtt(stage, "away", keeps=True).take(MANY)


def _clean_start(stage: Stage) -> Work:
    client = Mqtt(stage, "forgetful", keeps=True)
    for number in range(10):
        client.subscribe(_filters(f"b{number}"))
        client.expect(_SUBACK)
    client.socket.close()

    def work() -> None:
        Mqtt(stage, "forgetful")
        time.sleep(1)

    return work


def _publish_wide(stage: Stage) -> Work:
    for number in range(len(stage.queues)):
        client = Mqtt(stage, f"many-{number}", keeps=True)
        client.subscribe(["everybody"])
        client.expect(_SUBACK)
        client.socket.close()
    sender = Mqtt(stage, "sender")
    return lambda: sender.publish(["everybody"])


def _publish_live(stage: Stage) -> Work:
    clients = [Mqtt(stage, f"live-{number}") for number in range(CLIENTS // 2)]
    for client in clients:
        client.subscribe(["live"], 0)
        client.expect(_SUBACK)
    sender = Mqtt(stage, "sender")

    def work() -> None:
        sender.publish(["live"])
        for client in clients:
            client.take(1)
            client.socket.close()

    return work


# --- STOMP


def stomp_frame(command: str, *headers: str, body: bytes = b"") -> bytes:
    return "\n".join([command, *headers]).encode() + b"\n\n" + body + b"\0"


class Stomp:
    def __init__(self, stage: Stage) -> None:
        self.socket = stage.connect("stomp")
        self._input = b""
        self._frames: list[bytes] = []
        self.socket.sendall(stomp_frame("CONNECT", "accept-version:1.2", "host:/"))
        self.expect(b"CONNECTED")

    def frame(self) -> bytes:
        while not self._frames:
            data = self.socket.recv(1 << 20)
            if not data:
                raise Refused("the broker closed the connection")
            *whole, self._input = (self._input + data).split(b"\0")
            self._frames = [each.lstrip(b"\n") for each in reversed(whole)]
        return self._frames.pop()

    def expect(self, command: bytes) -> bytes:
        found = self.frame()
        if not found.startswith(command):
            raise Refused(f"{found[:200]!r}, not {command!r}")
        return found

    def ask(self, command: str, *headers: str) -> None:
        self.socket.sendall(stomp_frame(command, *headers, "receipt:asked"))
        self.expect(b"RECEIPT")

    def send(self, queue: str, count: int, *headers: str) -> None:
        message = stomp_frame("SEND", f"destination:/queue/{queue}", *headers, body=b"hello")
        for _ in range(count // 1_000):
            self.socket.sendall(1_000 * message)
        self.ask("SEND", f"destination:/queue/{queue}", *headers)

    def acks(self, count: int) -> list[str]:
        """Read so many messages; return what they are acknowledged by."""
        found = []
        for _ in range(count):
            head = self.expect(b"MESSAGE").partition(b"\nack:")[2]
            found.append(head.partition(b"\n")[0].decode())
        return found


def _stomp() -> Rows:
    yield "SUBSCRIBE to 10,000 topics of STOMP", _stomp_subscribe
    yield "disconnect with 10,000 subscriptions", _stomp_unsubscribe
    yield "COMMIT of 99,000 messages", _stomp_commit
    yield "COMMIT of 99,000 acknowledgements", partial(_stomp_answers, "COMMIT", "ACK")
    yield "COMMIT of 99,000 refusals", partial(_stomp_answers, "COMMIT", "NACK")
    yield "ABORT of 99,000 acknowledgements", partial(_stomp_answers, "ABORT", "ACK")
    yield "disconnect with 99,000 unacknowledged", partial(_stomp_answers, "", "")


def _topics(count: int) -> bytes:
    frames = [
        stomp_frame("SUBSCRIBE", f"destination:/topic/t{number}", f"id:{number}")
        for number in range(count)
    ]
    return b"".join(frames)


def _stomp_subscribe(stage: Stage) -> Work:
    client = Stomp(stage)

    def work() -> None:
        client.socket.sendall(_topics(FILTERS - 1))
        client.ask("SUBSCRIBE", "destination:/topic/last", "id:last")
        client.socket.close()

    return work


def _stomp_unsubscribe(stage: Stage) -> Work:
    client = Stomp(stage)
    client.socket.sendall(_topics(FILTERS - 1))
    client.ask("SUBSCRIBE", "destination:/topic/last", "id:last")

    def work() -> None:
        client.socket.close()
        time.sleep(3)

    return work


def _stomp_commit(stage: Stage) -> Work:
    stage.amqp.delete_queue("committed")
    client = Stomp(stage)
    client.ask("BEGIN", "transaction:t")

    def work() -> None:
        client.send("committed", IN_TRANSACTION, "transaction:t")
        client.ask("COMMIT", "transaction:t")

    return work


def _stomp_answers(end: str, answer: str, stage: Stage) -> Work:
    stage.amqp.delete_queue("answered")
    sender, client = Stomp(stage), Stomp(stage)
    sender.send("answered", IN_TRANSACTION - 1_000)
    client.ask("BEGIN", "transaction:t")
    headers = ("destination:/queue/answered", "id:1", "ack:client-individual")
    client.socket.sendall(stomp_frame("SUBSCRIBE", *headers))
    ids = client.acks(IN_TRANSACTION - 1_000)
    if answer:
        given = ("transaction:t", *(["requeue:false"] if answer == "NACK" else []))
        frames = [stomp_frame(answer, f"id:{each}", *given) for each in ids[::-1]]
        client.socket.sendall(b"".join(frames))
        client.socket.sendall(stomp_frame("BEGIN", "transaction:u", "receipt:asked"))
        while not client.frame().startswith(b"RECEIPT"):
            pass

    def work() -> None:
        if end:
            client.socket.sendall(stomp_frame(end, "transaction:t", "receipt:done"))
            while not client.frame().startswith(b"RECEIPT"):
                pass
        client.socket.close()
        time.sleep(2)

    return work


# --- very many clients


def _disconnect_all(protocol: str, stage: Stage) -> Work:
    """Each has a queue of its own, or a session."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sockets = list(_connected(protocol, stage))

    def work() -> None:
        for each in sockets:
            each.close()
        time.sleep(5)

    return work


def _connected(protocol: str, stage: Stage) -> Iterator[socket.socket]:
    for number in range(CLIENTS):
        if protocol == "amqp":
            amqp = stage.broker.amqp()
            stage.declare([f"crowd-{number}"], 4, amqp)  # Exclusive.
            amqp.consume(f"crowd-{number}", "tag", auto_ack=False)
            yield amqp.socket
        elif protocol == "mqtt":
            mqtt = Mqtt(stage, f"crowd-{number}")
            mqtt.subscribe([f"crowd/{number}"])
            mqtt.expect(_SUBACK)
            yield mqtt.socket
        else:
            stomp = Stomp(stage)
            stomp.ask("SUBSCRIBE", f"destination:/topic/crowd.{number}", "id:1", "ack:client")
            yield stomp.socket
