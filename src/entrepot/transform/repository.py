"""Formats and rules, as every client knows them: a state that follows from one topic.

A record's key says what it is, `format/NAME` or `rule/NAME`, and its value is JSON; one without a
value removes it. The newest counts, and what makes no sense is passed over: somebody else wrote it.
A format that a rule needs cannot be removed or become another kind while the rule is there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from entrepot.client.messaging.client import AsyncClient
from entrepot.client.messaging.replica import Replica
from entrepot.client.messaging.topics import Entry, record_of
from entrepot.core.record import Record
from entrepot.transform.kinds import Document, Kind, kind_of
from entrepot.transform.refusal import (
    FORMATS_MAX,
    RULES_MAX,
    SCHEMA_BYTES_MAX,
    Refused,
    check_size,
)

TOPIC = "entrepot.formats"
_NAME_MAX = 200


class Format(NamedTuple):
    """A format that was declared."""

    name: str
    kind: str
    schema: Mapping[str, Any]

    def said(self) -> dict[str, Any]:
        return {"kind": self.kind, "schema": self.schema}


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages come from, or go to."""

    kind: str  # topic or queue
    name: str

    @classmethod
    def of(cls, text: str) -> Place:
        kind, colon, name = text.partition(":")
        if not colon or kind not in ("topic", "queue") or not 0 < len(name) <= _NAME_MAX:
            raise Refused(f"{text!r} is neither topic:NAME nor queue:NAME")
        return cls(kind, name)

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


