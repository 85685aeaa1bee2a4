"""Names and values for AMQP: what there mostly is, and what is at the edge of being allowed."""

from decimal import Decimal
from random import Random
from typing import Any

from entrepot.wire.amqp import table

# What there mostly is: declared in the same way by whoever needs it, so that what is done with
# it gets far. Each of them brings features together.
_DLX = "x-dead-letter-exchange"
_DLK = "x-dead-letter-routing-key"
MADE: dict[str, tuple[bool, dict[str, Any]]] = {  # Whether it is durable, and its arguments.
    "one": (True, {}),
    "two": (False, {"x-message-ttl": 1, _DLX: "", _DLK: "letters"}),
    "three": (True, {"x-max-length": 1, "x-overflow": "reject-publish-dlx", _DLX: "later"}),
    "letters": (True, {"x-message-ttl": 0, _DLX: "", _DLK: "two", "x-max-length": 5}),
    "stream": (True, {"x-queue-type": "stream", "x-stream-max-segment-size-bytes": 1_000}),
    "priority": (True, {"x-max-priority": 255, "x-message-ttl": 5, _DLX: "hash", _DLK: "k" * 255}),
    "quorum": (True, {"x-queue-type": "quorum", "x-delivery-limit": 1, _DLX: "", _DLK: "one"}),
    "gone": (False, {"x-expires": 1, _DLX: "amq.fanout"}),
    "single": (True, {"x-single-active-consumer": True, "x-max-length-bytes": 100, _DLX: "once"}),
    "nothing": (False, {"x-max-length": 0, "x-overflow": "drop-head", _DLX: "", _DLK: "nothing"}),
}
MADE_EXCHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "dead": ("fanout", {}),
    "later": ("x-delayed-message", {"x-delayed-type": "topic", "alternate-exchange": "dead"}),
    "hash": ("x-consistent-hash", {"hash-header": "h"}),
    "once": ("x-message-deduplication", {"x-cache-size": 2, "x-cache-ttl": 5}),
    "heads": ("headers", {"alternate-exchange": "later"}),
    "tree": ("topic", {"alternate-exchange": "tree"}),
}
QUEUES = ("", *MADE, "free", "x" * 255, "amq.rabbitmq.reply-to")
EXCHANGES = ("", "amq.direct", "amq.topic", "amq.fanout", "amq.headers", *MADE_EXCHANGES, "free")
LONG = "x" * 255
TYPES = (
    "direct",
    "fanout",
    "topic",
    "headers",
    "x-delayed-message",
    "x-consistent-hash",
    "x-message-deduplication",
    "x-modulus-hash",
    "none",
    "",
)
KEYS = (
    "",
    "one",
    "two",
    "letters",
    "a.b.c",
    "#",
    "*.b.#",
    "a" * 255,
    ".".join("ab" * 60),
    "é",
    "\udcff",
    "gone",
)
TEXT_KEYS = tuple(key for key in KEYS if key.isprintable())
TAGS = ("", "tag", "tag", "other", "t" * 255)

