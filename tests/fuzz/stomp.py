"""STOMP's side: conversations of every version, with headers that are right and that are not."""

from random import Random

from entrepot.wire.stomp.frames import frame_bytes
from tests.fuzz.damage import damaged

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
    ("message-id", ("1",)),
    ("content-length", ("0", "1", "5", "99999999", "-1", "x")),
)
_BODIES = (b"", b"x", b"a\0b", b"x" * 300, b"\xff" * 20, b"x" * 20_000)
_TEXTS = ("a", "é", "a:b\n", "\\", "x" * 300, "\r", "destination", "ack", "\N{PILE OF POO}")
_HEART_BEATS = ("0,0", "100,100", "1,1", "0,60000", "9999999999,0", "x")


def speak(random: Random) -> list[bytes]:
    version = random.choice(("1.0", "1.1", "1.2", "1.2"))
    frames = [connect(random, version) if random.random() < 0.97 else b"\r\n\n"]
    for _ in range(random.choice((2, 5, 10, 20))):
        frames.append(frame(random, version))
    if random.random() < 0.5:
        frames.append(damaged(random, frames.pop(random.randrange(len(frames)))))
    frames.append(frame_bytes("DISCONNECT", [("receipt", "bye")], version=version))
    return frames


def connect(random: Random, version: str) -> bytes:
    headers = [("accept-version", version), ("host", random.choice(("/", "/", "localhost", "x")))]
    if random.random() < 0.5:
        headers += [("login", "guest"), ("passcode", "guest" if random.random() < 0.95 else "x")]
    if random.random() < 0.3:
        headers.append(("heart-beat", random.choice(_HEART_BEATS)))
    return frame_bytes(random.choice(("CONNECT", "STOMP")), headers, version=version)


def frame(random: Random, version: str) -> bytes:
    """One that is right in form. Escapes are those of the version."""
    kinds = ("SEND",) * 6 + ("SUBSCRIBE",) * 3 + ("UNSUBSCRIBE", "ACK", "NACK")
    command = random.choice((*kinds, "BEGIN", "COMMIT", "ABORT", "BEAT"))
    if command == "BEAT":
        return b"\n" * random.randrange(1, 100)
    headers = _headers(random, command)
    if random.random() < 0.4:
        headers.append(("receipt", random.choice(("r", "1", "a:b\\", "x" * 300))))
    if command in ("SEND", "ACK", "NACK") and random.random() < 0.2:
        headers.append(("transaction", random.choice("tu")))
    random.shuffle(headers)
    body = random.choice(_BODIES) if command == "SEND" else b""
    return frame_bytes(command, headers, body, version)


def _headers(random: Random, command: str) -> list[tuple[str, str]]:
    if command == "SEND":
        headers = [("destination", _destination(random)), *_some(random, _MESSAGE_HEADERS)]
        if random.random() < 0.2:
            headers += _some(random, _QUEUE_HEADERS)
        if random.random() < 0.3:
            headers.append((random.choice(_TEXTS), random.choice(_TEXTS)))
        return headers
    if command == "SUBSCRIBE":
        headers = [("destination", _destination(random)), ("id", random.choice("1234"))]
        headers.append(("ack", random.choice(("auto", "client", "client-individual", "client"))))
        if random.random() < 0.3:
            headers += _some(random, _QUEUE_HEADERS)
        if random.random() < 0.3:
            headers.append(("prefetch-count", random.choice(("0", "1", "10", "x"))))
        if random.random() < 0.05:
            headers.append(("selector", "a = 1"))
        return headers
    if command == "UNSUBSCRIBE":
        return [("id", random.choice("1234")), *_some(random, (("durable", ("true", "x")),))]
    if command in ("ACK", "NACK"):
        name = random.choice(("1", "a-1-1", "x-x-x", "-1", "9" * 40))
        requeue = _some(random, (("requeue", ("true", "false", "x")),))
        return [("id", name), ("message-id", name), ("subscription", "1"), *requeue]
    return [("transaction", random.choice("tu"))]


def _destination(random: Random) -> str:
    """Mostly one that is right, or a conversation would be over at once."""
    usual = ("/queue/q1", "/queue/q2", "/topic/a.b", "/exchange/amq.fanout")
    return random.choice(usual if random.random() < 0.85 else _DESTINATIONS)


def _some(
    random: Random, headers: tuple[tuple[str, tuple[str, ...]], ...]
) -> list[tuple[str, str]]:
    """Seldom any, and of each the first value more often than others."""
    return [
        (name, values[0] if random.random() < 0.8 else random.choice(values))
        for name, values in headers
        if random.random() < 0.06
    ]
