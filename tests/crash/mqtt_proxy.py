"""A network between MQTT's clients and a broker that cuts, delays and repeats packets.

A packet is repeated at once, behind itself: over TCP nothing else can come twice. A connection is
cut anywhere, in the middle of a packet as well.
"""

import contextlib
import socket
import threading
import time
from random import Random
from types import TracebackType
from typing import Self

_PUBLISH, _PUBACK, _PUBCOMP = 3, 4, 7  # Types of packets; those between are acknowledgements.
_CHUNK_BYTES = 65_536
_DELAY_S_MAX = 0.02


class MqttProxy:
    def __init__(self, broker: tuple[str, int], seed: int, *, trouble: float = 0.02) -> None:
        """`trouble` is how probable each is, for what is read at once."""
        self._broker = broker
        self._random = Random(seed)
        self._trouble = trouble
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.cuts = self.delays = self.repeats = 0
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in [self._listener, *self._sockets]:
            _close(each)

    def be_kind(self) -> None:
        """Trouble nobody from now on."""
        self._trouble = 0.0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(self._broker, timeout=5)
                except OSError:
                    _close(client)
                    continue
                broker.settimeout(None)
                self._sockets = [each for each in self._sockets if each.fileno() >= 0]
                self._sockets += (client, broker)
                for pair in ((client, broker), (broker, client)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        rest = b""
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                packets, rest = _split(rest + data)
                if not packets:
                    continue
                if self._random.random() < self._trouble:
                    self.delays += 1
                    time.sleep(self._random.uniform(0, _DELAY_S_MAX))
                if self._random.random() < self._trouble:
                    self.cuts += 1
                    whole = b"".join(packets)
                    target.sendall(whole[: self._random.randrange(len(whole))])
                    break
                if self._random.random() < 5 * self._trouble:
                    place = self._random.randrange(len(packets))
                    packets.insert(place, _again(packets[place]))
                    self.repeats += 1
                target.sendall(b"".join(packets))
        _close(source)
        _close(target)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """Return whole packets, and the rest."""
    packets, at = [], 0
    while len(data) - at >= 2:
        size = shift = 0
        place = at + 1
        while place < len(data):
            size |= (data[place] & 0x7F) << shift
            shift += 7
            place += 1
            if data[place - 1] < 0x80:
                break
        else:
            break
        if place + size > len(data):
            break
        packets.append(data[at : place + size])
        at = place + size
    return packets, data[at:]


def _again(packet: bytes) -> bytes:
    """Return a packet that may come twice; of others, nothing."""
    type, qos = packet[0] >> 4, packet[0] >> 1 & 3
    if (type == _PUBLISH and qos == 2) or _PUBACK < type <= _PUBCOMP:
        return packet
    return b""
