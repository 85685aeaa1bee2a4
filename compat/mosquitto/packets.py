"""Packets of MQTT as bytes, right or wrong, and as words: written apart from the broker's codec.

Whatever a case says is sent as it is said, so that a case can be wrong in any way. What comes
back is shown as words, without what each broker may choose: texts of reasons and its limits.
"""

import struct
from collections.abc import Iterable

V31, V311, V5 = 3, 4, 5
NAMES = {V31: "MQIsdp", V311: "MQTT", V5: "MQTT"}
TYPES = [
    "RESERVED",
    "CONNECT",
    "CONNACK",
    "PUBLISH",
    "PUBACK",
    "PUBREC",
    "PUBREL",
    "PUBCOMP",
    "SUBSCRIBE",
    "SUBACK",
    "UNSUBSCRIBE",
    "UNSUBACK",
    "PINGREQ",
    "PINGRESP",
    "DISCONNECT",
    "AUTH",
]
PINGREQ, PINGRESP = b"\xc0\0", b"\xd0\0"

# Identifiers of properties, by how they are written.
BYTE, TWO, FOUR, VARIABLE, TEXT, BINARY, PAIR = range(7)
KINDS = {
    1: BYTE, 2: FOUR, 3: TEXT, 8: TEXT, 9: BINARY, 11: VARIABLE, 17: FOUR, 18: TEXT, 19: TWO,
    21: TEXT, 22: BINARY, 23: BYTE, 24: FOUR, 25: BYTE, 26: TEXT, 28: TEXT, 31: TEXT, 33: TWO,
    34: TWO, 35: TWO, 36: BYTE, 37: BYTE, 38: PAIR, 39: FOUR, 40: BYTE, 41: BYTE, 42: BYTE,
}  # fmt: skip
FORMAT, EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC, CORRELATION = 1, 2, 3, 8, 9
IDENTIFIER, SESSION_EXPIRY, WILL_DELAY, REASON_STRING = 11, 17, 24, 31
PROBLEM_INFORMATION, RESPONSE_INFORMATION = 23, 25
RECEIVE_MAXIMUM, ALIAS_MAXIMUM, ALIAS, USER, PACKET_SIZE = 33, 34, 35, 38, 39
# A broker may choose these.
CHOSEN = (18, REASON_STRING, RECEIVE_MAXIMUM, ALIAS_MAXIMUM, PACKET_SIZE, 26)

Properties = Iterable[tuple[int, object]]


def number(value: int) -> bytes:
    found = bytearray()
    while True:
        value, low = divmod(value, 128)
        found.append(low | (0x80 if value else 0))
        if not value:
            return bytes(found)


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(data)) + data


def one_property(kind: int, value: object) -> bytes:
    match KINDS.get(kind), value:
        case None, bytes(data):
            return bytes((kind,)) + data
        case int(how), int(amount) if how in (BYTE, TWO, FOUR):
            return bytes((kind,)) + amount.to_bytes((1, 2, 4)[how], "big")
        case int(how), int(amount) if how == VARIABLE:
            return bytes((kind,)) + number(amount)
        case int(how), (str() | bytes()) as data if how in (TEXT, BINARY):
            return bytes((kind,)) + text(data)
        case int(how), (name, data) if how == PAIR:
            return bytes((kind,)) + text(name) + text(data)
    raise ValueError((kind, value))


def properties(found: Properties, version: int = V5) -> bytes:
    if version != V5:
        return b""
    data = b"".join(one_property(*each) for each in found)
    return number(len(data)) + data


def packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + number(len(body)) + body


def connect(
    version: int,
    client_id: str | bytes = "",
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: tuple[str, str] | None = None,
    will_qos: int = 0,
    will_retain: bool = False,
    will_given: Properties = (),
    user: str | None = None,
    password: str | None = None,
    given: Properties = (),
    name: str | None = None,
    level: int | None = None,
    flags: int | None = None,
) -> bytes:
    bits = clean << 1
    if will is not None:
        bits |= 4 | will_qos << 3 | will_retain << 5
    bits |= (user is not None) << 7 | (password is not None) << 6
    body = text(NAMES.get(version, "MQTT") if name is None else name)
    body += bytes((version if level is None else level, bits if flags is None else flags))
    body += struct.pack(">H", keep_alive) + properties(given, version) + text(client_id)
    if will is not None:
        body += properties(will_given, version) + text(will[0]) + text(will[1])
    for each in (user, password):
        body += b"" if each is None else text(each)
    return packet(0x10, body)


