"""Schemas that a registry keeps here."""

import json

from entrepot.core.record import Record
from tests.unit.gateway.http.console.test_topics import append_to
from tests.unit.gateway.http.management.house import House, in_house


def version(number: int, schema: str, **more: object) -> Record:
    said = {"subject": "s", "version": 1, "id": number, "schema": schema, "deleted": False}
    return Record(b'{"keytype":"SCHEMA"}', json.dumps(said | more).encode(), ())


@in_house(asks=True)
async def test_a_schema_by_its_number(house: House) -> None:
    told = await house.get("/api/console/schemas/7")
    assert told == {"type": None, "why": "there is no topic '_schemas'"}
    await house.broker.create_topic("_schemas", 1)
    await append_to(
        house,
        "_schemas",
        Record(b'{"keytype":"NOOP"}', None, ()),
        Record(b'{"keytype":"CONFIG"}', b'{"compatibilityLevel":7}', ()),
        version(77, '"long"'),
        version(7, '"string"'),
        version(8, "{}", schemaType="JSON"),
        Record(b"k", b'{"id":9,"schema":', ()),
    )
    assert await house.get("/api/console/schemas/7") == {"type": "AVRO", "schema": '"string"'}
    assert await house.get("/api/console/schemas/8") == {"type": "JSON", "schema": "{}"}
    told = await house.get("/api/console/schemas/9")
    assert told == {"type": None, "why": "the topic _schemas has no schema 9"}
    assert (await house.call("GET", "/api/console/schemas/x"))[0] == 400
    await house.add_user("max")
    _, told = await house.call("GET", "/api/console/schemas/7", user="max")
    assert told == {"type": None, "why": "read of topic '_schemas' refused for user 'max'"}
