"""The settings of share groups. Names and meanings are Kafka's (KIP-932, KIP-1191).

What was set is stored as records of the catalog; defaults are in this table. The bounds are
wider than Kafka's default bounds, which an operator of Kafka can change as well. Unlike in
Kafka, a dead letter is by default a copy of the record: one that only names the record is of
no use once retention has deleted it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from entrepot.broker.topic_config import Setting, SettingType, one_of, whole_number
from entrepot.core import limits
from entrepot.core.errors import InvalidConfig, InvalidName
from entrepot.core.names import check_topic_name
from entrepot.core.record import Record

CATALOG_KIND = "group-settings"

_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"P(?:(?P<days>\d{1,6})D)?"
    r"(?:T(?:(?P<hours>\d{1,9})H)?(?:(?P<minutes>\d{1,9})M)?(?:(?P<seconds>\d{1,9}(?:\.\d{1,9})?)S)?)?"
)
_UNIT_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}


def _duration_ms(text: str) -> int:
    """Parse a duration as in ISO 8601. Raises ValueError."""
    found = _DURATION.fullmatch(text)
    parts = {unit: part for unit, part in (found.groupdict() if found else {}).items() if part}
    if not parts:
        raise ValueError("must be a duration as in ISO 8601: P1DT2H3M4.5S")
    return round(sum(float(part) * _UNIT_MS[unit] for unit, part in parts.items()))


def _reset(text: str) -> object:
    if text.startswith(_BY_DURATION):
        return _duration_ms(text.removeprefix(_BY_DURATION))
    if text not in ("latest", "earliest"):
        raise ValueError(f"must be latest, earliest or {_BY_DURATION}PnDTnHnMn.nS")
    return text


def _dead_letter_topic(text: str) -> str:
    """Check the name of a dead-letter topic; empty means: none. Raises ValueError.

    As in Kafka, it may be any topic but one of the broker's own.
    """
    if text.startswith("__"):
        raise ValueError("must not be a topic of the broker's own")
    try:
        return check_topic_name(text) if text else ""
    except InvalidName as error:
        raise ValueError(str(error)) from None


SETTINGS = {
    setting.name: setting
    for setting in (
        Setting(
            "errors.deadletterqueue.copy.record.enable", SettingType.STRING, "true",
            "Whether a dead letter is a copy of the record, or only says which one it was.",
            one_of("true", "false"),
        ),
        Setting(
            "errors.deadletterqueue.topic.name", SettingType.STRING, "",
            "Where records go that were rejected or delivered too often. Empty: nowhere.",
            _dead_letter_topic,
        ),
        Setting(
            "share.auto.offset.reset", SettingType.STRING, "latest",
            "Where a group begins to read: latest, earliest, or by_duration:PnDTnHnMn.nS.",
            _reset,
        ),
        Setting(
            "share.delivery.count.limit", SettingType.INT, "5",
            "How often a record is delivered at most.",
            whole_number(1, limits.SHARE_DELIVERIES_MAX),
        ),
        Setting(
            "share.heartbeat.interval.ms", SettingType.INT, "5000",
            "How often members send a heartbeat.", whole_number(100, 3_600_000),
        ),
        Setting(
            "share.isolation.level", SettingType.STRING, "read_uncommitted",
            "Whether records of transactions that are open or aborted are delivered.",
            one_of("read_committed", "read_uncommitted"),
        ),
        Setting(
            "share.partition.max.record.locks", SettingType.INT, "2000",
            "How far delivery runs ahead of the oldest record that is not settled.",
            whole_number(1, limits.SHARE_LOCKS_MAX),
        ),
        Setting(
            "share.record.lock.duration.ms", SettingType.INT, "30000",
            "How long a record is locked for its consumer.", whole_number(1_000, 3_600_000),
        ),
        Setting(
            "share.renew.acknowledge.enable", SettingType.STRING, "true",
            "Whether a consumer may ask for more time.", one_of("true", "false"),
        ),
        Setting(
            "share.session.timeout.ms", SettingType.INT, "45000",
            "How long a member may send no heartbeat.", whole_number(1_000, 3_600_000),
        ),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """The settings that apply to one group, parsed."""

    dead_letter_topic: str
    copies_dead_letters: bool
    reset: str  # "latest", "earliest", or a text that begins with "by_duration:".
    reset_ms: int  # Begin to read this long ago; 0 unless `reset` is a duration.
    deliveries_max: int
    heartbeat_ms: int
    is_committed: bool
    locks_max: int
    lock_ms: int
    can_renew: bool
    session_ms: int


class _Parsed(NamedTuple):
    texts: Mapping[str, str]
    settings: ShareSettings


def check_settings(values: Mapping[str, str]) -> None:
    """Raise InvalidConfig for an unknown setting or an invalid value."""
    for name, value in values.items():
        setting = SETTINGS.get(name)
        if setting is None:
            raise InvalidConfig(f"unknown group setting {name}")
        try:
            setting.check(value)
        except ValueError as error:
            raise InvalidConfig(f"{name} cannot be {value!r}: {error}") from None
    parsed = _parse(values)
    if parsed.heartbeat_ms >= parsed.session_ms:
        raise InvalidConfig("a session must be longer than the time between two heartbeats")


def settings_record(group_id: str, values: Mapping[str, str]) -> Record:
    """Return the catalog's record that sets exactly these settings."""
    value = msgspec.json.encode(dict(values)) if values else None
    return Record(f"{CATALOG_KIND}:{group_id}".encode(), value)


class GroupSettingsView:
    """The groups' settings, folded from the catalog. A group need not exist to have settings."""

    def __init__(self) -> None:
        self._groups: dict[str, _Parsed] = {}
        self._default = _Parsed({}, _parse({}))

    def apply(self, name: str, value: bytes | None, /) -> None:
        if value is None:
            self._groups.pop(name, None)
        else:
            texts = msgspec.json.decode(value, type=dict[str, str])
            self._groups[name] = _Parsed(texts, _parse(texts))

    def texts(self, group_id: str) -> Mapping[str, str]:
        """Return the settings that were set on the group, as texts."""
        return self._groups.get(group_id, self._default).texts

    def of(self, group_id: str) -> ShareSettings:
        return self._groups.get(group_id, self._default).settings

    def names(self) -> list[str]:
        """Return the groups with settings."""
        return list(self._groups)

    def check_room(self, group_id: str) -> None:
        if group_id not in self._groups and len(self._groups) >= limits.GROUPS_MAX:
            raise InvalidConfig("settings of too many groups")


def _parse(values: Mapping[str, str]) -> ShareSettings:
    def text(name: str) -> str:
        return values.get(name, SETTINGS[name].default)

    reset = text("share.auto.offset.reset")
    is_duration = reset.startswith(_BY_DURATION)
    return ShareSettings(
        dead_letter_topic=text("errors.deadletterqueue.topic.name"),
        copies_dead_letters=text("errors.deadletterqueue.copy.record.enable") == "true",
        reset=reset,
        reset_ms=_duration_ms(reset.removeprefix(_BY_DURATION)) if is_duration else 0,
        deliveries_max=int(text("share.delivery.count.limit")),
        heartbeat_ms=int(text("share.heartbeat.interval.ms")),
        is_committed=text("share.isolation.level") == "read_committed",
        locks_max=int(text("share.partition.max.record.locks")),
        lock_ms=int(text("share.record.lock.duration.ms")),
        can_renew=text("share.renew.acknowledge.enable") == "true",
        session_ms=int(text("share.session.timeout.ms")),
    )
