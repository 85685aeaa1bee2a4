"""A man in the middle: sees the requests of real clients, loses answers, refuses to produce.

The broker behind it is told to advertise the proxy's port, so clients stay with it.
"""

import contextlib
import socket
import threading
from struct import unpack_from
from types import TracebackType
from typing import NamedTuple, Self

from kio.schema.errors import ErrorCode

from entrepot.wire.kafka import produce
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.frames import read_request_header, response_header, size_prefix


class Seen(NamedTuple):
    api_key: int
    version: int
    message: memoryview  # Without its header.


class Proxy:
    """Listens at once; forwards to what `broker` names, once it is set."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.broker: tuple[str, int] | None = None
        self._answers_to_lose: dict[Api, int] = {}
        self._produces_to_refuse = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType
    ) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def seen(self, api: Api) -> list[Seen]:
        return [request for request in self.requests if request.api_key == api]

    def lose_answers(self, api: Api, count: int) -> None:
        """Of the next answers to this API, each connection is cut in place of forwarding."""
        self._answers_to_lose[api] = count

    def refuse_produces(self, count: int) -> None:
        """The next requests to produce never reach the broker: too few replicas, try again."""
        self._produces_to_refuse = count

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                assert self.broker is not None
                broker = socket.create_connection(self.broker)
                self._sockets += (client, broker)
                waiting: dict[int, int] = {}  # API by correlation id.
                for target in (self._forward_requests, self._forward_answers):
                    arguments = (client, broker, waiting)
                    threading.Thread(target=target, args=arguments, daemon=True).start()

    def _forward_requests(
        self, client: socket.socket, broker: socket.socket, waiting: dict[int, int]
    ) -> None:
        while (frame := _read(client)) is not None:
            header, position = read_request_header(memoryview(frame)[4:])
            waiting[header.correlation_id] = header.api_key
            message = memoryview(frame)[4 + position :]
            seen = Seen(header.api_key, header.version, message)
            self.requests.append(seen)
            if header.api_key == Api.PRODUCE and self._produces_to_refuse:
                self._produces_to_refuse -= 1
                del waiting[header.correlation_id]
                is_written = _write(client, _refusal(seen, header.correlation_id))
            else:
                is_written = _write(broker, frame)
            if not is_written:
                break
        _cut(client, broker)

    def _forward_answers(
        self, client: socket.socket, broker: socket.socket, waiting: dict[int, int]
    ) -> None:
        while (frame := _read(broker)) is not None:
            api = Api(waiting.pop(unpack_from(">i", frame, 4)[0]))
            if self._answers_to_lose.get(api):
                self._answers_to_lose[api] -= 1
                break
            if not _write(client, frame):
                break
        _cut(client, broker)


def _refusal(seen: Seen, correlation_id: int) -> bytes:
    request = produce.decode_request(seen.version, seen.message, 0)
    topics = [
        produce.ProduceTopic(
            each.topic_name,
            each.topic_id,
            [produce.ProduceResult(each.partition_index, ErrorCode.not_enough_replicas)],
        )
        for each in request.partitions
    ]
    head = response_header(seen.api_key, seen.version, correlation_id)
    answer = head + produce.encode_response(seen.version, topics)
    return size_prefix(len(answer)) + answer


def _read(source: socket.socket) -> bytes | None:
    """One frame with its size; None at the end."""
    head = _exactly(source, 4)
    body = None if head is None else _exactly(source, unpack_from(">i", head)[0])
    return None if head is None or body is None else head + body


def _exactly(source: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        try:
            more = source.recv(size - len(data))
        except OSError:
            return None
        if not more:
            return None
        data += more
    return data


def _write(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _cut(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
