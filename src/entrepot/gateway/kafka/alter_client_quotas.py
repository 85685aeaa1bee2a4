"""AlterClientQuotas (key 49), v0 and v1: set quotas, or remove them.

Quotas can be set on users, client ids, and both together. Quotas on addresses and on the
controller's work are not supported and refused. Answered when all changes are permanent. If one
change of an entity is invalid, none of its changes is made.
"""

from collections import Counter
from collections.abc import Mapping
from math import isfinite

from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest
from kio.schema.alter_client_quotas.v1.request import EntryData as RequestEntry
from kio.schema.alter_client_quotas.v1.response import (
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.quotas import Entity, Limit, quota_record
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.quota_entities import entity_of
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of

_KEYS = {limit.value: limit for limit in Limit}


async def handle(context: Context, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    times = Counter(frozenset(entry.entity) for entry in request.entries)
    known = context.broker.quotas.all
    changes: dict[Entity, Mapping[Limit, float]] = {}
    errors: list[Exception | None] = []
    for entry in request.entries:
        try:
            check_on_cluster(context, Operation.ALTER_CONFIGS)
            if times[frozenset(entry.entity)] > 1:
                raise PeerError("the entity is in the request twice")
            entity = entity_of(entry.entity)
            changes[entity] = _values_after(known.get(entity, {}), entry)
            errors.append(None)
        except PeerError as error:
            errors.append(error)
    try:
        new = [entity for entity in changes if entity not in known]
        if new and len(known) + len(new) > limits.QUOTAS_MAX:
            raise PeerError(f"there may be {limits.QUOTAS_MAX} quotas")
        if not request.validate_only:
            records = [quota_record(*change) for change in changes.items()]
            await context.broker.change_security(*records)
    except KNOWN as error:
        errors = [each or error for each in errors]
    return AlterClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        entries=tuple(map(_answer, request.entries, errors)),
    )


def _values_after(before: Mapping[Limit, float], entry: RequestEntry) -> dict[Limit, float]:
    """Return the limits of an entity with the changes of an entry. Raises PeerError."""
    values = dict(before)
    if len({op.key for op in entry.ops}) < len(entry.ops):
        raise PeerError("a quota is in the request twice")
    for op in entry.ops:
        limit = _KEYS.get(op.key)
        if limit is None:
            raise PeerError(f"there is no quota {op.key[:100]!r}; there are {', '.join(_KEYS)}")
        if op.remove:
            values.pop(limit, None)
        elif not isfinite(op.value) or op.value <= 0:
            raise PeerError(f"{op.key} must be greater than 0")
        else:
            values[limit] = op.value
    return values


def _answer(entry: RequestEntry, error: Exception | None) -> EntryData:
    code, text = (ErrorCode.none, None) if error is None else reason_of(error)
    return EntryData(
        error_code=code,
        error_message=text,
        entity=tuple(
            EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ),
    )
