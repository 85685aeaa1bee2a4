"""STOMP's side: conversations of every version, with headers that are right and that are not."""

import re
from collections.abc import Iterable
from random import Random

from entrepot.wire.stomp.frames import frame_bytes
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged, place_near_end, with_echoes

ANSWER = re.compile(rb"\nreceipt-id:echo\n")
SESSION = b"fuzz-session-id-"  # In the place of the session's own, with which its messages begin.
_KINDS = (
    *["SEND"] * 6, *["SUBSCRIBE"] * 3, "UNSUBSCRIBE", "ACK", "NACK", "BEGIN", "COMMIT", "ABORT",
    "BEAT",
)  # fmt: skip

_NAMES = ("q1", "q2", "orders", "amq.x", "a%2Fb", "x" * 300, "", "é", "a.b", "#", "*", "%zz", "%00")
_DESTINATIONS = (
    *[f"/queue/{name}" for name in _NAMES],
    *[f"/topic/{name}" for name in _NAMES],
    *[f"/exchange/{name}" for name in ("amq.fanout", "amq.topic/a", "amq.headers/x", "none", "")],
    *("/amq/queue/q1", "/amq/queue/none", "/temp-queue/t", "/reply-queue/q1", "q1", "", "/"),
)
_QUEUE_HEADERS = (
    ("x-message-ttl", ("0", "1", "60000", "-1", "x", "9" * 30)),
    ("x-max-length", ("0", "1", "5", "x")),
    ("x-max-priority", ("0", "3", "255", "256")),
    ("x-expires", ("0", "1", "50", "x")),
    ("x-overflow", ("reject-publish", "drop-head", "x")),
    ("x-queue-type", ("classic", "quorum", "stream", "x")),
    ("x-dead-letter-exchange", ("", "amq.fanout", "none", "x" * 300)),
    ("x-dead-letter-routing-key", ("q1", "q2", "x" * 300)),
    ("x-single-active-consumer", ("true", "false", "x")),
    ("x-queue-name", ("q1", "own", "amq.x", "")),
    ("durable", ("true", "false", "x")),
    ("exclusive", ("true", "false")),
    ("auto-delete", ("true", "false")),
)
_MESSAGE_HEADERS = (
    ("priority", ("0", "9", "256", "x")),
    ("expiration", ("0", "1", "1000", "-1", "9" * 25)),
    ("timestamp", ("0", "1700000000", "x", "9" * 25)),
    ("persistent", ("true", "false", "x")),
    ("reply-to", ("/temp-queue/t", "/temp-queue/", "/queue/q1", "x", "")),
    ("user-id", ("guest", "ana")),
    ("content-type", ("text/plain", "x" * 300, "")),
    ("x-delay", ("1", "-1", "x", "9" * 12)),
)
# What is wrong in every message, or whatever its body is not.
_WRONG_HEADERS = (
    ("message-id", ("1",)),
    ("content-length", ("0", "1", "5", "99999999", "-1", "x")),
)
_BODIES = (b"", b"x", b"a\0b", b"x" * 300, b"\xff" * 20, b"x" * 20_000)
_TEXTS = ("a", "é", "a:b\n", "\\", "x" * 300, "\r", "\N{PILE OF POO}")
_ODD_TEXTS = (*_TEXTS, "destination", "ack")
_HEART_BEATS = (*["0,0", "100,100", "1,1", "0,60000", "9999999999,0"] * 5, "x")


def learn(data: bytes) -> dict[bytes, bytes]:
    found = re.search(rb"\nsession:([^\n]{16})\n", data)
    return {SESSION: found[1]} if found else {}


def speak(random: Random) -> list[bytes]:
    """A conversation with at most one mistake, which ends it."""
    version = random.choice(("1.0", "1.1", "1.2", "1.2"))
    frames = [connect(random, version), *conversation(random, version)]
    chance = random.random()
    if chance < 0.3:
        frames.append(damaged(random, random.choice(frames)))
    elif chance < 0.7:
        odd = Damaged(frame(random, version, random.choice(_KINDS), is_odd=True))
        frames.insert(max(1, place_near_end(random, frames)), odd)
    echo = [("destination", "/exchange/amq.direct/echo"), ("receipt", "echo")]
    frames = with_echoes(random, frames, frame_bytes("SEND", echo, version=version))
    frames.append(frame_bytes("DISCONNECT", [("receipt", "bye")], version=version))
    return frames


def connect(random: Random, version: str) -> bytes:
    headers = [("accept-version", version), ("host", random.choice(("/", "/", "localhost")))]
    if random.random() < 0.5:
        headers += [("login", "guest"), ("passcode", "guest" if random.random() < 0.98 else "x")]
    if random.random() < 0.3:
        headers.append(("heart-beat", random.choice(_HEART_BEATS)))
    return frame_bytes(random.choice(("CONNECT", "STOMP")), headers, version=version)


