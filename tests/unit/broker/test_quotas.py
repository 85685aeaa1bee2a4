"""Quotas: whose counts, who shares it, and what a token bucket promises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from entrepot.broker.quotas import DEFAULT, Bucket, Entity, Limit, Quotas, quota_record
from entrepot.core import limits
from tests.unit.gateway.kafka.node import Node, on_node

RATE = Limit.PRODUCER_BYTE_RATE
BURST_S = limits.QUOTA_BURST_SECONDS


def quotas_with(*entries: tuple[Entity, float], limit: Limit = RATE) -> Quotas:
    quotas = Quotas()
    for entity, rate in entries:
        put(quotas, entity, {limit: rate})
    return quotas


def put(quotas: Quotas, entity: Entity, values: dict[Limit, float]) -> None:
    record = quota_record(entity, values)
    assert record.key is not None
    quotas.apply(record.key.decode().removeprefix("quota:"), record.value)


def test_a_bucket_lends_and_wants_it_back() -> None:
    bucket = Bucket(100.0, now_s=5.0)
    assert bucket.spend(100 * BURST_S, now_s=5.0) == 0
    assert bucket.spend(50, now_s=5.0) == pytest.approx(0.5)
    assert bucket.spend(0, now_s=5.25) == pytest.approx(0.25)
    assert bucket.spend(0, now_s=6.0) == 0
    assert bucket.spend(50, now_s=6.0) == 0  # What came in meanwhile.
    assert bucket.spend(100 * BURST_S, now_s=10_000.0) == 0  # Full, and not fuller.
    assert bucket.spend(1, now_s=10_000.0) == pytest.approx(0.01)


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 1_000)), max_size=50))
def test_who_waits_as_told_keeps_to_the_rate(uses: list[tuple[float, float]]) -> None:
    bucket, now_s, used, last = Bucket(10.0, now_s=0.0), 0.0, 0.0, 0.0
    for pause_s, amount in uses:
        now_s += pause_s
        used, last = used + last, amount
        now_s += bucket.spend(amount, now_s)
        assert used + last <= 10.0 * (now_s + BURST_S) + 1e-6


USER, CLIENT = "ana", "app"
# Kafka's order, and with whom it is shared.
ORDER = [
    (Entity(USER, CLIENT), Entity(USER, CLIENT)),
    (Entity(USER, DEFAULT), Entity(USER, CLIENT)),
    (Entity(USER, None), Entity(USER, None)),
    (Entity(DEFAULT, CLIENT), Entity(USER, CLIENT)),
    (Entity(DEFAULT, DEFAULT), Entity(USER, CLIENT)),
    (Entity(DEFAULT, None), Entity(USER, None)),
    (Entity(None, CLIENT), Entity(None, CLIENT)),
    (Entity(None, DEFAULT), Entity(None, CLIENT)),
]


@pytest.mark.parametrize("closest", range(len(ORDER)))
def test_the_closest_counts(closest: int) -> None:
    quotas = quotas_with(*((entity, 10.0 + n) for n, (entity, _) in enumerate(ORDER[closest:])))
    assert quotas._find(USER, CLIENT, RATE) == (10.0, ORDER[closest][1])
    assert quotas._find(USER, CLIENT, Limit.CONSUMER_BYTE_RATE) is None


def test_nobodys_quota_is_no_quota() -> None:
    quotas = quotas_with((Entity("bob", None), 1.0), (Entity(None, "other"), 1.0))
    assert quotas.spend(USER, CLIENT, RATE, 1e9, 0.0) == 0
    assert quotas.spend("bob", CLIENT, RATE, 1e9, 0.0) > 0


def test_a_users_quota_is_shared_by_all_its_clients() -> None:
    quotas = quotas_with((Entity(DEFAULT, None), 1.0))
    assert quotas.spend(USER, "one", RATE, BURST_S, 0.0) == 0
    assert quotas.spend(USER, "two", RATE, 1, 0.0) == pytest.approx(1)
    assert quotas.spend("bob", "one", RATE, BURST_S, 0.0) == 0


def test_limits_are_counted_apart() -> None:
    quotas = Quotas()
    put(quotas, Entity(USER, None), {RATE: 1.0, Limit.REQUEST_PERCENTAGE: 1.0})
    assert quotas.spend(USER, "", RATE, 100, 0.0) > 0
    assert quotas.spend(USER, "", Limit.REQUEST_PERCENTAGE, BURST_S, 0.0) == 0


def test_a_changed_quota_counts_at_once() -> None:
    quotas = quotas_with((Entity(USER, None), 1.0))
    assert quotas.spend(USER, CLIENT, RATE, 100 + BURST_S, 0.0) == pytest.approx(100)
    put(quotas, Entity(USER, None), {RATE: 100.0})
    assert quotas.spend(USER, CLIENT, RATE, 0, 0.0) == pytest.approx(1)
    put(quotas, Entity(USER, None), {})
    assert quotas.spend(USER, CLIENT, RATE, 1e9, 0.0) == 0
    assert not quotas


def test_client_ids_without_end_do_not_fill_the_memory() -> None:
    quotas = quotas_with((Entity(None, DEFAULT), 1.0))
    for number in range(limits.QUOTA_BUCKETS_MAX + 10):
        quotas.spend(USER, str(number), RATE, 1, 0.0)
    assert len(quotas._buckets) == limits.QUOTA_BUCKETS_MAX


@on_node()
async def test_quotas_survive_a_power_failure(node: Node) -> None:
    one, other = Entity("ana", DEFAULT), Entity(None, 'a "b"')
    broker = node.context.broker
    await broker.change_security(quota_record(one, {RATE: 1.5}), quota_record(other, {RATE: 2}))
    await broker.change_security(quota_record(other, {}))
    await node.power_fails()
    assert dict(node.context.broker.quotas.all) == {one: {RATE: 1.5}}
