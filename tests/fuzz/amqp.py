"""AMQP's side: every method in sequences that make sense, and where features meet."""

import re
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from random import Random
from struct import pack
from typing import Any

from entrepot.wire.amqp import properties
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import END, HEARTBEAT_FRAME, PROTOCOL_HEADER, frame, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import (
    METHODS,
    basic,
    channel,
    confirm,
    connection,
    exchange,
    queue,
    tx,
)
from entrepot.wire.amqp.properties import BasicProperties
from entrepot.wire.amqp.scan import BODY, FRAME_HEAD, HEADER, METHOD
from tests.fuzz.amqp_values import (
    BINDING_ARGUMENTS,
    BODIES,
    CONSUMER_ARGUMENTS,
    EXCHANGE_ARGUMENTS,
    EXCHANGES,
    HEADERS,
    KEYS,
    LONG,
    MADE,
    MADE_EXCHANGES,
    PROPERTIES,
    QUEUE_ARGUMENTS,
    QUEUES,
    TAGS,
    TEXT_KEYS,
    TYPES,
    some,
)
from tests.fuzz.damage import damaged
from tests.fuzz.session import Damaged, Echo, place_near_end
from tests.unit.wire.amqp import oracle

FRAME_BYTES_MAX = 4_096
ANSWER = re.compile(rb"\x01(..)\0\0\0\x05\0\x14\0\x15", re.DOTALL)  # channel.flow-ok
CHANNEL_LAST = 2_000


def speak(random: Random) -> list[bytes]:
    """A handshake, then conversations on one channel after the other."""
    frames = handshake(random)
    channels = random.choice((1, 2, 7))
    for number in range(1, channels + 1):
        frames.append(method_frame(number, channel.Open()))
        # What is odd may end the connection, and then nobody looks at the rest.
        is_odd = number == channels and random.random() < 0.6
        frames += _with_echoes(random, conversation(random, number, is_odd=is_odd), number)
        if random.random() < 0.3:
            frames.append(method_frame(number, channel.Close(200, "bye")))
    if random.random() < 0.5:
        frames.insert(max(4, place_near_end(random, frames)), Damaged(_broken(random)))
    # On a channel of its own, which nobody has closed: this is the end.
    frames += [method_frame(CHANNEL_LAST, channel.Open()), _echo(CHANNEL_LAST)]
    if random.random() < 0.9:
        frames.append(method_frame(0, connection.Close(200, "bye")))
    return frames


def _echo(on: int) -> Echo:
    return Echo(method_frame(on, channel.Flow(True)), label=pack(">H", on))


def _with_echoes(random: Random, frames: list[bytes], on: int) -> list[bytes]:
    """Add echoes, and one at the end."""
    found: list[bytes] = []
    for each in frames:
        found.append(each)
        if random.random() < 0.3:
            found.append(_echo(on))
    return [*found, _echo(on)]


def handshake(random: Random) -> list[bytes]:
    capabilities = {
        name: True
        for name in (
            "basic.nack",
            "connection.blocked",
            "consumer_cancel_notify",
            "publisher_confirms",
        )
        if random.random() < 0.8
    }
    frames = [
        PROTOCOL_HEADER,
        method_frame(
            0, connection.StartOk({"capabilities": capabilities}, "PLAIN", b"\0guest\0guest")
        ),
        method_frame(0, connection.TuneOk(2_047, FRAME_BYTES_MAX, random.choice((0, 0, 1, 60)))),
        method_frame(0, connection.Open("/")),
    ]
    if random.random() < 0.05:
        place = random.randrange(len(frames))
        frames[place] = damaged(random, frames[place])
    return frames


def conversation(random: Random, on: int, *, is_odd: bool = False) -> list[bytes]:
    frames: list[bytes] = []
    count = random.choice((1, 3, 6, 10))
    odd_first = count * 3 // 4 if is_odd else count
    for number in range(count):
        kind = random.choice(_ODD_VERBS if number >= odd_first else _VERBS)
        for each in kind(random):
            frames += _frames(on, each, random)
    return frames


_Message = tuple[basic.Publish, bytes, bytes]


def _frames(on: int, said: Method | _Message, random: Random) -> list[bytes]:
    if isinstance(said, Method):
        return [method_frame(on, said)]
    method, raw, body = said
    chunks = content(on, method, raw, body, random.choice((FRAME_BYTES_MAX, 100)))
    return [b"".join(chunks)]


