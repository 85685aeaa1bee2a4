"""What a queue is declared with, and whether that is in order.

Arguments are looked at once, when a queue is made: from then on there are numbers and
choices with names. What is wrong with them, and how a second declaration differs from the
first, is said in RabbitMQ's words, because its clients' users search for those.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from entrepot.broker.router.value import Frozen, FrozenTable, describe, lookup
from entrepot.core import limits
from entrepot.core.errors import InvalidQueue, QueueMismatch
from entrepot.core.names import is_short

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
DROP_HEAD, REJECT, REJECT_DEAD_LETTER = "drop-head", "reject-publish", "reject-publish-dlx"
AT_LEAST_ONCE = "at-least-once"

_DELIVERY_LIMIT = 20  # Of a quorum queue that was declared without; RabbitMQ's.
_PRIORITY_MAX = 255
_UNITS_MS = {"Y": 31_536_000_000, "M": 2_592_000_000, "D": 86_400_000}
_UNITS_MS |= {"h": 3_600_000, "m": 60_000, "s": 1_000}

# Which type of queue knows which arguments. What none of them knows may say anything.
_KNOWN = {
    CLASSIC: (
        "x-expires",
        "x-message-ttl",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-priority",
        "x-overflow",
        "x-queue-mode",
        "x-queue-version",
        "x-single-active-consumer",
        "x-queue-type",
        "x-queue-master-locator",
        "x-queue-leader-locator",
        "x-retention-ms",
        "x-retention-bytes",
    ),
    QUORUM: (
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-dead-letter-strategy",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-max-in-memory-length",
        "x-max-in-memory-bytes",
        "x-overflow",
        "x-single-active-consumer",
        "x-queue-type",
        "x-quorum-initial-group-size",
        "x-delivery-limit",
        "x-message-ttl",
        "x-queue-leader-locator",
        "x-retention-ms",
        "x-retention-bytes",
    ),
    STREAM: (
        "x-max-length-bytes",
        "x-queue-type",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
    ),
}


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """As it was declared."""

    name: str
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    arguments: FrozenTable = ()


@dataclass(frozen=True, slots=True)
class QueueArguments:
    """What the arguments mean. None: without such a rule."""

    type: str = CLASSIC
    ttl_ms: int | None = None
    heeds_expiration: bool = True  # Whether a message may have a time to live of its own.
    expires_ms: int | None = None
    length_max: int | None = None
    length_bytes_max: int | None = None
    overflow: str = DROP_HEAD
    dead_letter_exchange: str | None = None
    dead_letter_key: str | None = None
    dead_letter_at_least_once: bool = False
    priority_max: int = 0
    single_active: bool = False
    delivery_limit: int | None = None
    retention_ms: int = limits.QUEUE_RETENTION_MS  # How long what is settled can be rewound to,
    retention_bytes: int | None = None  # and how much of it.
    age_ms_max: int | None = None  # Of a stream: how long,
    segment_bytes: int | None = None  # and in files of which size.

    @property
    def lane_count(self) -> int:
        """One for each priority; lane 0 has the lowest."""
        return self.priority_max + 1


def parse_arguments(vhost: str, spec: QueueSpec) -> QueueArguments:
    """Raises InvalidQueue."""
    table = spec.arguments
    where = f"queue '{spec.name}' in vhost '{vhost}'"
    kind = _queue_type(table, where)
    for name, check in _CHECKS.items():
        value = lookup(table, name)
        wrong = None if value is None or name not in _KNOWN[kind] else check(value)
        if wrong is not None:
            raise InvalidQueue(f"invalid arg '{name}' for {where}: {wrong}")
    _check_properties(spec, kind, where)
    has_key = lookup(table, "x-dead-letter-routing-key") is not None
    if kind != STREAM and has_key and lookup(table, "x-dead-letter-exchange") is None:
        wrong = "routing_key_but_no_dlx_defined"
        raise InvalidQueue(f"invalid arg 'x-dead-letter-routing-key' for {where}: {wrong}")
    for name, _ in table:
        if name not in _KNOWN[kind] and any(name in known for known in _KNOWN.values()):
            module = f"rabbit_{kind}_queue"
            raise InvalidQueue(f"invalid arg '{name}' for {where} of queue type {module}")
    return _meaning(table, kind)


def _queue_type(table: FrozenTable, where: str) -> str:
    value = lookup(table, "x-queue-type")
    if value in (None, "", "undefined"):
        return CLASSIC
    if not isinstance(value, str):
        wrong = _unacceptable(value)
    elif value not in _KNOWN:
        wrong = f"\"unsupported queue type '{value}'\""
    else:
        return value
    raise InvalidQueue(f"invalid arg 'x-queue-type' for {where}: {wrong}")


def _check_properties(spec: QueueSpec, kind: str, where: str) -> None:
    if kind == CLASSIC:
        return
    wrong = {
        "auto-delete": spec.auto_delete,
        "exclusive-owner": spec.exclusive,
        "non-durable": not spec.durable,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            raise InvalidQueue(f"invalid property '{name}' for {where}")


def _meaning(table: FrozenTable, kind: str) -> QueueArguments:
    def value(name: str) -> Frozen:
        return lookup(table, name)

    limit = value("x-delivery-limit")
    if not isinstance(limit, int):
        limit = _DELIVERY_LIMIT if kind == QUORUM else None
    priority_max = value("x-max-priority")
    retention_ms = value("x-retention-ms")
    return QueueArguments(
        type=kind,
        ttl_ms=value("x-message-ttl"),
        expires_ms=value("x-expires"),
        length_max=value("x-max-length"),
        length_bytes_max=value("x-max-length-bytes"),
        overflow=value("x-overflow") or DROP_HEAD,
        dead_letter_exchange=value("x-dead-letter-exchange"),
        dead_letter_key=value("x-dead-letter-routing-key"),
        dead_letter_at_least_once=value("x-dead-letter-strategy") == AT_LEAST_ONCE,
        priority_max=0 if priority_max is None else max(1, priority_max),
        single_active=value("x-single-active-consumer") == ("bool", True),
        delivery_limit=None if limit is None or limit < 0 else limit,
        retention_ms=limits.QUEUE_RETENTION_MS if retention_ms is None else retention_ms,
        retention_bytes=value("x-retention-bytes"),
        age_ms_max=_age_ms(value("x-max-age")),
        segment_bytes=value("x-stream-max-segment-size-bytes"),
    )


# --- what is wrong with a value, in Erlang's notation; None: nothing


def _unacceptable(value: Frozen) -> str:
    return f"{{unacceptable_type,{describe(value)[0]}}}"


def _integer(value: Frozen) -> str | None:
    is_integer = isinstance(value, int)
    return None if is_integer else f'"expected integer, got {describe(value)[0]}"'


def _not_negative(value: Frozen) -> str | None:
    return _integer(value) or (f"{{value_negative,{value}}}" if value < 0 else None)


def _duration(value: Frozen) -> str | None:
    wrong = _not_negative(value)
    if wrong is None and value > limits.QUEUE_TTL_MS_MAX:
        return f"{{value_too_large,{value}}}"
    return wrong


def _not_zero(check: Callable[[Frozen], str | None]) -> Callable[[Frozen], str | None]:
    def checked(value: Frozen) -> str | None:
        return "{value_zero,0}" if value == 0 else check(value)

    return checked


def _priority(value: Frozen) -> str | None:
    wrong = _not_negative(value)
    if wrong is None and value > _PRIORITY_MAX:
        return f"{{max_value_exceeded,{value}}}"
    return wrong


def _boolean(value: Frozen) -> str | None:
    is_boolean = isinstance(value, tuple) and value[0] == "bool"
    return None if is_boolean else _unacceptable(value)


def _text(value: Frozen) -> str | None:
    return None if isinstance(value, str) else _unacceptable(value)


def _name(value: Frozen) -> str | None:
    """Of an exchange, or a routing key: dead letters are published with it."""
    too_long = f'"more than {limits.NAME_BYTES_MAX} bytes"'
    return _text(value) or (None if is_short(value) else too_long)


def _one_of(wrong: str, *known: str) -> Callable[[Frozen], str | None]:
    def check(value: Frozen) -> str | None:
        return _text(value) or (None if value in known else wrong)

    return check


def _version(value: Frozen) -> str | None:
    wrong = _not_negative(value)
    if wrong is None and value not in (1, 2):
        return f"\"unsupported queue version '{value}'\""
    return wrong


def _age(value: Frozen) -> str | None:
    return _text(value) or ("invalid_max_age" if _age_ms(value) is None else None)


def _age_ms(value: Frozen) -> int | None:
    """A number and a unit: 7D."""
    found = re.fullmatch(r"([0-9]{1,12})([YMDhms])", value or "", re.ASCII)
    return int(found[1]) * _UNITS_MS[found[2]] or None if found else None


_CHECKS: dict[str, Callable[[Frozen], str | None]] = {
    "x-expires": _not_zero(_duration),
    "x-message-ttl": _duration,
    "x-dead-letter-exchange": _name,
    "x-dead-letter-routing-key": _name,
    "x-dead-letter-strategy": _one_of("invalid_dlx_strategy", "at-most-once", AT_LEAST_ONCE),
    "x-max-length": _not_negative,
    "x-max-length-bytes": _not_negative,
    "x-max-in-memory-length": _not_negative,
    "x-max-in-memory-bytes": _not_negative,
    "x-max-priority": _priority,
    "x-overflow": _one_of("invalid_overflow", DROP_HEAD, REJECT, REJECT_DEAD_LETTER),
    "x-queue-version": _version,
    "x-single-active-consumer": _boolean,
    "x-quorum-initial-group-size": _not_zero(_not_negative),
    "x-initial-cluster-size": _not_zero(_not_negative),
    "x-max-age": _age,
    "x-stream-max-segment-size-bytes": _not_negative,
    "x-stream-filter-size-bytes": _not_negative,
    "x-queue-leader-locator": _one_of(
        "invalid_queue_locator_arg", "client-local", "balanced", "random", "least-leaders"
    ),
    "x-retention-ms": _duration,
    "x-retention-bytes": _not_negative,
}


# --- declared again


def check_equivalent(vhost: str, current: QueueSpec, wanted: QueueSpec) -> None:
    """Raises QueueMismatch when the two are not the same queue. Whose it is, is not asked."""
    where = f"queue '{current.name}' in vhost '{vhost}'"
    if current.durable != wanted.durable:
        _differ("durable", where, _word(wanted.durable), _word(current.durable))
    if current.auto_delete != wanted.auto_delete:
        _differ("auto_delete", where, _word(wanted.auto_delete), _word(current.auto_delete))
    for name in _KNOWN[lookup(current.arguments, "x-queue-type") or CLASSIC]:
        default = CLASSIC if name == "x-queue-type" else None
        has, wants = lookup(current.arguments, name), lookup(wanted.arguments, name)
        has = default if has is None else has
        wants = default if wants is None else wants
        if has == wants:
            continue
        if has is None or wants is None:
            _differ(name, where, _typed(wants), _typed(has))
        _differ(name, where, f"'{_plain(wants)}'", f"'{_plain(has)}'")


def _word(is_so: bool) -> str:
    return "'true'" if is_so else "'false'"


def _differ(name: str, where: str, wanted: str, current: str) -> None:
    text = f"inequivalent arg '{name}' for {where}: received {wanted} but current is {current}"
    raise QueueMismatch(text)


def _plain(value: Frozen) -> str:
    return value if isinstance(value, str) else describe(value)[1]


def _typed(value: Frozen) -> str:
    if value is None:
        return "none"
    return f"the value '{_plain(value)}' of type '{describe(value)[0]}'"
