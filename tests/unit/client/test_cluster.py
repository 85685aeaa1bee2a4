"""Addresses, leaders, and what is repeated."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.types import BrokerId, GroupId
from kio.static.primitive import i32

from entrepot.client.client import milliseconds
from entrepot.client.cluster import Cluster, parse_bootstrap
from entrepot.client.errors import ClientError, Refused, Unreachable, check
from entrepot.net.sockets import SocketNet
from entrepot.wire.kafka.api import Api
from tests.unit.client.fake_broker import FakeBroker, Hangup


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("localhost", [("localhost", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
        ("[::1]", [("::1", 9092)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:65536", ":9092", "a:-1"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(ClientError):
        parse_bootstrap(text)


def with_cluster(
    broker: FakeBroker, test: Callable[[Cluster], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def run() -> None:
        async with broker.running():
            cluster = Cluster(SocketNet(), broker.bootstrap, timeout_s=5, **options)
            await test(cluster)
            await cluster.close()

    asyncio.run(run())


def test_topics_are_asked_about_once_and_again_when_forgotten() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1, 1]}

    async def test(cluster: Cluster) -> None:
        assert await cluster.leader("t", 1) == 1
        await cluster.leader("t", 0)
        assert broker.asked.count((Api.METADATA, 12)) == 1
        cluster.forget()
        await cluster.leader("t", 0)
        assert broker.asked.count((Api.METADATA, 12)) == 2

    with_cluster(broker, test)


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("nosuch", 0, ErrorCode.unknown_topic_or_partition),
        ("t", 2, ErrorCode.unknown_topic_or_partition),
        ("t", 1, ErrorCode.leader_not_available),
    ],
)
def test_no_leader(topic: str, partition: int, code: ErrorCode) -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1, -1]}

    async def test(cluster: Cluster) -> None:
        with pytest.raises(Refused) as caught:
            await cluster.leader(topic, partition)
        assert caught.value.code is code
        assert caught.value.name in str(caught.value)

    with_cluster(broker, test)


def test_retry_forgets_and_stops_after_its_attempts() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [-1]}

    async def test(cluster: Cluster) -> None:
        with pytest.raises(Refused, match="LEADER_NOT_AVAILABLE"):
            await cluster.retry(lambda: cluster.leader("t", 0))
        assert broker.asked.count((Api.METADATA, 12)) == 3

    with_cluster(broker, test, attempts=3)


def test_retry_succeeds_when_the_leader_comes() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [-1]}

    async def test(cluster: Cluster) -> None:
        asyncio.get_running_loop().call_later(0.05, broker.topics.update, {"t": [1]})
        assert await cluster.retry(lambda: cluster.leader("t", 0)) == 1

    with_cluster(broker, test)


def test_what_is_final_is_not_repeated() -> None:
    calls = []

    async def attempt() -> None:
        calls.append(1)
        raise Refused(ErrorCode.topic_already_exists)

    async def test(cluster: Cluster) -> None:
        with pytest.raises(Refused):
            await cluster.retry(attempt)
        assert calls == [1]

    with_cluster(FakeBroker(), test)


def test_a_broken_connection_is_made_anew() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1]}
    answer = broker.handlers[Api.METADATA]
    hangups = [True, False]

    def metadata(request: Any, version: int) -> Any:
        if hangups.pop(0):
            raise Hangup
        return answer(request, version)

    broker.handlers[Api.METADATA] = metadata

    async def test(cluster: Cluster) -> None:
        await cluster.connect()
        assert await cluster.retry(lambda: cluster.leader("t", 0)) == 1
        assert [api for api, _ in broker.asked] == [Api.API_VERSIONS, Api.METADATA] * 2

    with_cluster(broker, test)


def test_the_next_address_is_tried() -> None:
    broker = FakeBroker()

    async def run() -> None:
        async with broker.running():
            cluster = Cluster(SocketNet(), f"127.0.0.1:1,{broker.bootstrap}")
            await cluster.connect()
            await cluster.close()
        cluster = Cluster(SocketNet(), "127.0.0.1:1,127.0.0.1:2")
        with pytest.raises(Unreachable, match=r":1: nobody.*:2: nobody"):
            await cluster.connect()

    asyncio.run(run())


def coordinated(broker: FakeBroker, *codes: ErrorCode) -> None:
    """It coordinates, and answers heartbeats with these."""
    answers = list(codes)

    def find(request: Any, version: int) -> Any:
        assert request.key == "g"
        return FindCoordinatorResponse(
            throttle_time=milliseconds(0),
            error_code=ErrorCode.none,
            error_message=None,
            node_id=BrokerId(1),
            host="127.0.0.1",
            port=i32(broker.port),
        )

    def heartbeat(request: Any, version: int) -> Any:
        return HeartbeatResponse(throttle_time=milliseconds(0), error_code=answers.pop(0))

    broker.handlers |= {Api.FIND_COORDINATOR: find, Api.HEARTBEAT: heartbeat}
    broker.versions[Api.FIND_COORDINATOR] = (0, 3)


HEARTBEAT = HeartbeatRequest(
    group_id=GroupId("g"), generation_id=i32(1), member_id="m", group_instance_id=None
)


def test_a_coordinator_is_looked_for_once_and_again_when_it_is_another() -> None:
    broker = FakeBroker()
    coordinated(broker, ErrorCode.none, ErrorCode.not_coordinator, ErrorCode.none)

    async def test(cluster: Cluster) -> None:
        async def attempt() -> None:
            answer = await cluster.ask_coordinator("g", HEARTBEAT, HeartbeatResponse)
            check(answer.error_code)

        await cluster.retry(attempt)
        await cluster.retry(attempt)
        asked = [api for api, _ in broker.asked if api is not Api.API_VERSIONS]
        found = Api.FIND_COORDINATOR
        assert asked == [found, Api.HEARTBEAT, Api.HEARTBEAT, found, Api.HEARTBEAT]

    with_cluster(broker, test)


def test_a_twin_has_connections_of_its_own() -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1]}

    async def test(cluster: Cluster) -> None:
        twin = cluster.twin()
        assert await cluster.leader("t", 0) == await twin.leader("t", 0) == 1
        await twin.close()
        cluster.forget()
        assert await cluster.leader("t", 0) == 1
        assert [api for api, _ in broker.asked].count(Api.API_VERSIONS) == 2

    with_cluster(broker, test)