def _bit(random: Random, chance: float = 0.2) -> bool:
    return random.random() < chance


def _declare(random: Random) -> list[Method]:
    name = random.choice(list(MADE))
    durable, arguments = MADE[name]
    return [queue.Declare(0, name, False, durable, False, False, _bit(random), arguments)]


def _declare_oddly(random: Random) -> list[Method]:
    name = random.choice(QUEUES)
    bits = (_bit(random), _bit(random, 0.5), _bit(random), _bit(random), _bit(random))
    made = queue.Declare(0, name, *bits, some(random, QUEUE_ARGUMENTS))
    if random.random() < 0.5:
        return [queue.Delete(0, name, False, False, _bit(random)), made]
    return [made]


def _declare_exchange(random: Random) -> list[Method]:
    name = random.choice(list(MADE_EXCHANGES))
    kind, arguments = MADE_EXCHANGES[name]
    return [exchange.Declare(0, name, kind, False, True, False, False, _bit(random), arguments)]


def _declare_exchange_oddly(random: Random) -> list[Method]:
    name, kind = random.choice((*EXCHANGES, LONG)), random.choice(TYPES)
    bits = (_bit(random), _bit(random, 0.5), _bit(random), _bit(random, 0.1), _bit(random))
    made = exchange.Declare(0, name, kind, *bits, some(random, EXCHANGE_ARGUMENTS))
    return [exchange.Delete(0, name), made] if random.random() < 0.5 else [made]


def _bind(random: Random) -> list[Method]:
    """Queues and exchanges, to each other and in circles."""
    source, (kind, exchange_arguments) = random.choice(list(MADE_EXCHANGES.items()))
    name = random.choice(list(MADE))
    durable, queue_arguments = MADE[name]
    key = random.choice(("1", "2", "99")) if source == "hash" else random.choice(TEXT_KEYS)
    arguments = {"x-match": random.choice(("all", "any")), "h": random.choice((1, "a", None))}
    bits = (False, True, False, False, True)
    made = [
        exchange.Declare(0, source, kind, *bits, exchange_arguments),
        queue.Declare(0, name, False, durable, False, False, True, queue_arguments),
    ]
    arguments = arguments if source == "heads" else {}
    if random.random() < 0.3:
        other = random.choice(("amq.fanout", "amq.topic", "amq.direct"))
        return [*made, exchange.Bind(0, source, other, key, _bit(random))]
    bound = queue.Bind(0, name, source, key, _bit(random), arguments)
    if random.random() < 0.2:
        return [*made, bound, queue.Unbind(0, name, source, key, arguments)]
    return [*made, bound]


def _bind_oddly(random: Random) -> list[Method]:
    arguments = some(random, BINDING_ARGUMENTS)
    key, source = random.choice(TEXT_KEYS), random.choice(EXCHANGES)
    if random.random() < 0.3:
        ends = (0, random.choice(EXCHANGES), source, key)
        kind = random.choice((exchange.Bind, exchange.Bind, exchange.Unbind))
        return [kind(*ends, _bit(random), arguments)]
    name = random.choice(QUEUES)
    if random.random() < 0.3:
        return [queue.Unbind(0, name, source, key, arguments)]
    return [queue.Bind(0, name, source, key, _bit(random), arguments)]


def _publish(random: Random) -> list[Any]:
    """To a queue that there is, or to what is predeclared."""
    name = random.choice(list(MADE))
    durable, arguments = MADE[name]
    made = queue.Declare(0, name, False, durable, False, False, True, arguments)
    source = random.choice(("", "", "", "amq.fanout", "amq.topic", "amq.direct", "amq.headers"))
    method = basic.Publish(
        0, source, name if random.random() < 0.8 else random.choice(KEYS), _bit(random, 0.4)
    )
    count = random.choice((1, 1, 2, 10))
    raw, body = _properties(random, is_odd=False), random.choice(BODIES)
    return [made, *[(method, raw, body)] * count]


def _publish_oddly(random: Random) -> list[_Message]:
    method = basic.Publish(
        0,
        random.choice((*EXCHANGES, "", "")),
        random.choice(KEYS),
        _bit(random, 0.4),
        _bit(random, 0.01),
    )
    raw = _properties(random, is_odd=True)
    if random.random() < 0.1:
        raw = damaged(random, raw)
    return [(method, raw, random.choice(BODIES)) for _ in range(random.choice((1, 1, 2, 10)))]


