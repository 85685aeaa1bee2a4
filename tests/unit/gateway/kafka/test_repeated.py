"""What is remembered of a heartbeat never changes what it is told."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v3.request import HeartbeatRequest
from kio.schema.types import GroupId
from kio.static.primitive import i32

from entrepot.gateway.kafka import apis, heartbeat, repeated, throttle
from entrepot.gateway.kafka.repeated import Repeated
from entrepot.wire.kafka.api import Api, response_class
from tests.unit.gateway.kafka.group_requests import deny_everything, header, stable
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.test_apis import Answer
from tests.unit.wire.kafka.oracle import kio_bytes, kio_read


def told(node: Node, request: HeartbeatRequest, client_id: str = "client") -> Any:
    serve = apis.find(Api.HEARTBEAT, 3)
    assert serve is not None
    answer = Answer()
    asking = header(Api.HEARTBEAT, 3, client_id)
    serve(node.context, asking, memoryview(kio_bytes(request)), 0, answer)  # type: ignore[arg-type]
    assert answer.body is not None
    return kio_read(response_class(Api.HEARTBEAT, 3), answer.body)


async def idle(node: Node) -> HeartbeatRequest:
    member_id, generation = await stable(node)
    return HeartbeatRequest(
        group_id=GroupId("g"), generation_id=i32(generation), member_id=member_id
    )


@on_node()
async def test_an_answer_changes_although_the_request_does_not(node: Node) -> None:
    request = await idle(node)
    assert told(node, request).error_code is ErrorCode.none
    assert told(node, request).error_code is ErrorCode.none
    deny_everything(node)
    assert told(node, request).error_code is ErrorCode.group_authorization_failed


@on_node()
async def test_another_request_is_another(node: Node) -> None:
    request = await idle(node)
    assert told(node, request).error_code is ErrorCode.none
    later = replace(request, generation_id=i32(request.generation_id + 1))
    assert told(node, later).error_code is ErrorCode.illegal_generation
    assert told(node, request).error_code is ErrorCode.none


@on_node()
async def test_what_is_the_same_is_read_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await idle(node)
    read: list[str] = []

    def understand(context: Any, asking: Any, request: Any) -> Any:
        read.append(asking.client_id)
        return original(context, asking, request)

    original = heartbeat.HANDLER.understand
    entry = Repeated(Api.HEARTBEAT, lambda: replace(heartbeat.HANDLER, understand=understand))
    monkeypatch.setattr(apis, "find", lambda api_key, version: entry.serve_version(version))
    told(node, request)
    told(node, request)
    told(node, request, client_id="another")
    assert read == ["client", "another"]
    monkeypatch.setattr(repeated, "_SAID_BYTES_MAX", 0)
    told(node, request)
    told(node, request)
    assert read == ["client", "another", "client", "client"]


@on_node()
async def test_a_wait_is_told_once(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    request = await idle(node)
    told(node, request)
    waits = [40, 0]
    monkeypatch.setattr(throttle._Free, "throttle_ms", lambda cost: waits.pop(0))
    assert told(node, request).throttle_time == timedelta(milliseconds=40)
    assert told(node, request).throttle_time == timedelta()
