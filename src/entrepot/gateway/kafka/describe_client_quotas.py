"""DescribeClientQuotas (key 48), v0 and v1: the quotas of the entities that a filter matches.

Each component of the filter asks for a type of entity: by name, the default, or any. A
strict filter matches entities that have those types and no other.
"""

from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import (
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64

from entrepot.broker.access import Operation
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.quota_entities import parts_of
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

_TYPES = ("user", "client-id", "ip")  # Nobody can set a quota on an "ip" here.
_EXACT, _DEFAULT, _ANY = 0, 1, 2  # How a component matches.


def handle(context: Context, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    try:
        check_on_cluster(context, Operation.DESCRIBE_CONFIGS)
        wanted = _wanted(request)
    except PeerError as error:
        code, text = reason_of(error)
        return DescribeClientQuotasResponse(
            throttle_time=NO_THROTTLE, error_code=code, error_message=text, entries=None
        )
    entries = []
    for entity, values in context.broker.quotas.all.items():
        parts = parts_of(entity)
        if _matches(parts, wanted, request.strict):
            entries.append(
                EntryData(
                    entity=tuple(
                        EntityData(entity_type=kind, entity_name=name)
                        for kind, name in parts.items()
                    ),
                    values=tuple(
                        ValueData(key=limit.value, value=f64(value))
                        for limit, value in values.items()
                    ),
                )
            )
    return DescribeClientQuotasResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        error_message=None,
        entries=tuple(entries),
    )


def _wanted(request: DescribeClientQuotasRequest) -> dict[str, ComponentData]:
    """Return how each type of entity is to match. Raises PeerError."""
    wanted: dict[str, ComponentData] = {}
    for component in request.components:
        if component.entity_type not in _TYPES:
            raise Refusal(
                ErrorCode.unsupported_version,
                f"there are no quotas on {component.entity_type[:100]!r}",
            )
        if component.entity_type in wanted:
            raise PeerError(f"{component.entity_type} is in the filter twice")
        if component.match_type not in (_EXACT, _DEFAULT, _ANY):
            raise PeerError(f"there is no match type {component.match_type}")
        if (component.match_type == _EXACT) != (component.match is not None):
            raise PeerError("a name is for an exact match, and an exact match is for a name")
        wanted[component.entity_type] = component
    return wanted


def _matches(
    parts: dict[str, str | None], wanted: dict[str, ComponentData], is_strict: bool
) -> bool:
    if is_strict and len(parts) != len(wanted):
        return False
    return all(
        kind in parts and (component.match_type == _ANY or parts[kind] == component.match)
        for kind, component in wanted.items()
    )
