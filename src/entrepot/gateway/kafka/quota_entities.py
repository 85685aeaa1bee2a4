"""Translates the entities of quotas from and to Kafka's lists of types and names."""

from collections.abc import Iterable
from typing import Protocol

from entrepot.broker.quotas import DEFAULT, Entity
from entrepot.core.errors import PeerError

USER = "user"
CLIENT_ID = "client-id"


class Part(Protocol):
    @property
    def entity_type(self) -> str: ...
    @property
    def entity_name(self) -> str | None: ...


def entity_of(parts: Iterable[Part]) -> Entity:
    """Return the entity that a request names. A null name means: everybody without a quota of their
    own. Raises PeerError."""
    names: dict[str, str] = {}
    for part in parts:
        if part.entity_type not in (USER, CLIENT_ID):
            raise PeerError(f"there are no quotas on {part.entity_type[:100]!r}")
        if part.entity_type in names:
            raise PeerError(f"{part.entity_type} is there twice")
        if part.entity_name == "":
            raise PeerError(f"{part.entity_type} has an empty name")
        names[part.entity_type] = DEFAULT if part.entity_name is None else part.entity_name
    if not names:
        raise PeerError("the quota is on nobody")
    return Entity(names.get(USER), names.get(CLIENT_ID))


def parts_of(entity: Entity) -> dict[str, str | None]:
    """Return the types and names of an entity, as answers have them."""
    named = {USER: entity.user, CLIENT_ID: entity.client_id}
    return {
        kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None
    }
