"""A Kafka client made of bare frames: it sends what it is told, right or wrong."""

import socket
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from struct import Struct, pack
from types import TracebackType
from typing import Any, Self

from kio.schema.create_topics.v7.request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v4.request import InitProducerIdRequest
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.testing import Broker
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from entrepot.wire.kafka.frames import read_response_header, request_header, size_prefix
from entrepot.wire.kafka.layout import decode, encode
from entrepot.wire.kafka.produce import ProducePartition, ProduceRequest, ProduceResult

WAIT_S = 30
PRODUCE_VERSION = 9  # The newest in which topics have names, and the same for fetch.
FETCH_VERSION = 12

_SIZE = Struct(">i")
_TIMEOUT = i32Timedelta.parse(timedelta(seconds=WAIT_S))


def framed(message: bytes) -> bytes:
    return size_prefix(len(message)) + message


def request_frame(request: Any, correlation_id: int = 0) -> bytes:
    """The frame of one of kio's requests, in the version of its class."""
    api, version = Api(request.__api_key__), int(request.__version__)
    body = encode(request, request_class(api, version))
    return framed(request_header(api, version, correlation_id, "bare") + body)


def produce_frame(
    topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1, correlation_id: int = 0
) -> bytes:
    wanted = ProducePartition(topic, None, partition, data)
    body = produce.encode_request(PRODUCE_VERSION, ProduceRequest(None, acks, 30_000, [wanted]))
    return framed(request_header(Api.PRODUCE, PRODUCE_VERSION, correlation_id, "bare") + body)


def produce_all_frame(topic: str, batches: Sequence[bytes]) -> bytes:
    """A batch for each of the topic's partitions."""
    wanted = [ProducePartition(topic, None, *each) for each in enumerate(batches)]
    body = produce.encode_request(PRODUCE_VERSION, ProduceRequest(None, -1, 30_000, wanted))
    return framed(request_header(Api.PRODUCE, PRODUCE_VERSION, 0, "bare") + body)


def fetch_frame(request: FetchRequest, correlation_id: int = 0) -> bytes:
    body = fetch.encode_request(FETCH_VERSION, request)
    return framed(request_header(Api.FETCH, FETCH_VERSION, correlation_id, "bare") + body)


def fetch_request(topic: str, offset: int = 0, partition: int = 0, **bounds: Any) -> FetchRequest:
    """Of one partition; without a wait, a least size or a session unless `bounds` say so."""
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 25, **bounds}
    partition_bytes = settings.pop("partition_bytes", 1 << 20)
    wanted = FetchPartition(partition, -1, offset, -1, -1, partition_bytes)
    return FetchRequest(topics=[FetchTopic(topic, None, [wanted])], **settings)


def batch_of(*values: bytes, **options: Any) -> bytes:
    """At the current time: an old batch is soon taken by retention."""
    records = [Record(b"key", value) for value in values]
    return batch.build(records, now_ms=now_ms(), **options)


def now_ms() -> int:
    return int(time.time() * 1_000)


def records_in(data: bytes | memoryview) -> list[Record]:
    """The records of every whole batch."""
    view = memoryview(data)
    return [
        record
        for position, header in batch.walk(view)
        for record in batch.records(view[position : position + header.size])
    ]


