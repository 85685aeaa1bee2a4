"""Translation of a queue's arguments to the broker's settings.

Error texts are RabbitMQ's, because users search for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from entrepot.broker.queue.settings import QueueSettings, QueueSpec, WhenFull
from entrepot.core import limits
from entrepot.core.errors import InvalidQueue, QueueMismatch, QueueNameRefused
from entrepot.core.names import is_short
from entrepot.core.value import Frozen, FrozenTable, lookup
from entrepot.gateway.rabbitmq.difference import inequivalent, plain, truth, typed
from entrepot.gateway.rabbitmq.erlang import describe
from entrepot.gateway.rabbitmq.names import RESERVED_PREFIX

CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
DROP_HEAD, REJECT, REJECT_DEAD_LETTER = "drop-head", "reject-publish", "reject-publish-dlx"
AT_LEAST_ONCE = "at-least-once"
_WHEN_FULL = {
    DROP_HEAD: WhenFull.DROP_OLDEST,
    REJECT: WhenFull.REFUSE,
    REJECT_DEAD_LETTER: WhenFull.REFUSE_AND_DEAD_LETTER,
}
_TYPE, _AGE, _SEGMENT = "x-queue-type", "x-max-age", "x-stream-max-segment-size-bytes"
# The arguments of a stream that are settings of its topic.
_STREAM_FIELDS = {
    _AGE: "age_ms_max",
    "x-max-length-bytes": "length_bytes_max",
    _SEGMENT: "segment_bytes",
}

_DELIVERY_LIMIT = 20  # Default of quorum queues, as in RabbitMQ.
_PRIORITY_MAX = 255
_UNITS_MS = {"Y": 31_536_000_000, "M": 2_592_000_000, "D": 86_400_000}
_UNITS_MS |= {"h": 3_600_000, "m": 60_000, "s": 1_000}

# The arguments of each type of queue. Arguments that no type has are ignored.
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
class QueueDeclaration:
    """A queue as a client of RabbitMQ asks for it."""

    vhost: str
    name: str
    arguments: FrozenTable = ()
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False

    def spec(self) -> QueueSpec:
        """Return the declared queue. Raises InvalidQueue."""
        where = _place(self.vhost, self.name)
        settings = parse(self.arguments, where)
        if type_of(settings) != CLASSIC:
            _check_property(not self.auto_delete, "auto-delete", where)
            _check_property(not self.exclusive, "exclusive-owner", where)
            _check_property(self.durable, "non-durable", where)
        return QueueSpec(
            self.name, self.durable, self.exclusive, self.auto_delete, settings, self.arguments
        )

    def check_same(self, current: QueueSpec) -> None:
        """Raise QueueMismatch if the current queue differs. Its owner is not compared."""
        where = _place(self.vhost, self.name)
        if current.durable != self.durable:
            _differ("durable", where, truth(self.durable), truth(current.durable))
        if current.auto_delete != self.auto_delete:
            _differ("auto_delete", where, truth(self.auto_delete), truth(current.auto_delete))
        arguments = current.arguments
        if not arguments and current.settings.is_stream:
            arguments = self._as_declared(current.settings)
        for name in _KNOWN[lookup(arguments, _TYPE) or CLASSIC]:
            default = CLASSIC if name == _TYPE else None
            has, wants = lookup(arguments, name), lookup(self.arguments, name)
            has = default if has is None else has
            wants = default if wants is None else wants
            if has == wants:
                continue
            if has is None or wants is None:
                _differ(name, where, _typed(wants), _typed(has))
            _differ(name, where, f"'{plain(wants)}'", f"'{plain(has)}'")

    def _as_declared(self, topic: QueueSettings) -> FrozenTable:
        """Return the arguments with which a topic would have been declared.

        Other protocols can change a topic's settings, so only those are compared that this
        declaration mentions.
        """
        found: dict[str, Frozen] = dict(self.arguments)
        if found.get(_TYPE) == STREAM:
            wanted = parse(self.arguments, _place(self.vhost, self.name))
            for name, field in _STREAM_FIELDS.items():
                has = getattr(topic, field)
                if name in found and has != getattr(wanted, field):
                    found[name] = f"{has // 1_000}s" if name == _AGE and has is not None else has
        found[_TYPE] = STREAM
        return tuple(sorted(found.items()))


def check_queue_name(name: str) -> None:
    """Raise QueueNameRefused for a name that is reserved for the broker."""
    if name.startswith(RESERVED_PREFIX):
        raise QueueNameRefused(f"queue name '{name}' contains reserved prefix '{RESERVED_PREFIX}*'")


def parse(table: FrozenTable, where: str) -> QueueSettings:
    """Return the settings for these arguments. Raises InvalidQueue."""
    kind = _queue_type(table, where)
    for name, check in _CHECKS.items():
        value = lookup(table, name)
        wrong = None if value is None or name not in _KNOWN[kind] else check(value)
        if wrong is not None:
            raise InvalidQueue(f"invalid arg '{name}' for {where}: {wrong}")
    has_key = lookup(table, "x-dead-letter-routing-key") is not None
    if kind != STREAM and has_key and lookup(table, "x-dead-letter-exchange") is None:
        wrong = "routing_key_but_no_dlx_defined"
        raise InvalidQueue(f"invalid arg 'x-dead-letter-routing-key' for {where}: {wrong}")
    for name, _ in table:
        if name not in _KNOWN[kind] and any(name in known for known in _KNOWN.values()):
            module = f"rabbit_{kind}_queue"
            raise InvalidQueue(f"invalid arg '{name}' for {where} of queue type {module}")
    return _meaning(table, kind)


def type_of(settings: QueueSettings) -> str:
    """Return the queue's type as RabbitMQ calls it."""
    if settings.is_stream:
        return STREAM
    return QUORUM if settings.keeps_all else CLASSIC


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


