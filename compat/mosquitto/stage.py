"""One broker as a case sees it: clients that say anything, and what was heard.

A case does things on a stage and says what a client sees of them. The same case is run on
the stages of two brokers, and what was seen has to be equal.
"""

import contextlib
import socket
import struct
import time
from collections.abc import Callable

import packets
from packets import V5, V31, V311

SOON_S = 10.0  # What should happen has happened by then, on a busy machine too.
CLOSING_S = 0.5  # A broker that closes a connection has done so by then.
QUIET_S = 0.03
CLOSED = "closed"

WORDS = {V31: "3.1", V311: "3.1.1", V5: "5"}


def only(*versions: int) -> Callable[[Callable], Callable]:
    """Mark a case that makes sense in these versions of MQTT. Without it, in all."""

    def mark(case: Callable) -> Callable:
        case.versions = versions
        return case

    return mark


class Peer:
    """One connection."""

    def __init__(self, address: tuple[str, int], version: int) -> None:
        self.version = version
        self.socket = socket.create_connection(address, timeout=SOON_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        self.is_closed = False
        self.numbers: dict[int, int] = {}  # Of the broker's messages, as they are shown.

    def send(self, *data: bytes) -> None:
        try:
            self.socket.sendall(b"".join(data))
        except OSError:
            self.is_closed = True

    # What is said, in this connection's version.

    def publish(self, topic: str | bytes, payload: str | bytes = "", qos: int = 0,
                packet_id: int | None = None, **how: object) -> None:  # fmt: skip
        self.send(packets.publish(self.version, topic, payload, qos, packet_id, **how))

    def subscribe(self, *filters: tuple[str, int], **how: object) -> None:
        self.send(packets.subscribe(self.version, *filters, **how))

    def unsubscribe(self, *filters: str, **how: object) -> None:
        self.send(packets.unsubscribe(self.version, *filters, **how))

    def ack(self, kind: str, packet_id: int, reason: int | None = None) -> None:
        self.send(packets.ack(kind, self.real(packet_id, kind), reason))

    def real(self, shown: int, kind: str = "PUBACK") -> int:
        """Return the identifier of a broker's message that is shown as that number."""
        names = {number: real for real, number in self.numbers.items()}
        return shown if kind == "PUBREL" else names.get(shown, shown)

    def disconnect(self, reason: int | None = None, given: packets.Properties = ()) -> None:
        self.send(packets.disconnect(self.version, reason, given))

    # What is heard.

    def _packet(self) -> tuple[int, bytes] | None:
        data = self._data
        size = shift = 0
        for at in range(1, min(5, len(data))):
            size |= (data[at] & 0x7F) << shift
            shift += 7
            if data[at] < 0x80:
                if len(data) < at + 1 + size:
                    return None
                self._data = data[at + 1 + size :]
                return data[0], data[at + 1 : at + 1 + size]
        return None

    def _read(self, seconds: float) -> bool:
        """Read something; return whether anything came, the end included."""
        if self.is_closed:
            return False
        self.socket.settimeout(max(seconds, 0.001))
        try:
            data = self.socket.recv(65_536)
        except TimeoutError:
            return False
        except OSError:
            data = b""
        self._data += data
        self.is_closed = not data
        return True

    def _take(self, found: list[str], chosen: tuple[int, ...] = packets.CHOSEN) -> bool:
        """Take all packets that are there; return whether a PINGRESP was among them."""
        has_pong = False
        while (packet := self._packet()) is not None:
            if packet == (packets.PINGRESP[0], b""):
                has_pong = True
            else:
                found.append(packets.show(*packet, self.version, self.numbers, chosen))
        return has_pong

    def next(self, chosen: tuple[int, ...] = packets.CHOSEN) -> str:
        """Return the next packet, or that it is closed."""
        deadline = time.monotonic() + SOON_S
        while time.monotonic() < deadline:
            packet = self._packet()
            if packet is not None:
                return packets.show(*packet, self.version, self.numbers, chosen)
            if self.is_closed:
                return CLOSED
            self._read(deadline - time.monotonic())
        return "nothing"

    def until(self, count: int) -> list[str]:
        """Return what comes until there are so many packets, and a little later."""
        found: list[str] = []
        deadline = time.monotonic() + SOON_S
        self._take(found)
        while len(found) < count and not self.is_closed and time.monotonic() < deadline:
            self._read(deadline - time.monotonic())
            self._take(found)
        return found + self.rest()

    def rest(self) -> list[str]:
        """Return what comes before two answers to PINGREQ, with a pause between."""
        found: list[str] = []
        for _ in range(2):
            while self._read(QUIET_S):
                self._take(found)
            if self.is_closed:
                break
            self.send(packets.PINGREQ)
            deadline = time.monotonic() + SOON_S
            while not self._take(found):
                if self.is_closed:
                    break
                if time.monotonic() > deadline:
                    return [*found, "no answer"]
                self._read(deadline - time.monotonic())
        self._take(found)
        return [*found, CLOSED] if self.is_closed else found

    def end(self, seconds: float = CLOSING_S) -> list[str]:
        """Return what comes until the broker closes, or that it does not."""
        found: list[str] = []
        deadline = time.monotonic() + seconds
        while not self.is_closed and (left := deadline - time.monotonic()) > 0:
            self._read(left)
            self._take(found)
        if not self.is_closed:
            return found + self.rest()
        self._take(found)
        return [*found, CLOSED]

    def vanish(self) -> None:
        """End without a word: the broker sees a reset."""
        linger = struct.pack("ii", 1, 0)
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.socket.close()
        self.is_closed = True


class Stage:
    def __init__(self, address: str, version: int) -> None:
        host, _, port = address.rpartition(":")
        self.address = host, int(port)
        self.version = version
        self._peers: list[Peer] = []
        self._numbers: dict[str, dict[int, int]] = {}  # By client id: see `Peer.numbers`.
        self.seen: list[tuple[str, object]] = []

    @property
    def is_5(self) -> bool:
        return self.version == V5

    def raw(self, version: int | None = None) -> Peer:
        self._peers.append(Peer(self.address, version or self.version))
        return self._peers[-1]

    def dial(self, client_id: str = "", version: int | None = None, **how: object) -> Peer:
        """Send CONNECT and read nothing."""
        peer = self.raw(version)
        if how.get("clean", True):
            self._numbers.pop(client_id, None)
        peer.numbers = self._numbers.setdefault(client_id, peer.numbers)
        peer.send(packets.connect(peer.version, client_id, **how))
        return peer

    def client(self, client_id: str, version: int | None = None, **how: object) -> Peer:
        """A client that is connected."""
        peer = self.dial(client_id, version, **how)
        answer = peer.next()
        assert answer.startswith("CONNACK"), answer
        assert " 0x0" in answer, answer
        return peer

    def kept(self, client_id: str, *, clean: bool = False, **how: object) -> Peer:
        """A client that is connected, with a session that outlives the connection."""
        if self.is_5:
            how["given"] = [(packets.SESSION_EXPIRY, 600), *how.get("given", ())]
        elif clean:  # Before version 5 a session that begins clean ends with its connection.
            peer = self.client(client_id)
            peer.disconnect()
            peer.end()
            clean = False
        return self.client(client_id, clean=clean, **how)

    def subscriber(self, client_id: str, *filters: tuple[str, int], **how: object) -> Peer:
        peer = self.client(client_id, **how)
        peer.subscribe(*filters)
        assert peer.next().startswith("SUBACK")
        return peer

    def see(self, what: str, value: object) -> None:
        self.seen.append((what, value))

    def clear(self) -> None:
        """End all connections and sessions, and take away what is retained."""
        for peer in self._peers:
            if not peer.is_closed:
                peer.send(packets.disconnect(peer.version))
            peer.socket.close()
        for client_id in filter(None, self._numbers):
            peer = Peer(self.address, V5)
            peer.send(packets.connect(V5, client_id))
            peer.next()
            peer.send(packets.disconnect(V5))
            peer.end()
            peer.socket.close()
        peer = Peer(self.address, V311)
        peer.send(packets.connect(V311, "clearing"), packets.subscribe(V311, ("#", 0)))
        for each in peer.rest():
            if each.startswith("PUBLISH") and " retain " in each:
                topic = each.split(" retain ")[0].split(" ", 3)[3].split(" id ")[0]
                peer.send(packets.publish(V311, topic, "", retain=True))
        peer.rest()
        peer.send(packets.disconnect(V311))
        peer.socket.close()