def conversation(random: Random, version: str) -> list[bytes]:
    """Frames that are right also in their order."""
    frames: list[bytes] = []
    subscribed: set[str] = set()
    begun: set[str] = set()
    for _ in range(random.choice((2, 5, 10, 20))):
        command, one = random.choice(_KINDS), random.choice("1234")
        name = random.choice("tu")
        is_wrong = (
            (command == "SUBSCRIBE" and one in subscribed)
            or (command in ("UNSUBSCRIBE", "ACK", "NACK") and one not in subscribed)
            or (command == "BEGIN" and name in begun)
            or (command in ("COMMIT", "ABORT") and name not in begun)
            # Nobody knows beforehand whether there is a message.
            or (command in ("ACK", "NACK") and random.random() < 0.8)
        )
        if is_wrong:
            command = "SEND"
        frames.append(frame(random, version, command, one, name, begun))
        if command == "SUBSCRIBE":
            subscribed.add(one)
        elif command == "UNSUBSCRIBE":
            subscribed.remove(one)
        elif command == "BEGIN":
            begun.add(name)
        elif command in ("COMMIT", "ABORT"):
            begun.remove(name)
    return frames


def frame(
    random: Random,
    version: str,
    command: str,
    one: str = "1",
    name: str = "t",
    begun: Iterable[str] = (),
    *,
    is_odd: bool = False,
) -> bytes:
    """One that is right in form. Escapes are those of the version."""
    if command == "BEAT":
        return b"\n" * random.randrange(1, 100)
    headers = _headers(random, command, one, name, is_odd=is_odd)
    if random.random() < 0.4:
        headers.append(("receipt", random.choice(("r", "1", "a:b\\", "x" * 300))))
    transactions = "tuv" if is_odd else sorted(begun)
    if command in ("SEND", "ACK", "NACK") and transactions and random.random() < 0.2:
        headers.append(("transaction", random.choice(transactions)))
    random.shuffle(headers)
    body = random.choice(_BODIES) if command == "SEND" else b""
    return frame_bytes(command, headers, body, version)


def _headers(
    random: Random, command: str, one: str, name: str, *, is_odd: bool
) -> list[tuple[str, str]]:
    if command == "SEND":
        headers = [("destination", _destination(random, is_odd))]
        headers += _some(random, _MESSAGE_HEADERS, is_odd)
        if is_odd and random.random() < 0.5:
            headers += _some(random, (*_QUEUE_HEADERS, *_WRONG_HEADERS), is_odd)
        if random.random() < 0.3:
            texts = _ODD_TEXTS if is_odd else _TEXTS
            headers.append((random.choice(texts), random.choice(texts)))
        return headers
    if command == "SUBSCRIBE":
        headers = [("destination", _destination(random, is_odd)), ("id", one)]
        headers.append(("ack", random.choice(("auto", "client", "client-individual", "client"))))
        if is_odd and random.random() < 0.5:
            headers += _some(random, _QUEUE_HEADERS, is_odd)
        if random.random() < 0.3:
            headers.append(("prefetch-count", random.choice(("0", "1", "10"))))
        if is_odd and random.random() < 0.1:
            headers.append(random.choice((("selector", "a = 1"), ("prefetch-count", "x"))))
        return headers
    if command == "UNSUBSCRIBE":
        durable = _some(random, (("durable", ("true", "x")),), is_odd) if is_odd else []
        return [("id", one), *durable]
    if command in ("ACK", "NACK"):
        # The first messages of a subscription, if it got any, or else this is a mistake.
        text = f"{SESSION.decode()}-{one}-{random.choice((1, 1, 2, 3))}"
        if is_odd:
            text = random.choice(("1", "a-1-1", "x-x-x", "-1", "9" * 40, text))
        requeue = _some(random, (("requeue", ("true", "false", "x")),), is_odd)
        return [("id", text), ("message-id", text), ("subscription", one), *requeue]
    return [("transaction", name)]


def _destination(random: Random, is_odd: bool) -> str:
    usual = ("/queue/q1", "/queue/q2", "/topic/a.b", "/exchange/amq.fanout")
    return random.choice(_DESTINATIONS if is_odd and random.random() < 0.5 else usual)


def _some(
    random: Random, headers: tuple[tuple[str, tuple[str, ...]], ...], is_odd: bool
) -> list[tuple[str, str]]:
    """Seldom any, and of each the first value unless it is to be odd."""
    return [
        (name, random.choice(values) if is_odd else values[0])
        for name, values in headers
        if random.random() < (0.2 if is_odd else 0.06)
    ]
