"""Attributes of a queue: what they are called, which values they may have, and the settings that
the broker has for them.

All values are texts. What concerns parts of AWS that are not here (keys, policies) is refused
unless it says that there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings, QueueSpec
from entrepot.broker.router.event import DEFAULT_EXCHANGE
from entrepot.core import limits
from entrepot.core.errors import QueueMismatch
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.errors import SqsError

REDRIVE, POLICY = "RedrivePolicy", "Policy"
ALL = "All"

Arn = Callable[[str], str]  # Returns the ARN of the queue of that name.


class _Number(NamedTuple):
    """An attribute that is a number."""

    setting: str
    low: int
    high: int
    default: int  # What a queue has that says nothing of it.
    scale: int = 1_000  # From seconds to the setting's ms.


_NUMBERS = {
    "DelaySeconds": _Number("delay_ms", 0, sqs_limits.DELAY_S_MAX, 0),
    "MaximumMessageSize": _Number(
        "message_bytes_max",
        sqs_limits.MESSAGE_BYTES_LEAST,
        sqs_limits.MESSAGE_BYTES_MAX,
        sqs_limits.MESSAGE_BYTES,
        1,
    ),
    "MessageRetentionPeriod": _Number(
        # What never expires is told as the longest time.
        "ttl_ms",
        sqs_limits.RETENTION_S_MIN,
        sqs_limits.RETENTION_S_MAX,
        sqs_limits.RETENTION_S_MAX,
    ),
    "ReceiveMessageWaitTimeSeconds": _Number("wait_ms", 0, sqs_limits.WAIT_S_MAX, 0),
    "VisibilityTimeout": _Number(
        "lease_ms", 0, sqs_limits.VISIBILITY_S_MAX, sqs_limits.VISIBILITY_S
    ),
}
# What is not supported, and the values that say so.
_ABSENT = {
    "KmsMasterKeyId": ("",),
    POLICY: ("",),
    "RedriveAllowPolicy": ("",),
    "SqsManagedSseEnabled": ("false",),
}
_UNSUPPORTED = ("KmsDataKeyReusePeriodSeconds",)


class _Choice(NamedTuple):
    """An attribute of FIFO queues with two values."""

    setting: str
    no: str
    yes: str


FIFO = "FifoQueue"
_CHOICES = {
    FIFO: _Choice("has_groups", "false", "true"),
    "ContentBasedDeduplication": _Choice("identity_is_body", "false", "true"),
    "DeduplicationScope": _Choice("identity_per_group", "queue", "messageGroup"),
    "FifoThroughputLimit": _Choice("rate_per_group", "perQueue", "perMessageGroupId"),
}
_COUNTS = {  # Properties of a queue.
    "ApproximateNumberOfMessages": "ready_count",
    "ApproximateNumberOfMessagesDelayed": "deferred_count",
    "ApproximateNumberOfMessagesNotVisible": "unacked_count",
}
_TIMES = {"CreatedTimestamp": "created_ms", "LastModifiedTimestamp": "changed_ms"}
_NAMES = frozenset(
    (ALL, "QueueArn", REDRIVE, *_NUMBERS, *_COUNTS, *_TIMES, *_ABSENT, *_CHOICES, *_UNSUPPORTED)
)


class Redrive(NamedTuple):
    """When a message becomes a dead letter, and where."""

    target: str  # The name of a queue.
    receives_max: int


# --- reading


def read(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, Any]:
    """Return the settings that these attributes say. Raises SqsError."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        number = _NUMBERS.get(name)
        if number is not None:
            if not (value.isascii() and value.isdigit() and len(value) <= 9):
                raise _wrong(name, value)
            if not number.low <= int(value) <= number.high:
                raise _wrong(name, value, f"It is from {number.low} to {number.high}.")
            found[number.setting] = int(value) * number.scale
        elif name in _CHOICES and (is_fifo or value != _CHOICES[name].no):
            found[_CHOICES[name].setting] = _read_choice(name, value, is_fifo=is_fifo)
        elif name in _CHOICES:
            continue  # A standard queue may say that it is none of it.
        elif name == REDRIVE:
            found |= _redrive_settings(read_redrive(value))
        elif name in _UNSUPPORTED or name in _ABSENT:
            if value not in _ABSENT.get(name, ()):
                text = f"The attribute {name} with this value is not supported here."
                raise SqsError("UnsupportedOperation", text)
            if name == POLICY:
                found["grants"] = ()
        else:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")
    return found


