"""Reads the fields of one packet. Whatever is wrong with them raises MqttError."""

from entrepot.wire.mqtt.reasons import malformed
from entrepot.wire.mqtt.topics import read_text

_VARIABLE_BYTES_MAX = 4


class Reader:
    __slots__ = ("at", "data", "end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self.data = data
        self.at = at
        self.end = len(data) if end is None else end

    def take(self, size: int) -> bytes:
        at = self.at
        if at + size > self.end:
            raise malformed("a packet that ends too early")
        self.at = at + size
        return self.data[at : at + size]

    def byte(self) -> int:
        at = self.at
        if at >= self.end:
            raise malformed("a packet that ends too early")
        self.at = at + 1
        return self.data[at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        """Read a number of one to four bytes, in as few as it needs."""
        value = 0
        for place in range(_VARIABLE_BYTES_MAX):
            byte = self.byte()
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                if place and not byte:
                    raise malformed("a number in more bytes than it needs")
                return value
        raise malformed("a number of more than four bytes")

    def binary(self) -> bytes:
        return self.take(self.number(2))

    def text(self) -> str:
        return read_text(self.binary())

    def packet_id(self) -> int:
        packet_id = self.number(2)
        if not packet_id:
            raise malformed("packet identifier 0")
        return packet_id

    @property
    def is_done(self) -> bool:
        return self.at >= self.end

    def finish(self) -> None:
        """Check that nothing is left."""
        if self.at != self.end:
            raise malformed(f"{self.end - self.at} bytes after the end of a packet")


def variable_bytes(value: int) -> bytes:
    """Return a number as one to four bytes."""
    if value < 0x80:
        return bytes((value,))
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    assert len(found) <= _VARIABLE_BYTES_MAX
    return bytes(found)


def sized(data: bytes) -> bytes:
    """Return the bytes with their size before them. Raises MqttError if there are too many."""
    if len(data) > 0xFFFF:
        raise malformed(f"a text of {len(data)} bytes")
    return len(data).to_bytes(2, "big") + data
