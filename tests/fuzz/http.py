"""HTTP's side: every path of the management API, with bodies that are right and that are not."""

import json
import re
from base64 import b64encode
from decimal import Decimal
from random import Random
from typing import Any
from urllib.parse import quote

from entrepot.gateway.http.management.routes import ROUTES
from tests.fuzz import amqp_values as amqp
from tests.fuzz.damage import TEXTS, damaged

ANSWER = re.compile(rb"HTTP/1\.[01] (?!100)\d{3} ")

# Whoever stops the application or takes it away from everybody has what it asked for.
_PATHS = [(path, method) for path, verbs in ROUTES for method in verbs if path[0] != "application"]
_LOGINS = (
    *[b64encode(b"guest:guest").decode()] * 20,
    b64encode(b"guest:\xff").decode(),
    b64encode(b"ana").decode(),
    "%%%",
    "",
)
_NAMES: dict[str, tuple[str, ...]] = {
    "{vhost}": ("/", "/", "/", "/", "other", "x" * 300, "none", ""),
    "{name}": (*amqp.QUEUES, *amqp.EXCHANGES, "x" * 300),
    "{user}": ("guest", "ana", "u" * 300, "é"),
    "{source}": amqp.EXCHANGES,
    "{destination}": (*amqp.QUEUES, *amqp.EXCHANGES),
    "{kind}": ("q", "e", "x"),
    "{properties}": ("~", "one", "a.b.c", "%00", "x~y"),
    "{lease}": ("1", "x", "9" * 30),
    "{offset}": ("0", "1", "-1", "x", "9" * 30),
}
_QUERIES = (
    *[""] * 8,
    "?page=1",
    "?page=0&page_size=0",
    "?page=2&page_size=500&name=o",
    "?page=1&page_size=99999999999999999999",
    "?page=1&name=(a*)*b&use_regex=true",
    "?page=1&name=(&use_regex=true",
    "?sort=name&sort_reverse=true",
    "?sort=message_stats.x.y&columns=name,a.b,,",
    "?columns=" + "a," * 200,
    "?a=%ff&b=%zz&%00",
    "?" + "&".join(f"k{number}=v" for number in range(150)),
    "?if-unused=true&if-empty=true",
)
_ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 1.5, 2**31, 2**63 - 1, 2**63, 2**64, 10**30, "", "x", "true", "1",
    "é", "x" * 300, [], [1, "a"], {}, {"a": 1}, [[]], "\0", "\ud800",
)  # fmt: skip


def speak(random: Random) -> list[bytes]:
    frames = [request(random) for _ in range(random.choice((2, 5, 10, 15)))]
    if random.random() < 0.5:
        frames.append(damaged(random, frames.pop()))
    frames.append(b"GET /api/whoami HTTP/1.0\r\n\r\n")  # After which there is no other.
    return frames


def request(random: Random) -> bytes:
    path, method = random.choice(_PATHS)
    target = "/api/" + "/".join(_part(random, part) for part in path) + random.choice(_QUERIES)
    if random.random() < 0.03:
        method = random.choice(("GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"))
    body = b"" if method == "GET" and random.random() < 0.9 else _body(random, path)
    return _encoded(random, method, target, body)


def _part(random: Random, part: str) -> str:
    if part not in _NAMES:
        return part
    if random.random() < 0.03:
        return quote(random.choice(TEXTS), safe="%")
    return quote(random.choice(_NAMES[part]), safe="")


def _encoded(random: Random, method: str, target: str, body: bytes) -> bytes:
    lines = [
        f"{method} {target} HTTP/1.1",
        f"Host: {random.choice(('localhost', '127.0.0.1', 'x'))}",
    ]
    lines[1] = "Host: localhost" if random.random() < 0.95 else lines[1]
    lines.append(f"Authorization: Basic {random.choice(_LOGINS)}")
    if random.random() < 0.05:
        lines.append(
            random.choice(("Connection: close", "Expect: 100-continue", "X: " + "y" * 9_000))
        )
    if body and random.random() < 0.1:
        lines.append("Transfer-Encoding: chunked")
        size = random.choice((1, 3, 1_000))
        pieces = [body[start : start + size] for start in range(0, len(body), size)]
        body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode() + body


def _body(random: Random, path: tuple[str, ...]) -> bytes:
    fields = _fields(random, path)
    if random.random() < 0.4 and fields:
        fields[random.choice(list(fields))] = random.choice(_ODD)
    if random.random() < 0.1:
        fields.pop(random.choice(list(fields)), None)
    data = json.dumps(fields, default=_plain, ensure_ascii=random.random() < 0.9).encode(
        errors="surrogatepass"
    )
    if random.random() < 0.15:
        data = damaged(random, data)
    if random.random() < 0.01:
        depth = random.choice((30, 100, 2_000, 20_000))
        data = b'{"arguments":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}"
    return data