def _properties(random: Random, *, is_odd: bool) -> bytes:
    chosen: dict[str, Any] = {}
    for name, values in PROPERTIES.items():
        if random.random() < 0.2:
            chosen[name] = random.choice(values if is_odd else values[:3])
    if "user_id" in chosen and not is_odd:
        chosen["user_id"] = "guest"
    if random.random() < 0.5:
        chosen["headers"] = some(random, HEADERS)
        if random.random() < 0.05:
            deepest = (5, 31, 32, 33, 200) if is_odd else (5, 20)
            chosen["headers"]["deep"] = _deep(random.choice(deepest))
    return properties.encode(BasicProperties(**chosen))


def _deep(depth: int) -> Any:
    value: Any = 1
    for place in range(depth):
        value = [value] if place % 2 else {"d": value}
    return value


def _consume(random: Random) -> list[Method]:
    """And settle what comes, if anything does: the first tag is 1."""
    name = random.choice(list(MADE))
    if name == "stream" and random.random() < 0.95:  # What settles other messages ends these.
        name = "one"
    durable, arguments = MADE[name]
    made = queue.Declare(0, name, False, durable, False, False, True, arguments)
    more: dict[str, Any] = {"x-stream-offset": "first"} if name == "stream" else {}
    if random.random() < 0.3:
        more["x-priority"] = random.choice((-1, 5, 2**31 - 1))
    qos = basic.Qos(0, random.choice((1, 2, 10, 65_535)), _bit(random) and name != "stream")
    tag = random.choice(("", _tag(random, name)))
    consume = basic.Consume(
        0, name, tag, False, _bit(random) and name != "stream", False, _bit(random), more
    )
    return [made, qos, consume]


def _tag(random: Random, name: str) -> str:
    """One of many: a second consumer with the same tag ends the connection."""
    return f"{name}-{random.randrange(50)}"


def _consume_oddly(random: Random) -> list[Method]:
    arguments = some(random, CONSUMER_ARGUMENTS)
    bits = (_bit(random), _bit(random, 0.5), _bit(random), _bit(random))
    made = basic.Consume(0, random.choice(QUEUES), random.choice(TAGS), *bits, arguments)
    qos = basic.Qos(random.choice((0, 0, 0, 1)), random.choice((0, 1, 2, 10, 65_535)), _bit(random))
    return [qos, made] if random.random() < 0.5 else [made]


def _settle(random: Random) -> list[Method]:
    """All there is: this is never a mistake."""
    is_back = _bit(random, 0.7)
    all_of_it = (basic.Ack(0, True), basic.Nack(0, True, is_back), basic.Nack(0, True, is_back))
    return [random.choice((*all_of_it, basic.Recover(True)))]


def _settle_oddly(random: Random) -> list[Method]:
    tag = random.choice((0, 1, 1, 2, 3, 5, 2**63, 2**64 - 1))
    return [
        random.choice(
            (
                basic.Ack(tag, _bit(random, 0.4)),
                basic.Nack(tag, _bit(random, 0.4), _bit(random, 0.5)),
                basic.Reject(tag, _bit(random, 0.5)),
                basic.Recover(_bit(random, 0.8)),
            )
        )
    ]


def _get(random: Random) -> list[Method]:
    """And settle it, which is a mistake when there was nothing."""
    name = random.choice([each for each in MADE if each != "stream"])
    durable, arguments = MADE[name]
    made = queue.Declare(0, name, False, durable, False, False, True, arguments)
    return [made, basic.Get(0, name, _bit(random, 0.3)), *_settle(random)]


def _remove(random: Random) -> list[Method]:
    name = random.choice(list(MADE))
    return [
        random.choice(
            (
                queue.Delete(0, name, False, False, _bit(random)),
                exchange.Delete(0, random.choice(list(MADE_EXCHANGES)), False, _bit(random)),
                basic.Cancel(_tag(random, name), _bit(random)),
            )
        )
    ]


def _remove_oddly(random: Random) -> list[Method]:
    name = random.choice(QUEUES)
    return [
        random.choice(
            (
                queue.Purge(0, name, _bit(random)),
                queue.Delete(0, name, _bit(random), _bit(random), _bit(random)),
                exchange.Delete(0, random.choice(EXCHANGES), _bit(random), _bit(random)),
                basic.Cancel(random.choice(TAGS), _bit(random)),
            )
        )
    ]