@dataclass(frozen=True, slots=True)
class Rule:
    """What comes to one place goes to another, in another format."""

    name: str
    source: Place
    source_format: str
    target: Place
    target_format: str
    rename: Mapping[str, str] = field(default_factory=dict)  # Fields, from old to new.

    @classmethod
    def of(cls, name: str, said: Mapping[str, Any]) -> Rule:
        try:
            rule = cls(
                name,
                Place.of(said["from"]),
                said["from_format"],
                Place.of(said["to"]),
                said["to_format"],
                dict(said.get("rename", {})),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise Refused(f"no rule: {error}") from None
        if rule.source == rule.target:
            raise Refused("a rule leads somewhere else")
        if rule.source.kind != rule.target.kind:
            raise Refused("a rule leads from topic to topic, or from queue to queue")
        return rule

    def said(self) -> dict[str, Any]:
        return {
            "from": str(self.source),
            "from_format": self.source_format,
            "to": str(self.target),
            "to_format": self.target_format,
            "rename": self.rename,
        }


class Conversion:
    """A rule with its two formats, ready to be used."""

    def __init__(self, rule: Rule, reads: Kind, writes: Kind) -> None:
        self.rule = rule
        self.content_type = writes.content_type
        self._reads = reads
        self._writes = writes

    def convert(self, data: bytes) -> bytes:
        """Return a message in the other format. Raises Refused."""
        document = self._reads.read(data)
        return self._writes.write(renamed(document, self.rule.rename))


def renamed(document: Document, names: Mapping[str, str]) -> Document:
    if not names:
        return document
    found = {names.get(name, name): value for name, value in document.items()}
    if len(found) < len(document):
        raise Refused("two fields would have one name")
    return found


class Repository:
    """Formats and rules. Every client that opens one sees the same."""

    def __init__(self, client: AsyncClient) -> None:
        self.formats: dict[str, Format] = {}
        self.rules: dict[str, Rule] = {}
        self.changed: Callable[[], object] = lambda: None
        self._replica = Replica(client, TOPIC, self._apply)

    async def start(self) -> None:
        """Read what is there, and follow what comes. Raises ClientError."""
        await self._replica.start()

    async def add_format(self, name: str, kind: str, schema: Mapping[str, Any]) -> Format:
        """Add a format, or replace it. Raises Refused, ClientError."""
        if len(self.formats) >= FORMATS_MAX and name not in self.formats:
            raise Refused(f"there are {FORMATS_MAX} formats")
        said = {"kind": kind, "schema": schema}
        _made_format(name, said)
        await self._write(f"format/{_checked(name)}", said)
        return self.formats[name]

    async def add_rule(self, name: str, said: Mapping[str, Any]) -> Rule:
        """Add a rule, or replace it. Raises Refused, ClientError."""
        if len(self.rules) >= RULES_MAX and name not in self.rules:
            raise Refused(f"there are {RULES_MAX} rules")
        rule = Rule.of(_checked(name), said)
        self.conversion(rule)
        self._check_circle(rule)
        await self._write(f"rule/{name}", rule.said())
        return self.rules[name]

    async def remove_format(self, name: str) -> None:
        """Remove a format. Raises Refused if a rule needs it, ClientError."""
        if name not in self.formats:
            raise Refused(f"there is no format {name}")
        for rule in self.rules.values():
            if name in (rule.source_format, rule.target_format):
                raise Refused(f"rule {rule.name} needs format {name}")
        await self._replica.change(Record(f"format/{name}".encode(), None, (), -1))

    async def remove_rule(self, name: str) -> None:
        if name not in self.rules:
            raise Refused(f"there is no rule {name}")
        await self._replica.change(Record(f"rule/{name}".encode(), None, (), -1))

    def kind(self, name: str) -> Kind:
        """Return what reads and writes a format. Raises Refused if there is none."""
        found = self.formats.get(name)
        if found is None:
            raise Refused(f"there is no format {name}")
        return kind_of(found.kind, found.schema)

    def conversion(self, rule: Rule) -> Conversion:
        """Return a rule with its formats. Raises Refused."""
        return Conversion(rule, self.kind(rule.source_format), self.kind(rule.target_format))

    def _check_circle(self, rule: Rule) -> None:
        """Refuse a rule whose messages would come back to it."""
        others = [each for each in self.rules.values() if each.name != rule.name]
        following = {rule.target: None}
        waiting = [rule.target]
        while waiting:
            place = waiting.pop()
            if place == rule.source:
                raise Refused("the rules would lead in a circle")
            for each in others:
                if each.source == place and each.target not in following:
                    following[each.target] = None
                    waiting.append(each.target)

    async def _write(self, key: str, said: Mapping[str, Any]) -> None:
        record = record_of(dict(said), key, None)
        check_size(record.value or b"", SCHEMA_BYTES_MAX)
        refusal = await self._replica.change(record)
        if isinstance(refusal, Refused):
            raise refusal

    def _apply(self, entry: Entry) -> Refused | None:
        """Take note of a record. What makes no sense changes nothing."""
        what, _, name = (entry.key or b"").decode("utf-8", "replace").partition("/")
        try:
            if what == "format" and entry.body:
                self.formats[_checked(name)] = _made_format(name, _read(entry.body))
            elif what == "format":
                self.formats.pop(name, None)
            elif what == "rule" and entry.body:
                self.rules[_checked(name)] = Rule.of(name, _read(entry.body))
            elif what == "rule":
                self.rules.pop(name, None)
        except Refused as refusal:
            return refusal
        self.changed()
        return None


def _read(body: bytes) -> Mapping[str, Any]:
    check_size(body, SCHEMA_BYTES_MAX)
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused("not an object")
    return found


def _made_format(name: str, said: Mapping[str, Any]) -> Format:
    kind, schema = said.get("kind"), said.get("schema", {})
    if not isinstance(kind, str) or not isinstance(schema, dict):
        raise Refused("a format has a kind and a schema")
    kind_of(kind, schema)
    return Format(name, kind, schema)


def _checked(name: str) -> str:
    if (
        not 0 < len(name) <= _NAME_MAX
        or not name.replace("-", "_").replace(".", "_").isidentifier()
    ):
        raise Refused(f"{name!r} is no name")
    return name