NUMBERS: tuple[Any, ...] = (
    0, 1, 2, 10, 254, 255, 256, -1, 2**31 - 1, 2**31, 2**32, 2**63 - 1, -(2**63),
    table.Int64(0), table.Int64(2**62), table.UInt8(255), table.Int16(-1), 1.5,
    float("nan"), "1", "x", None, True, b"x", Decimal("1.5"), [], {}, table.Timestamp(2**63),
)  # fmt: skip
QUEUE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "x-message-ttl": (0, 1, 5, *NUMBERS),
    "x-expires": (1, 5, 1_000, *NUMBERS),
    "x-max-length": (0, 1, 2, *NUMBERS),
    "x-max-length-bytes": (0, 1, 100, *NUMBERS),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx", "none", 1),
    "x-dead-letter-exchange": EXCHANGES,
    "x-dead-letter-routing-key": KEYS,
    "x-dead-letter-strategy": ("at-least-once", "at-most-once", "none"),
    "x-max-priority": (1, 5, 255, *NUMBERS),
    "x-queue-type": ("classic", "quorum", "stream", "classic", "none", 1),
    "x-queue-mode": ("lazy", "default", "none"),
    "x-delivery-limit": (0, 1, 2, *NUMBERS),
    "x-single-active-consumer": (True, False, 1),
    "x-max-age": ("1s", "1Y", "0s", "9" * 30 + "D", "x", 1),
    "x-retention-ms": NUMBERS,
    "x-retention-bytes": NUMBERS,
    "x-stream-max-segment-size-bytes": (1, 1_000, *NUMBERS),
    "x-unknown": NUMBERS,
}
EXCHANGE_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "alternate-exchange": EXCHANGES,
    "x-delayed-type": TYPES,
    "hash-header": ("h", "", 1),
    "hash-property": ("message_id", "correlation_id", "none"),
    "x-cache-size": NUMBERS,
    "x-cache-ttl": NUMBERS,
    "x-cache-persistence": ("memory", "disk", 1),
}
BINDING_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "x-match": ("all", "any", "all-with-x", "any-with-x", "none", 1),
    "h": NUMBERS,
    "x-h": NUMBERS,
}
CONSUMER_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "x-priority": NUMBERS,
    "x-stream-offset": (
        "first",
        "last",
        "next",
        "1h",
        "none",
        0,
        5,
        -1,
        2**63 - 1,
        table.Timestamp(0),
    ),
    "x-batch-count": NUMBERS,
    "x-batch-ms": (0, 1, 100, *NUMBERS),
    "x-cancel-on-ha-failover": (True,),
}
HEADERS: dict[str, tuple[Any, ...]] = {
    "CC": (["one", "two"], ["letters"], [1], "one", ["a" * 255], ["x" * 300], [], {}),
    "BCC": (["two"], ["gone", "one"], [None], 1),
    "x-delay": (0, 1, 5, -5, 2**32 - 1, 2**32, *NUMBERS),
    "x-death": (
        [],
        [{}],
        [{"count": 1, "queue": "one", "reason": "expired"}],
        "x",
        [1],
        {"count": "x"},
    ),
    "x-deduplication-header": ("a", "b", 1, "x" * 300),
    "x-message-ttl": NUMBERS,
    "x-stream-offset": NUMBERS,
    "x-confirm": ("consumed", "x", 1),
    "x-first-death-queue": ("one", 1),
    "x-delivery-count": NUMBERS,
    "h": NUMBERS,
    "x" * 255: (1,),
}
BODIES = (b"", b"x", b"x" * 511, b"x" * 513, b"y" * 5_000, b"z" * 20_000)

PROPERTIES: dict[str, tuple[Any, ...]] = {
    "content_type": ("text/plain", "", "x" * 255),
    "content_encoding": ("gzip", "\udcff"),
    "delivery_mode": (1, 2, 0, 255),
    "priority": (0, 1, 5, 255),
    "correlation_id": ("1", "x" * 255),
    "reply_to": (
        "one",
        "",
        "letters",
        "amq.rabbitmq.reply-to",
        "x" * 255,
        "amq.rabbitmq.reply-to.x",
    ),
    "expiration": ("0", "1", "5", "-1", "x", "", "9" * 40, "4294967296", " 1", "\u0661"),
    "message_id": ("a", "b", "\0"),
    "timestamp": (0, 2**63, 2**64 - 1),
    "type": ("t",),
    "user_id": ("guest", "nobody", ""),
    "app_id": ("x" * 255,),
    "cluster_id": ("c",),
}


def some(random: Random, arguments: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    names = random.sample(list(arguments), min(random.choice((0, 1, 1, 2, 4)), len(arguments)))
    return {name: random.choice(arguments[name]) for name in names}
