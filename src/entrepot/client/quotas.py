"""Quotas: how much users and clients may ask of a broker.

A quota is on a user, on a client id, or on both. An entity says which: by kind, a name,
or the empty name for everybody who has no quota of their own.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kio.schema.alter_client_quotas.v1 import request as alteration
from kio.schema.alter_client_quotas.v1.response import AlterClientQuotasResponse
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.describe_client_quotas.v1.response import DescribeClientQuotasResponse
from kio.static.primitive import f64, i8

from entrepot.client.client import Client
from entrepot.client.errors import check

USER = "user"
CLIENT_ID = "client-id"
DEFAULT = ""

_EXACT, _DEFAULT, _ANY = i8(0), i8(1), i8(2)

Entity = Mapping[str, str]  # By kind, a name.


class Quota(NamedTuple):
    entity: dict[str, str]
    limits: dict[str, float]


class QuotaAdmin:
    def __init__(self, client: Client) -> None:
        self._cluster = client.cluster

    async def describe(self, wanted: Mapping[str, str | None]) -> list[Quota]:
        """Those on entities of just these kinds; None is any name."""
        components = tuple(
            ComponentData(
                entity_type=kind,
                match_type=_ANY if name is None else _EXACT if name else _DEFAULT,
                match=name or None,
            )
            for kind, name in wanted.items()
        )
        request = DescribeClientQuotasRequest(components=components, strict=True)

        async def attempt() -> list[Quota]:
            answer = await self._cluster.ask(request, DescribeClientQuotasResponse)
            check(answer.error_code, "quotas", answer.error_message)
            return [
                Quota(
                    {part.entity_type: part.entity_name or DEFAULT for part in entry.entity},
                    {each.key: float(each.value) for each in entry.values},
                )
                for entry in answer.entries or ()
            ]

        return await self._cluster.retry(attempt)

    async def alter(self, entity: Entity, put: Mapping[str, float], remove: Iterable[str]) -> None:
        changes = [(name, value, False) for name, value in put.items()]
        changes += [(name, 0.0, True) for name in remove]
        entry = alteration.EntryData(
            entity=tuple(
                alteration.EntityData(entity_type=kind, entity_name=name or None)
                for kind, name in entity.items()
            ),
            ops=tuple(
                alteration.OpData(key=name, value=f64(value), remove=is_gone)
                for name, value, is_gone in changes
            ),
        )
        request = alteration.AlterClientQuotasRequest(entries=(entry,), validate_only=False)

        async def attempt() -> None:
            answer = await self._cluster.ask_controller(request, AlterClientQuotasResponse)
            for each in answer.entries:
                check(each.error_code, "quotas", each.error_message)

        await self._cluster.retry(attempt)