def _plain(value: Any) -> Any:
    """What JSON has no word for."""
    return float(value) if isinstance(value, Decimal) else str(value)


def _fields(random: Random, path: tuple[str, ...]) -> dict[str, Any]:
    """What the paths that take something want to hear."""
    match path:
        case ("definitions", *_):
            return _definitions(random)
        case ("permissions", *_):
            texts = (".*", "", "(", "(a*)*b")
            return {name: random.choice(texts) for name in ("configure", "write", "read")}
        case ("users", *_):
            tags = random.choice(("administrator", "", "x"))
            return {"password": random.choice(("secret", "", "p" * 300)), "tags": tags}
        case (*_, "publish"):
            return _message(random)
        case ("queues", _, _, _, *_):
            return _wish(random)
    arguments = (amqp.QUEUE_ARGUMENTS, amqp.EXCHANGE_ARGUMENTS, amqp.BINDING_ARGUMENTS)
    return {
        "type": random.choice(amqp.TYPES),
        "durable": random.choice((True, False)),
        "auto_delete": random.choice((True, False, False)),
        "internal": random.choice((True, False, False)),
        "routing_key": random.choice(amqp.KEYS),
        "arguments": amqp.some(random, random.choice(arguments)),
    }


def _message(random: Random) -> dict[str, Any]:
    chosen = {
        name: random.choice(values)
        for name, values in amqp.PROPERTIES.items()
        if random.random() < 0.2
    }
    return {
        "properties": chosen | {"headers": amqp.some(random, amqp.HEADERS)},
        "routing_key": random.choice(amqp.KEYS),
        "payload": random.choice(("", "hello", "x" * 5_000, "aGVsbG8=", "a")),
        "payload_encoding": random.choice(("string", "string", "base64")),
    }


def _wish(random: Random) -> dict[str, Any]:
    """To get, lease, move or rewind: each takes what it knows of these."""
    return {
        "count": random.choice((0, 1, 5, 10_001, "3")),
        "ackmode": random.choice(_ACK_MODES),
        "encoding": random.choice(("auto", "base64", "x")),
        "truncate": random.choice((0, 3, 50_000)),
        "ms": random.choice((1, 10, 60_000, -1)),
        "messages": random.choice((True, False)),
        "expiry_fails": random.choice((True, False)),
        "ranges": [[0, 1], [5, 2], [-1, 2**63 - 1]][: random.randrange(4)],
        "settle": [[0, 1]][: random.randrange(2)],
        "reject": [[1, 2]][: random.randrange(2)],
        "failed": random.choice((True, False)),
        "offset": random.choice((0, 1, -1, 2**63 - 1)),
        "timestamp": random.choice((0, 1_700_000_000_000)),
        "to": random.choice(amqp.QUEUES),
        "due": random.choice((0, 2**62, "now")),
    }


_ACK_MODES = (
    "ack_requeue_true",
    "ack_requeue_false",
    "reject_requeue_true",
    "reject_requeue_false",
)


def _definitions(random: Random) -> dict[str, Any]:
    def rows(count: int, **values: tuple[Any, ...]) -> list[dict[str, Any]]:
        return [
            {name: random.choice(some) for name, some in values.items() if random.random() < 0.95}
            for _ in range(count)
        ]

    truths, hosts = (True, False), ("/", "/", "other")
    return {
        "vhosts": rows(random.randrange(2), name=hosts),
        "queues": rows(
            random.randrange(3),
            name=amqp.QUEUES,
            vhost=hosts,
            durable=truths,
            auto_delete=truths,
            arguments=({}, {"x-max-length": 0}),
        ),
        "exchanges": rows(
            random.randrange(3),
            name=amqp.EXCHANGES,
            vhost=hosts,
            type=amqp.TYPES,
            durable=truths,
            auto_delete=truths,
            internal=truths,
            arguments=({},),
        ),
        "bindings": rows(
            random.randrange(3),
            source=amqp.EXCHANGES,
            vhost=hosts,
            destination=amqp.QUEUES,
            destination_type=("queue", "exchange", "x"),
            routing_key=amqp.KEYS,
            arguments=({},),
        ),
        "users": rows(
            random.randrange(2),
            name=("ana", "ben"),
            password=("secret",),
            tags=("administrator", ""),
        ),
        "permissions": rows(
            random.randrange(2),
            user=("ana",),
            vhost=hosts,
            configure=(".*",),
            write=("",),
            read=("(",),
        ),
        "policies": [],
    }