def _read_choice(name: str, value: str, *, is_fifo: bool) -> bool:
    _, no, yes = _CHOICES[name]
    if not is_fifo:
        raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    if value not in (no, yes) or (name == FIFO and value == no):
        raise _wrong(name, value)
    return value == yes


def check_together(settings: QueueSettings) -> None:
    """Raise SqsError if settings of a FIFO queue contradict each other."""
    if settings.rate_per_group and not settings.identity_per_group:
        text = "It is allowed only when the value for DeduplicationScope is messageGroup."
        raise _wrong("FifoThroughputLimit", "perMessageGroupId", text)


def read_redrive(text: str) -> Redrive | None:
    """Return what a redrive policy says; None for an empty one. Raises SqsError."""
    if not text:
        return None
    try:
        policy = msgspec.json.decode(text, type=dict[str, str | int])
    except (msgspec.DecodeError, RecursionError):
        raise _wrong(REDRIVE, text, "It is not a JSON object of texts and numbers.") from None
    target, count = policy.pop("deadLetterTargetArn", None), policy.pop("maxReceiveCount", None)
    if isinstance(count, str) and count.isascii() and count.isdigit() and len(count) <= 9:
        count = int(count)
    if policy or not isinstance(target, str) or not isinstance(count, int):
        raise _wrong(REDRIVE, text, "It has a deadLetterTargetArn and a maxReceiveCount.")
    if not 1 <= count <= sqs_limits.RECEIVES_MAX:
        raise _wrong(REDRIVE, text, f"maxReceiveCount is from 1 to {sqs_limits.RECEIVES_MAX}.")
    name = name_in(target)
    if name is None:
        raise _wrong(REDRIVE, text, "deadLetterTargetArn is not the ARN of a queue.")
    return Redrive(name, count)


def name_in(arn: str) -> str | None:
    """Return the name of the queue that has this ARN; None if it is no ARN of a queue."""
    parts = arn.split(":", 5)
    is_queue = len(parts) == 6 and parts[:3] == ["arn", "aws", "sqs"]
    return (parts[5] or None) if is_queue else None


def _redrive_settings(redrive: Redrive | None) -> dict[str, Any]:
    if redrive is None:
        return {"dead_letter_exchange": None, "dead_letter_key": None, "delivery_limit": None}
    return {
        "dead_letter_exchange": DEFAULT_EXCHANGE,
        "dead_letter_key": redrive.target,
        "dead_letter_at_least_once": True,
        # The limit counts deliveries that failed before the one that is the last.
        "delivery_limit": redrive.receives_max - 1,
    }


def redrive_of(settings: QueueSettings) -> Redrive | None:
    """Return the redrive policy of a queue, if SQS can tell what it does with dead letters."""
    key, limit = settings.dead_letter_key, settings.delivery_limit
    if settings.dead_letter_exchange != DEFAULT_EXCHANGE or key is None or limit is None:
        return None
    return Redrive(key, limit + 1)


def _wrong(name: str, value: str, reason: str = "") -> SqsError:
    text = f"Invalid value {value[:100]!r} for the attribute {name}. {reason}".strip()
    return SqsError("InvalidAttributeValue", text)


# --- telling


def check_names(names: Iterable[str]) -> None:
    for name in names:
        if name not in _NAMES:
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name[:100]}.")


