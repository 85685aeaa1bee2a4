"""One connection to one broker: requests out, each answer to whoever asked.

Requests are pipelined; the correlation id says which answer is whose. The versions
are settled at the start: for each request the newest that both sides know. An answer
that does not come in time, or cannot be read, ends the connection: what follows on it
would be anybody's guess.
"""

import asyncio
from typing import Any, NamedTuple, Self, TypeVar

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import ApiVersionsResponse
from kio.schema.errors import ErrorCode

from entrepot.client.errors import (
    BadAnswer,
    ClientError,
    Unreachable,
    Unsupported,
    check,
    explain,
)
from entrepot.client.sasl import Credentials, log_in
from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Link, Net, Receiver
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.encoding import INT16
from entrepot.wire.kafka.frames import (
    FrameBuffer,
    read_response_header,
    request_header,
    size_prefix,
)
from entrepot.wire.kafka.layout import decode, encode

SOFTWARE = "entrepot"
SOFTWARE_VERSION = "1"

# What answers first where somebody else listens, and what that is.
_OTHERS = {
    b"HTTP": "it is an HTTP port, such as the one for management (15672)",
    b"AMQP": "it is an AMQP port (5672); Kafka's is 9092",
    b"\x15\x03": "it speaks TLS: say security.protocol=SSL or SASL_SSL",
    b"SSH-": "it is an SSH port",
}
_BY_PEER = "closed by peer"  # What a link says when the other side ended it.

_Answer = TypeVar("_Answer")


class _Waiting(NamedTuple):
    api: Api
    version: int
    answer: asyncio.Future[memoryview]  # The message, without its header.


class Connection:
    """A `Receiver` of the net."""

    def __init__(self, link: Link, client_id: str) -> None:
        self._link = link
        self._client_id = client_id
        self._inbox = FrameBuffer(bytes_max_without_records=limits.FRAME_BYTES_MAX)
        self._waiting: dict[int, _Waiting] = {}  # By correlation id.
        self._correlation_id = 0
        self._closed: str | None = None  # Why, once it is.
        self._versions: dict[int, tuple[int, int]] = {}  # What the broker takes, by API.
        self._view = memoryview(b"")  # Where the next bytes arrive.
        self._answers = 0  # That came since the versions are settled.

    @classmethod
    async def open(
        cls,
        net: Net,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        credentials: Credentials | None = None,
    ) -> Self:
        made: list[Self] = []

        def attach(link: Link) -> Receiver:
            made.append(cls(link, client_id))
            return made[0]

        try:
            async with asyncio.timeout(timeout_s):
                await net.connect(host, port, attach)
        except OSError as error:
            explain(error, f"{host}:{port}")
        connection = made[0]
        try:
            await connection._settle_versions(timeout_s)
            if credentials is not None:
                await log_in(connection, credentials, timeout_s)
        except ClientError:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._closed is None

    def version_of(self, request: Any) -> int:
        """The newest version of it that both sides know; the request's own is our newest."""
        api = Api(request.__api_key__)
        oldest, newest = self._versions.get(api, (0, -1))
        version = min(newest, int(request.__version__))
        if version < max(oldest, api.version_first):
            raise Unsupported(f"the broker at {self._link.peer} does not support {api.name}")
        return version

    async def ask(self, request: Any, answer: type[_Answer], timeout_s: float) -> _Answer:
        api, version = Api(request.__api_key__), self.version_of(request)
        message = await self._exchange(api, version, request, timeout_s)
        return self._decode(answer, response_class(api, version), message)

    async def tell(self, request: Any) -> None:
        """Send what has no answer."""
        self._send(Api(request.__api_key__), self.version_of(request), request)

    def close(self) -> None:
        self._link.close("done")

    async def _settle_versions(self, timeout_s: float) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE, client_software_version=SOFTWARE_VERSION
        )
        version = int(request.__version__)
        message = await self._exchange(Api.API_VERSIONS, version, request, timeout_s)
        if message[:2] == INT16.pack(ErrorCode.unsupported_version):
            # The broker is older than this request. It answers as it would the oldest one.
            message = await self._exchange(Api.API_VERSIONS, 0, request, timeout_s)
            version = 0
        layout = response_class(Api.API_VERSIONS, version)
        answer = self._decode(ApiVersionsResponse, layout, message)
        check(answer.error_code, f"broker at {self._link.peer}")
        self._versions = {
            entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys
        }

    async def _exchange(self, api: Api, version: int, request: Any, timeout_s: float) -> memoryview:
        correlation_id = self._send(api, version, request)
        answer = asyncio.get_running_loop().create_future()
        self._waiting[correlation_id] = _Waiting(api, version, answer)
        try:
            async with asyncio.timeout(timeout_s):
                message: memoryview = await answer
                return message
        except TimeoutError:
            reason = f"no answer from {self._link.peer} within {timeout_s:g} s"
            self._link.abort(reason)
            raise Unreachable(reason) from None

    def _send(self, api: Api, version: int, request: Any) -> int:
        if self._closed is not None:
            raise Unreachable(f"connection to {self._link.peer} lost: {self._closed}")
        self._correlation_id = correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        header = request_header(api, version, correlation_id, self._client_id)
        message = encode(request, request_class(api, version))
        self._link.send([size_prefix(len(header) + len(message)), header, message])
        return correlation_id

    def _decode(self, answer: type[_Answer], layout: type[Any], message: memoryview) -> _Answer:
        try:
            return decode(answer, layout, message)
        except MalformedFrame as error:
            reason = f"the answer of {self._link.peer} cannot be read: {error}"
            self._link.abort(reason)
            raise BadAnswer(reason) from None

    # What the net calls.

    def writable(self) -> memoryview:
        self._view = self._inbox.writable()
        return self._view

    def received(self, size: int) -> None:
        first = b"" if self._versions else bytes(self._view[: min(size, 4)])
        try:
            for frame in self._inbox.received(size):
                self._answered(frame)
        except MalformedFrame as error:
            self._link.abort(_other(first) or f"bytes that are not the protocol: {error}")

    def _answered(self, frame: memoryview) -> None:
        correlation_id = int.from_bytes(frame[:4], "big")
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise MalformedFrame(f"an answer to a request that was not made, {correlation_id}")
        _, position = read_response_header(frame, waiting.api, waiting.version)
        self._answers += bool(self._versions)
        if not waiting.answer.done():
            waiting.answer.set_result(frame[position:])

    def drained(self) -> None:
        """Nothing is held back: who asks waits for answers, so the backlog is theirs."""

    def closed(self, reason: str) -> None:
        if reason == _BY_PEER and not self._answers:
            reason += self._why_refused()
        self._closed = reason
        waiting, self._waiting = self._waiting, {}
        for entry in waiting.values():
            if not entry.answer.done():
                error = Unreachable(f"connection to {self._link.peer} lost: {reason}")
                entry.answer.set_exception(error)

    def _why_refused(self) -> str:
        """Return what is likely when a broker ends a connection before it has answered."""
        if not self._versions:
            return "; it may speak TLS (security.protocol=SSL), or not be a Kafka broker"
        return "; it may want a login (security.protocol=SASL_PLAINTEXT or SASL_SSL, or --user)"


def _other(first: bytes) -> str | None:
    """Return what listens there, by its first bytes, when it is known not to be Kafka."""
    return next((said for start, said in _OTHERS.items() if first.startswith(start)), None)
