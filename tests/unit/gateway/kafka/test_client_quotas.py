"""AlterClientQuotas and DescribeClientQuotas."""

from math import inf, nan
from typing import cast

import pytest
from kio.schema.alter_client_quotas.v1.request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kio.schema.describe_client_quotas.v1.request import ComponentData, DescribeClientQuotasRequest
from kio.schema.errors import ErrorCode
from kio.static.primitive import f64, i8

from entrepot.core import limits
from entrepot.gateway.kafka import alter_client_quotas, describe_client_quotas
from tests.unit.gateway.kafka.node import Node, on_node

EXACT, DEFAULT, ANY = i8(0), i8(1), i8(2)
NONE, INVALID = ErrorCode.none, ErrorCode.invalid_request

Names = dict[str, str | None]


def entry(names: Names, ops: dict[str, float | None]) -> EntryData:
    return EntryData(
        entity=tuple(EntityData(entity_type=k, entity_name=v) for k, v in names.items()),
        ops=tuple(
            OpData(key=key, value=cast(f64, value or 0.0), remove=value is None)
            for key, value in ops.items()
        ),
    )


async def alter(node: Node, *entries: EntryData, validate_only: bool = False) -> list[ErrorCode]:
    request = AlterClientQuotasRequest(entries=entries, validate_only=validate_only)
    answer = await alter_client_quotas.handle(node.context, request)
    for asked, answered in zip(entries, answer.entries, strict=True):
        assert [e.entity_name for e in asked.entity] == [e.entity_name for e in answered.entity]
    return [each.error_code for each in answer.entries]


def describe(
    node: Node, *components: tuple[str, i8, str | None], strict: bool = False
) -> list[tuple[Names, dict[str, float]]]:
    answer = describe_client_quotas.handle(node.context, request_for(*components, strict=strict))
    assert answer.error_code is ErrorCode.none
    return [
        (
            {part.entity_type: part.entity_name for part in each.entity},
            {value.key: value.value for value in each.values},
        )
        for each in answer.entries or ()
    ]


