"""A broker that says what a test tells it to, over a real socket.

Handlers are by API: each gets the request, read into our client's own class of it, and
returns the answer in the version it was asked in; None stays silent; an exception of
`Hangup` closes the connection.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from kio.schema.api_versions.v4.response import ApiVersion, ApiVersionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v12.response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32

from entrepot.client.client import milliseconds
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import read_request_header, response_header, size_prefix
from entrepot.wire.kafka.layout import decode, encode

Handler = Callable[[Any, int], Any]


class Hangup(Exception):
    pass


class FakeBroker:
    def __init__(self, versions: dict[Api, tuple[int, int]] | None = None) -> None:
        self.port = 0
        self.asked: list[tuple[Api, int]] = []  # Every request's API and version.
        self.topics: dict[str, list[int]] = {}  # Leaders of the partitions, by topic.
        self.versions = versions or {api: (api.version_first, api.version_last) for api in Api}
        self.handlers: dict[Api, Handler] = {
            Api.API_VERSIONS: self.api_versions,
            Api.METADATA: self.metadata,
        }

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["FakeBroker"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, Hangup):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                writer.write(self._answer(memoryview(frame)))
        writer.close()

    def _answer(self, frame: memoryview) -> bytes:
        header, position = read_request_header(frame)
        api = Api(header.api_key)
        self.asked.append((api, header.version))
        layout = request_class(api, header.version)
        answer = self.handlers[api](decode(layout, layout, frame, position), header.version)
        if answer is None:
            return b""
        if not isinstance(answer, bytes):
            answer = encode(answer, response_class(api, header.version))
        head = response_header(api, header.version, header.correlation_id)
        return size_prefix(len(head) + len(answer)) + head + answer

    def api_versions(self, request: Any, version: int) -> Any:
        oldest, newest = self.versions[Api.API_VERSIONS]
        answer = ApiVersionsResponse(
            error_code=ErrorCode.none,
            api_keys=tuple(
                ApiVersion(api_key=i16(api), min_version=i16(low), max_version=i16(high))
                for api, (low, high) in self.versions.items()
            ),
            throttle_time=milliseconds(0),
        )
        if not oldest <= version <= newest:
            return b"\x00\x23" + encode(answer, response_class(Api.API_VERSIONS, 0))[2:]
        return answer

    def metadata(self, request: Any, version: int) -> Any:
        names = [t.name for t in request.topics or ()] or list(self.topics)
        return MetadataResponse(
            throttle_time=milliseconds(0),
            brokers=(
                MetadataResponseBroker(
                    node_id=BrokerId(1), host="127.0.0.1", port=i32(self.port), rack=None
                ),
            ),
            cluster_id="fake",
            controller_id=BrokerId(1),
            topics=tuple(self._topic(name) for name in names),
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        leaders = self.topics.get(name)
        found = leaders is not None
        return MetadataResponseTopic(
            error_code=ErrorCode.none if found else ErrorCode.unknown_topic_or_partition,
            name=TopicName(name),
            topic_id=None,
            partitions=tuple(
                MetadataResponsePartition(
                    error_code=ErrorCode.none,
                    partition_index=i32(index),
                    leader_id=BrokerId(leader),
                    replica_nodes=(BrokerId(1),),
                    isr_nodes=(BrokerId(1),),
                )
                for index, leader in enumerate(leaders or ())
            ),
        )