def tell(queue: Queue, names: Iterable[str], arn: Arn) -> dict[str, str]:
    """Return the attributes of a queue that are asked for and that it has. Raises SqsError."""
    asked = list(names)
    check_names(asked)
    found = {name: str(getattr(queue, count)) for name, count in _COUNTS.items()}
    found["QueueArn"] = arn(queue.name)
    for name, setting in _TIMES.items():
        time_ms = getattr(queue.settings, setting)
        if time_ms is not None:
            found[name] = str(time_ms // 1_000)
    found |= _told_settings(queue.settings, arn)
    if queue.settings.grants:
        found[POLICY] = msgspec.json.encode(_policy(queue.settings, arn(queue.name))).decode()
    return found if ALL in asked else {name: found[name] for name in asked if name in found}


def _told_settings(settings: QueueSettings, arn: Arn) -> dict[str, str]:
    found = {}
    for name, (setting, _, _, default, scale) in _NUMBERS.items():
        value = getattr(settings, setting)
        found[name] = str(default if value is None else value // scale)
    redrive = redrive_of(settings)
    if redrive is not None:
        policy = {
            "deadLetterTargetArn": arn(redrive.target),
            "maxReceiveCount": redrive.receives_max,
        }
        found[REDRIVE] = msgspec.json.encode(policy).decode()
    found["SqsManagedSseEnabled"] = "false"
    if settings.has_groups:
        for name, (setting, no, yes) in _CHOICES.items():
            found[name] = yes if getattr(settings, setting) else no
    return found


def _policy(settings: QueueSettings, resource: str) -> dict[str, Any]:
    """Return the permissions of a queue as a policy of AWS."""
    statements = [
        {
            "Sid": each.label,
            "Effect": "Allow",
            "Principal": {"AWS": each.users},
            "Action": [f"SQS:{action}" for action in each.actions],
            "Resource": resource,
        }
        for each in settings.grants
    ]
    return {"Version": "2012-10-17", "Id": f"{resource}/SQSDefaultPolicy", "Statement": statements}


def lease_ms_of(settings: QueueSettings) -> int:
    lease_ms = settings.lease_ms
    return sqs_limits.VISIBILITY_S * 1_000 if lease_ms is None else lease_ms


def message_bytes_max_of(settings: QueueSettings) -> int:
    bytes_max = settings.message_bytes_max
    return sqs_limits.MESSAGE_BYTES if bytes_max is None else bytes_max


# --- declaring


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """A queue as SQS asks for it. Implements `Declaration`."""

    name: str
    given: Mapping[str, str]  # Attributes that are named in the request.
    labels: tuple[tuple[str, str], ...]
    now_ms: int
    exclusive: bool = False

    def spec(self) -> QueueSpec:
        settings = QueueSettings(
            ttl_ms=sqs_limits.RETENTION_S * 1_000,
            dead_letters_expired=False,
            labels=self.labels,
            created_ms=self.now_ms,
            changed_ms=self.now_ms,
        )
        if self.is_fifo:
            identity_ms = sqs_limits.DEDUPLICATION_S * 1_000
            settings = replace(settings, keeps_all=True, identity_ms=identity_ms)
        settings = replace(settings, **read(self.given, is_fifo=self.is_fifo))
        check_together(settings)
        return QueueSpec(self.name, durable=True, settings=settings)

    @property
    def is_fifo(self) -> bool:
        return self.given.get(FIFO) == "true"

    def check_same(self, current: QueueSpec) -> None:
        settings = current.settings
        if settings.is_stream:
            raise QueueMismatch("A topic already exists with this name.")
        for name, text in self.given.items():
            for setting, value in read({name: text}, is_fifo=self.is_fifo).items():
                has = getattr(settings, setting)
                if has is None and name in _NUMBERS:
                    has = _NUMBERS[name].default * _NUMBERS[name].scale
                if has != value:
                    reason = "A queue already exists with the same name and a different value for "
                    raise QueueMismatch(f"{reason}attribute {name}.")


assert sqs_limits.RETENTION_S_MAX * 1_000 <= limits.QUEUE_TTL_MS_MAX