def _mode(random: Random) -> list[Method]:
    """Confirms or transactions; both on one channel are a mistake."""
    if random.random() < 0.6:
        return [confirm.Select(_bit(random))]
    return [tx.Select(), *_publish(random), random.choice((tx.Commit(), tx.Rollback()))]


def _mode_oddly(random: Random) -> list[Method]:
    return [
        random.choice(
            (
                confirm.Select(_bit(random)),
                tx.Select(),
                tx.Commit(),
                tx.Rollback(),
                channel.Flow(False),
            )
        )
    ]


_VERBS: tuple[Callable[[Random], list[Any]], ...] = (
    _declare, _declare_exchange, _bind, _bind, _publish, _publish, _publish, _publish,
    _consume, _consume, _settle, _settle, _get, _remove, _mode,
)  # fmt: skip
_ODD_VERBS: tuple[Callable[[Random], list[Any]], ...] = (
    _declare_oddly, _declare_oddly, _declare_exchange_oddly, _bind_oddly, _publish_oddly,
    _publish_oddly, _publish_oddly, _consume_oddly, _settle_oddly, _remove_oddly, _mode_oddly,
)  # fmt: skip


# --- what is not right


@cache
def _captured() -> tuple[bytes, ...]:
    return tuple(each.data for each in oracle.captured() if each.is_clients)


def _broken(random: Random) -> bytes:
    on = random.choice((0, 1, 1, 1, 2, 2_047, 65_535))
    return random.choice(_BROKEN)(random, on)


def _damaged_payload(random: Random, on: int) -> bytes:
    kind, payload = METHOD, method_frame(on, _any_method(random))[FRAME_HEAD.size : -1]
    if random.random() < 0.3:
        kind, payload = HEADER, pack(">HHQ", 60, 0, 5) + _properties(random, is_odd=True)
    return frame(kind, on, damaged(random, payload))


def _damaged_frame(random: Random, on: int) -> bytes:
    return damaged(random, random.choice((method_frame(on, _any_method(random)), HEARTBEAT_FRAME)))


def _damaged_capture(random: Random, on: int) -> bytes:
    return damaged(random, random.choice(_captured()))


def _wrong_order(random: Random, on: int) -> bytes:
    """Methods and parts of contents, as they come."""
    parts = [
        method_frame(on, basic.Publish(0, "", "one")),
        frame(HEADER, on, pack(">HHQH", 60, 0, random.choice((0, 5, 10, 2**40, 2**64 - 1)), 0)),
        frame(BODY, on, b"hello"),
        frame(BODY, on, b""),
        method_frame(on, _any_method(random)),
        method_frame(on, basic.Return(312, "NO_ROUTE", "", "one")),
        method_frame(on, basic.Deliver("tag", 1, False, "", "one")),
        frame(random.choice((0, 4, 5, 7, 8, 9, 255)), on, b""),
    ]
    return b"".join(random.choice(parts) for _ in range(random.choice((1, 2, 4))))


def _wrong_size(random: Random, on: int) -> bytes:
    size = random.choice((0, 1, FRAME_BYTES_MAX - 8, FRAME_BYTES_MAX + 1, 2**31, 2**32 - 1))
    return FRAME_HEAD.pack(random.choice((METHOD, HEADER, BODY)), on, size) + bytes(20) + END


def _any_method(random: Random) -> Method:
    """Also those that only a server says."""
    kind = random.choice(list(METHODS.values()))
    return kind(**{each.name: _field(random, str(each.type)) for each in fields(kind)})  # type: ignore[arg-type]


def _field(random: Random, declared: str) -> Any:
    for name, values in _FIELDS.items():
        if name in declared:
            return random.choice(values)
    return some(random, random.choice((QUEUE_ARGUMENTS, HEADERS)))


_FIELDS: dict[str, tuple[Any, ...]] = {
    "octet": (0, 9, 255),
    "longlong": (0, 1, 2**64 - 1),
    "longstr": (b"", b"PLAIN", b"\0guest\0guest", b"\xff" * 100),
    "shortstr": ("", "one", "x" * 255, "/"),
    "passedstr": KEYS,
    "short": (0, 1, 200, 65_535),
    "long": (0, 1, 2**32 - 1),
    "bit": (True, False),
}

_BROKEN = (
    _damaged_payload,
    _damaged_payload,
    _damaged_frame,
    _damaged_capture,
    _wrong_order,
    _wrong_size,
)