def publish(
    version: int,
    topic: str | bytes,
    payload: str | bytes = "",
    qos: int = 0,
    packet_id: int | None = None,
    *,
    retain: bool = False,
    dup: bool = False,
    given: Properties = (),
) -> bytes:
    body = text(topic)
    if qos or packet_id is not None:
        body += struct.pack(">H", 1 if packet_id is None else packet_id)
    body += properties(given, version)
    body += payload.encode() if isinstance(payload, str) else payload
    return packet(0x30 | dup << 3 | qos << 1 | retain, body)


def subscribe(
    version: int, *filters: tuple[str | bytes, int], packet_id: int = 1, given: Properties = ()
) -> bytes:
    body = struct.pack(">H", packet_id) + properties(given, version)
    return packet(0x82, body + b"".join(text(each) + bytes((how,)) for each, how in filters))


def unsubscribe(
    version: int, *filters: str | bytes, packet_id: int = 1, given: Properties = ()
) -> bytes:
    body = struct.pack(">H", packet_id) + properties(given, version)
    return packet(0xA2, body + b"".join(map(text, filters)))


def ack(kind: str, packet_id: int, reason: int | None = None) -> bytes:
    first = TYPES.index(kind) << 4 | (2 if kind == "PUBREL" else 0)
    body = struct.pack(">H", packet_id)
    return packet(first, body if reason is None else body + bytes((reason,)))


def disconnect(version: int, reason: int | None = None, given: Properties = ()) -> bytes:
    if version != V5 or reason is None:
        return packet(0xE0, b"")
    return packet(0xE0, bytes((reason,)) + properties(given))


# --- as words


class Bytes:
    """What is left of a packet that is read."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def __bool__(self) -> bool:
        return bool(self.data)

    def take(self, size: int) -> bytes:
        found, self.data = self.data[:size], self.data[size:]
        if len(found) < size:
            raise ValueError("a packet that is cut off")
        return found

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def variable(self) -> int:
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self) -> str:
        return self.take(self.number(2)).decode("utf-8", "backslashreplace")

    def rest(self) -> bytes:
        return self.take(len(self.data))

    def properties(self) -> list[tuple[int, object]]:
        found: list[tuple[int, object]] = []
        some = Bytes(self.take(self.variable()))
        while some:
            kind = some.variable()
            how = KINDS[kind]
            value: object
            if how in (BYTE, TWO, FOUR):
                value = some.number((1, 2, 4)[how])
            elif how == VARIABLE:
                value = some.variable()
            elif how == PAIR:
                value = some.text(), some.text()
            else:
                value = some.text()
            found.append((kind, value))
        return found


def show(
    first: int,
    body: bytes,
    version: int,
    numbers: dict[int, int],
    chosen: tuple[int, ...] = CHOSEN,
) -> str:
    """Return a packet from a broker as words, without the properties of `chosen`.

    Which identifiers a broker gives its messages is its own choice: they are shown as 1, 2, 3…, and
    `numbers` remembers which is which.
    """
    kind, some = TYPES[first >> 4], Bytes(body)
    words = [kind]
    is_5 = version == V5
    if kind == "CONNACK":
        words += ["present" if some.number(1) else "new", hex(some.number(1))]
    elif kind == "PUBLISH":
        qos = first >> 1 & 3
        topic = some.text()
        words += [f"qos {qos}", topic]
        words += [f"id {numbers.setdefault(some.number(2), len(numbers) + 1)}"] if qos else []
        words += [word for bit, word in ((8, "dup"), (1, "retain")) if first & bit]
    elif kind in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        number = some.number(2)
        words += [f"id {numbers.get(number, number) if kind == 'PUBREL' else number}"]
        words += [hex(some.number(1))] if is_5 and some else ["0x0"]
    elif kind in ("SUBACK", "UNSUBACK"):
        words += [f"id {some.number(2)}"]
    elif kind in ("DISCONNECT", "AUTH"):
        words += [hex(some.number(1))] if some else ["0x0"]
    if is_5 and some and kind not in ("PINGRESP",):
        told = [each for each in some.properties() if each[0] not in chosen]
        words += [repr(told)] if told else []
    if kind in ("SUBACK", "UNSUBACK"):
        words += [hex(each) for each in some.rest()]
    elif kind == "PUBLISH":
        data = some.rest()
        words += [repr(data.decode("utf-8", "backslashreplace")[:40]), str(len(data))]
    elif some:
        words += [f"and {some.rest().hex()}"]
    return " ".join(words)