def request_for(
    *components: tuple[str, i8, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=tuple(
            ComponentData(entity_type=kind, match_type=how, match=name)
            for kind, how, name in components
        ),
        strict=strict,
    )


@on_node()
async def test_a_quota_comes_changes_and_goes_for_good(node: Node) -> None:
    rates: dict[str, float | None] = {"producer_byte_rate": 1000.0, "request_percentage": 12.5}
    assert (
        await alter(node, entry({"user": "ana"}, rates), entry({"user": None}, rates)) == [NONE] * 2
    )
    changes: dict[str, float | None] = {"producer_byte_rate": None, "consumer_byte_rate": 5.0}
    assert await alter(node, entry({"user": "ana"}, changes)) == [NONE]
    await node.power_fails()
    assert describe(node) == [
        ({"user": "ana"}, {"request_percentage": 12.5, "consumer_byte_rate": 5.0}),
        ({"user": None}, rates),
    ]
    gone: dict[str, float | None] = dict.fromkeys(("request_percentage", "consumer_byte_rate"))
    assert await alter(node, entry({"user": "ana"}, gone)) == [NONE]
    assert await alter(node, entry({"user": "bob"}, gone)) == [NONE]
    await node.power_fails()
    assert describe(node) == [({"user": None}, rates)]


@pytest.mark.parametrize(
    ("names", "ops"),
    [
        ({}, {"producer_byte_rate": 1.0}),
        ({"ip": "10.0.0.1"}, {"connection_creation_rate": 1.0}),
        ({"user": ""}, {"producer_byte_rate": 1.0}),
        ({"user": "ana", "planet": "mars"}, {"producer_byte_rate": 1.0}),
        ({"user": "ana"}, {"producer_byte_rate": 0.0}),
        ({"user": "ana"}, {"producer_byte_rate": -1.0}),
        ({"user": "ana"}, {"producer_byte_rate": nan}),
        ({"user": "ana"}, {"producer_byte_rate": inf}),
        ({"user": "ana"}, {"controller_mutation_rate": 1.0}),
        ({"user": "ana"}, {"consumer_byte_rate": 1.0, "typo": 1.0}),
    ],
)
@on_node()
async def test_what_is_refused_changes_nothing(
    node: Node, names: Names, ops: dict[str, float | None]
) -> None:
    good = entry({"client-id": "app"}, {"consumer_byte_rate": 1.0})
    assert await alter(node, entry(names, ops), good) == [INVALID, NONE]
    assert describe(node) == [({"client-id": "app"}, {"consumer_byte_rate": 1.0})]


@on_node()
async def test_twice_in_a_request(node: Node) -> None:
    one = entry({"user": "ana", "client-id": "a"}, {"producer_byte_rate": 1.0})
    other = entry({"client-id": "a", "user": "ana"}, {"consumer_byte_rate": 1.0})
    assert await alter(node, one, other) == [INVALID, INVALID]
    rate = OpData(key="producer_byte_rate", value=f64(1.0), remove=False)
    assert await alter(node, EntryData(entity=one.entity, ops=(rate, rate))) == [INVALID]
    twice = EntryData(entity=one.entity + one.entity[:1], ops=one.ops)
    assert await alter(node, twice) == [INVALID]
    assert describe(node) == []


@on_node()
async def test_validate_only(node: Node) -> None:
    good = entry({"user": "ana"}, {"producer_byte_rate": 1.0})
    bad = entry({"user": "bob"}, {"producer_byte_rate": 0.0})
    assert await alter(node, good, bad, validate_only=True) == [NONE, INVALID]
    assert describe(node) == []


@on_node()
async def test_quotas_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUOTAS_MAX", 1)
    assert await alter(node, entry({"user": "ana"}, {"producer_byte_rate": 1.0})) == [NONE]
    assert await alter(node, entry({"user": "bob"}, {"producer_byte_rate": 1.0})) == [INVALID]
    assert await alter(node, entry({"user": "ana"}, {"producer_byte_rate": 2.0})) == [NONE]


ENTITIES: list[Names] = [
    {"user": "ana"},
    {"user": "ana", "client-id": "app"},
    {"user": None, "client-id": "app"},
    {"user": None},
    {"client-id": None},
]


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, [0, 1, 2, 3, 4]),
        ([], True, []),
        ([("user", EXACT, "ana")], False, [0, 1]),
        ([("user", EXACT, "ana")], True, [0]),
        ([("user", DEFAULT, None)], False, [2, 3]),
        ([("user", DEFAULT, None)], True, [3]),
        ([("user", ANY, None)], False, [0, 1, 2, 3]),
        ([("client-id", ANY, None)], False, [1, 2, 4]),
        ([("client-id", EXACT, "app"), ("user", ANY, None)], True, [1, 2]),
        ([("user", EXACT, "bob")], False, []),
        ([("ip", ANY, None)], False, []),
    ],
)
@on_node()
async def test_filters(
    node: Node, components: list[tuple[str, i8, str | None]], strict: bool, found: list[int]
) -> None:
    await alter(node, *(entry(names, {"producer_byte_rate": 1.0}) for names in ENTITIES))
    assert [names for names, _ in describe(node, *components, strict=strict)] == [
        ENTITIES[number] for number in found
    ]


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("planet", ANY, None)], ErrorCode.unsupported_version),
        ([("user", ANY, None), ("user", ANY, None)], INVALID),
        ([("user", EXACT, None)], INVALID),
        ([("user", DEFAULT, "ana")], INVALID),
        ([("user", ANY, "ana")], INVALID),
        ([("user", i8(3), None)], INVALID),
    ],
)
@on_node()
async def test_a_filter_that_is_none(
    node: Node, components: list[tuple[str, i8, str | None]], code: ErrorCode
) -> None:
    answer = describe_client_quotas.handle(node.context, request_for(*components))
    assert answer.error_code is code
    assert answer.entries is None


@on_node()
async def test_whoever_may_not(node: Node) -> None:
    node.context.broker.access.is_enforced = True
    denied = ErrorCode.cluster_authorization_failed
    assert await alter(node, entry({"user": "ana"}, {"producer_byte_rate": 1.0})) == [denied]
    answer = describe_client_quotas.handle(node.context, request_for())
    assert answer.error_code is denied