class BareClient:
    def __init__(self, broker: Broker, *, wait_s: float = WAIT_S) -> None:
        self._socket = socket.create_connection(broker.endpoints["kafka"], wait_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType
    ) -> None:
        self.close()

    @property
    def address(self) -> str:
        """As the broker's log names this client."""
        host, port = self._socket.getsockname()
        return f"{host}:{port}"

    def close(self) -> None:
        self._socket.close()

    def vanish(self) -> None:
        """Close without a word: the other side is told of a reset, or nothing at all."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, pack("ii", 1, 0))
        self._socket.close()

    def half_close(self) -> None:
        """Nothing more comes from here; answers are still taken."""
        self._socket.shutdown(socket.SHUT_WR)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_what_fits(self, data: bytes) -> int:
        """As many bytes as the other side takes within a moment."""
        self._socket.settimeout(0.3)
        try:
            return self._socket.send(data)
        except TimeoutError:
            return 0
        finally:
            self._socket.settimeout(WAIT_S)

    def frame(self) -> memoryview | None:
        """The next answer; None when the broker has closed the connection."""
        head = self._exactly(_SIZE.size)
        return None if head is None else self._exactly(_SIZE.unpack(head)[0])

    def is_closed(self) -> bool:
        """Wait for the broker to close, whatever it still says before that."""
        try:
            while self._socket.recv(1 << 16):
                pass
        except ConnectionResetError:
            pass
        except TimeoutError:
            return False
        return True

    def _exactly(self, size: int) -> memoryview | None:
        data = bytearray(size)
        view = memoryview(data)
        while view:
            try:
                count = self._socket.recv_into(view)
            except ConnectionResetError:
                count = 0
            if not count:
                return None
            view = view[count:]
        return memoryview(data)

    # --- requests with their answers

    def ask(self, request: Any) -> Any:
        """The answer, in the version of the request."""
        self.send(request_frame(request))
        return self.answer(Api(request.__api_key__), int(request.__version__))

    def answer(self, api: Api, version: int) -> Any:
        frame, position = self._answered(api, version)
        layout = response_class(api, version)
        return decode(layout, layout, frame, position)

    def create(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> None:
        code = self.try_create(topic, partitions, settings)
        assert code is ErrorCode.none, code

    def try_create(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None
    ) -> ErrorCode:
        configs = [CreatableTopicConfig(name=k, value=v) for k, v in (settings or {}).items()]
        wanted = CreatableTopic(
            name=TopicName(topic),
            num_partitions=i32(partitions),
            replication_factor=i16(-1),
            assignments=(),
            configs=tuple(configs),
        )
        (created,) = self.ask(CreateTopicsRequest(topics=(wanted,), timeout=_TIMEOUT)).topics
        code: ErrorCode = created.error_code
        return code

    def new_producer_id(self) -> int:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout=_TIMEOUT)
        answer = self.ask(request)
        assert answer.error_code is ErrorCode.none, answer
        return int(answer.producer_id)

    def produce(
        self, topic: str, data: bytes | None, *, partition: int = 0, acks: int = -1
    ) -> ProduceResult:
        self.send(produce_frame(topic, data, partition=partition, acks=acks))
        return self.produced()

    def produced(self) -> ProduceResult:
        (result,) = self.produced_all()
        return result

    def produce_to_all(self, topic: str, batches: Sequence[bytes]) -> list[ProduceResult]:
        """One request, with a batch for each of the topic's partitions."""
        self.send(produce_all_frame(topic, batches))
        return self.produced_all()

    def produced_all(self) -> list[ProduceResult]:
        frame, position = self._answered(Api.PRODUCE, PRODUCE_VERSION)
        topics, _ = produce.decode_response(PRODUCE_VERSION, frame, position)
        return list(topics[0].results)

    def fetch(self, request: FetchRequest) -> FetchResponse:
        self.send(fetch_frame(request))
        return self.fetched()

    def fetched(self) -> FetchResponse:
        frame, position = self._answered(Api.FETCH, FETCH_VERSION)
        return fetch.decode_response(FETCH_VERSION, frame, position)

    def read(self, topic: str, offset: int = 0, partition: int = 0) -> list[Record]:
        """Every record from that offset to the end."""
        found: list[Record] = []
        while True:
            response = self.fetch(fetch_request(topic, offset, partition))
            (fetched,) = response.topics[0].partitions
            assert fetched.error_code == 0, fetched
            assert isinstance(fetched.records, memoryview)
            more = [record for record in records_in(fetched.records) if record.offset >= offset]
            if not more:
                return found
            found += more
            offset = more[-1].offset + 1

    def _answered(self, api: Api, version: int) -> tuple[memoryview, int]:
        frame = self.frame()
        assert frame is not None, "the broker closed the connection"
        _, position = read_response_header(frame, api, version)
        return frame, position


def values_of(records: Sequence[Record]) -> list[bytes | None]:
    return [record.value for record in records]
