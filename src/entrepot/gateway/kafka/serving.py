"""The ways in which an API is served, each with the type of function that it takes.

An entry of the registry (`apis`) is one of them. It names the API, and the function that
imports what serves it; nothing is imported before that function is called.

- `FromFrame`: the function reads the request's bytes and answers itself.
- `AtOnce`, `InSteps`, `Awaited`, `AwaitedWithHeader`: the function gets the request as kio's class
  and returns the answer as kio's class: itself, as the result of steps, or as an awaitable.
- `Repeated` (in `repeated`): for heartbeats, which say the same again and again.

A function sees one class of requests, of the newest version, whatever version the client
speaks. Where an older version means something else, the entry lists in `models` which other
versions the function knows: a request is read as the first of them that is not older.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from entrepot.core import limits
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.throttle import Cost, cost_of
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps, encode_steps

if TYPE_CHECKING:
    from kio.static.protocol import Payload

    from entrepot.gateway.kafka.ports import Answer

# Serve one request: its frame, and where the message begins in it. An awaitable that is returned
# ends when the connection's next request may be served.
Serve = Callable[[Context, RequestHeader, memoryview, int, "Answer"], Awaitable[None] | None]

# The functions that handlers are, by how they return the answer.
HandleAtOnce = Callable[[Context, Any], "Payload"]
HandleInSteps = Callable[[Context, Any], Steps["Payload"]]
HandleAwaited = Callable[[Context, Any], Awaitable["Payload"]]
HandleWithHeader = Callable[[Context, RequestHeader, Any], Awaitable["Payload"]]

_Handle = Callable[[Context, RequestHeader, Any], "Payload | Awaitable[Payload]"]


@dataclass(frozen=True, slots=True)
class ServedApi(ABC):
    """One API and how it is served. The API has its key and its versions."""

    api: Api
    load: Callable[[], Any]  # Imports the module that serves it. Each kind says what it returns.
    # Whether the import is so fast that it needs no turn of its own.
    is_light: bool = field(default=False, kw_only=True)

    @abstractmethod
    def serve_version(self, version: int) -> Serve:
        """Import and return the handler of this version."""


@dataclass(frozen=True, slots=True)
class FromFrame(ServedApi):
    """Serve an API from the bytes of its requests, because they carry records."""

    load: Callable[[], Serve]

    def serve_version(self, version: int) -> Serve:
        return self.load()


@dataclass(frozen=True, slots=True)
class WholeMessage(ServedApi):
    """Serve an API with a function of kio's classes."""

    # Older versions whose classes the function knows, in ascending order.
    models: tuple[int, ...] = field(default=(), kw_only=True)

    def serve_version(self, version: int) -> Serve:
        return _Whole(self._handle(), classes_of(self.api, version, self.models)).serve

    @abstractmethod
    def _handle(self) -> _Handle:
        """Load the function, and return one that calls it with the arguments that it takes."""


@dataclass(frozen=True, slots=True)
class AtOnce(WholeMessage):
    """Serve an API whose answer is short and needs no waiting."""

    load: Callable[[], HandleAtOnce]

    def _handle(self) -> _Handle:
        handle = self.load()
        return lambda context, header, request: handle(context, request)


@dataclass(frozen=True, slots=True)
class InSteps(WholeMessage):
    """Serve an API whose answer needs no waiting, but may be long: it is made in turns."""

    load: Callable[[], HandleInSteps]

    def _handle(self) -> _Handle:
        handle = self.load()
        return lambda context, header, request: context.broker.turns.begin(handle(context, request))


@dataclass(frozen=True, slots=True)
class Awaited(WholeMessage):
    """Serve an API whose answer waits for something, such as a commit."""

    load: Callable[[], HandleAwaited]

    def _handle(self) -> _Handle:
        handle = self.load()
        return lambda context, header, request: handle(context, request)


@dataclass(frozen=True, slots=True)
class AwaitedWithHeader(WholeMessage):
    """As `Awaited`, where the version or the client's id makes a difference."""

    load: Callable[[], HandleWithHeader]

    def _handle(self) -> _Handle:
        return self.load()


class Classes(NamedTuple):
    """kio's classes for one version of an API."""

    model: type[Any]  # What the function takes.
    layout: type[Any]  # What the request's bytes are.
    response: type[Any]  # What the answer's bytes are.


def classes_of(api: Api, version: int, models: tuple[int, ...] = ()) -> Classes:
    """Load kio's classes for this version. The model is one of the given versions, or the last."""
    model = next((each for each in models if version <= each), api.version_last)
    return Classes(
        request_class(api, model), request_class(api, version), response_class(api, version)
    )


class _Whole:
    """Serves one version of one API: decodes a request, handles it, encodes the answer."""

    def __init__(self, handle: _Handle, classes: Classes) -> None:
        self._handle = handle
        self._model, self._layout, self._response = classes
        self._tells_throttle = any(each.name == "throttle_time" for each in fields(self._response))

    def serve(
        self,
        context: Context,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        answer: Answer,
    ) -> Awaitable[None] | None:
        cost = cost_of(context, header.client_id)
        if len(frame) - position > limits.REQUEST_BYTES_NARROW:
            decoding = decode_steps(self._model, self._layout, frame, position)
            work = self._handle_long(context, header, decoding)
            return self._answer_later(cost, context, cost.watch(work), answer)
        request = decode(self._model, self._layout, frame, position)
        result = self._handle(context, header, request)
        if isinstance(result, Awaitable):
            return self._answer_later(cost, context, cost.watch(result), answer)
        chunks = context.broker.turns.begin(self._encode(cost, result))
        if isinstance(chunks, Awaitable):
            return _send_later(chunks, answer)
        _send(chunks, answer)
        return None

    async def _handle_long(
        self, context: Context, header: RequestHeader, decoding: Steps[Any]
    ) -> Payload:
        result = self._handle(context, header, await context.broker.turns.run(decoding))
        return await result if isinstance(result, Awaitable) else result

    async def _answer_later(
        self, cost: Cost, context: Context, result: Awaitable[Payload], answer: Answer
    ) -> None:
        encoding = self._encode(cost, await result)
        _send(await context.broker.turns.run(encoding), answer)

    def _encode(self, cost: Cost, response: Payload) -> Steps[list[bytes]]:
        """Write the answer, with the time that the client has to wait for its quota."""
        throttle_ms = cost.throttle_ms()
        told: Any = response
        if throttle_ms and self._tells_throttle:
            told = replace(told, throttle_time=timedelta(milliseconds=throttle_ms))
        return encode_steps(told, self._response)


async def _send_later(chunks: Awaitable[list[bytes]], answer: Answer) -> None:
    _send(await chunks, answer)


def _send(chunks: list[bytes], answer: Answer) -> None:
    answer.send(chunks, sum(map(len, chunks)))