def _place(vhost: str, name: str) -> str:
    return f"queue '{name}' in vhost '{vhost}'"


def _check_property(is_right: bool, name: str, where: str) -> None:
    if not is_right:
        raise InvalidQueue(f"invalid property '{name}' for {where}")


def _meaning(table: FrozenTable, kind: str) -> QueueSettings:
    def value(name: str) -> Frozen:
        return lookup(table, name)

    limit = value("x-delivery-limit")
    if not isinstance(limit, int):
        limit = _DELIVERY_LIMIT if kind == QUORUM else None
    priority_max = value("x-max-priority")
    retention_ms, segment_bytes = value("x-retention-ms"), value(_SEGMENT)
    if segment_bytes is not None:
        segment_bytes = min(max(segment_bytes, limits.SEGMENT_BYTES_MIN), limits.SEGMENT_BYTES_MAX)
    return QueueSettings(
        is_stream=kind == STREAM,
        keeps_all=kind == QUORUM,
        ttl_ms=value("x-message-ttl"),
        expires_ms=value("x-expires"),
        length_max=value("x-max-length"),
        length_bytes_max=value("x-max-length-bytes"),
        when_full=_WHEN_FULL[value("x-overflow") or DROP_HEAD],
        dead_letter_exchange=value("x-dead-letter-exchange"),
        dead_letter_key=value("x-dead-letter-routing-key"),
        dead_letter_at_least_once=value("x-dead-letter-strategy") == AT_LEAST_ONCE,
        priority_max=0 if priority_max is None else max(1, priority_max),
        single_active=value("x-single-active-consumer") == ("bool", True),
        delivery_limit=None if limit is None or limit < 0 else limit,
        retention_ms=limits.QUEUE_RETENTION_MS if retention_ms is None else retention_ms,
        retention_bytes=value("x-retention-bytes"),
        age_ms_max=_age_ms(value(_AGE)),
        segment_bytes=segment_bytes,
    )


# --- checks: return what is wrong with a value, in Erlang's notation. None means: nothing


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
    """Check an exchange's name, or a routing key, for dead letters."""
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
    """Return the milliseconds of a text such as `7D`; None if the text is another, or 0."""
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


# --- comparing with an earlier declaration


def _differ(name: str, where: str, wanted: str, current: str) -> None:
    raise QueueMismatch(inequivalent(name, where, wanted, current))


def _typed(value: Frozen) -> str:
    return "none" if value is None else typed(value)
