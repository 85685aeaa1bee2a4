"""Schemas by their numbers, for values that begin with one.

A schema registry keeps its schemas in a topic of the Kafka that it uses, `_schemas`. Where that is
this broker they are here, and nobody has to be asked: a record for each version of a subject, its
value `{"id": 7, "schema": "…", "schemaType": "AVRO", …}`. Without a type it is Avro.
"""

from __future__ import annotations

from typing import Any

import msgspec

from entrepot.broker.access import Operation
from entrepot.core.errors import UnknownTopic
from entrepot.core.record import Record
from entrepot.gateway.http.console import reader, topics
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.fields import bad
from entrepot.wire.http.request import HttpError

Row = dict[str, Any]

TOPIC = "_schemas"


class _Stored(msgspec.Struct):
    id: int
    schema: str
    schemaType: str = "AVRO"  # noqa: N815, as it is spelt in the record.


async def show(call: Call) -> Row:
    """Return the type and the text of a schema; or why it is not here, which is no mistake: the
    page asks for the schema of whatever begins as if it had one."""
    text = call.path["id"]
    if not (text.isascii() and text.isdecimal() and len(text) < 11):
        raise bad("id: not a number")
    try:
        topic = topics.named(call, TOPIC, Operation.READ)
    except (UnknownTopic, HttpError) as error:
        return {"type": None, "why": str(error)}
    found: list[_Stored] = []

    def matches(record: Record) -> bool:
        stored = _read(record.value, text)
        if stored is not None:
            found.append(stored)
        return stored is not None

    await call.broker.turns.run(reader.first(call, topic, matches))
    if not found:
        return {"type": None, "why": f"the topic {TOPIC} has no schema {text}"}
    return {"type": found[0].schemaType, "schema": found[0].schema}


def _read(value: bytes | None, number: str) -> _Stored | None:
    """Return the schema that a record has, if it has that number."""
    if value is None or number.encode() not in value:
        return None
    try:
        stored = msgspec.json.decode(value, type=_Stored)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # Another kind of record: a subject's settings, a deletion.
    return stored if stored.id == int(number) else None
