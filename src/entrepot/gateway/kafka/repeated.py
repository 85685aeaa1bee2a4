"""Serves requests that clients repeat unchanged, such as heartbeats of idle group members.

There may be ten thousand members, so the decoded request and the encoded answer are cached for
each connection, and reused while the request and the answer stay the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from entrepot.core import limits
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.context import Context, RepeatableRequest
from entrepot.gateway.kafka.serving import Classes, Serve, ServedApi, classes_of
from entrepot.gateway.kafka.throttle import Cost, cost_of
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps, encode_steps

if TYPE_CHECKING:
    from kio.static.protocol import Payload

    from entrepot.gateway.kafka.ports import Answer

_SAID_BYTES_MAX = 512  # A longer request is not cached; that of an idle member is shorter.

Asked = TypeVar("Asked")
Told = TypeVar("Told")


@dataclass(frozen=True, slots=True)
class RepeatedHandler(Generic[Asked, Told]):
    """The handler of an API whose requests are repeated: three functions."""

    # Convert the request to the broker's terms. Called once for equal requests.
    understand: Callable[[Context, RequestHeader, Any], Asked]
    # Ask the broker. Called for every request; equal results are encoded once.
    ask: Callable[[Context, Asked], Told | Awaitable[Told]]
    # Convert the broker's result to the response.
    respond: Callable[[Told], Payload | Steps[Payload]]


@dataclass(frozen=True, slots=True)
class Repeated(ServedApi):
    """Serve an API whose requests are repeated unchanged."""

    load: Callable[[], RepeatedHandler[Any, Any]]

    def serve_version(self, version: int) -> Serve:
        return RepeatedServer(self.load(), classes_of(self.api, version)).serve


class RepeatedServer:
    """Serves one version of an API whose requests are repeated unchanged."""

    def __init__(self, handler: RepeatedHandler[Any, Any], classes: Classes) -> None:
        self._handler = handler
        self._model, self._layout, self._response = classes

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
            return self._serve_long(cost, context, header, frame, position, answer)
        said, exchange = bytes(frame[position:]), context.exchange
        if (
            exchange is None
            or exchange.said != said
            or exchange.layout is not self._layout
            or exchange.client_id != header.client_id
        ):
            request = decode(self._model, self._layout, frame, position)
            asked = self._handler.understand(context, header, request)
            exchange = RepeatableRequest(self._layout, header.client_id, said, asked)
            context.exchange = exchange if len(said) <= _SAID_BYTES_MAX else None
        told = self._handler.ask(context, exchange.asked)
        if isinstance(told, Awaitable):
            return self._tell_later(cost, context, cost.watch(told), exchange, answer)
        return self._tell(cost, context, told, exchange, answer)

    async def _serve_long(
        self,
        cost: Cost,
        context: Context,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        answer: Answer,
    ) -> None:
        """Serve a long request in turns. It is not remembered, because idle members say little."""
        steps = decode_steps(self._model, self._layout, frame, position)
        request = await context.broker.turns.run(steps)
        asked = self._handler.understand(context, header, request)
        context.exchange = None
        told = self._handler.ask(context, asked)
        if isinstance(told, Awaitable):
            told = await cost.watch(told)
        exchange = RepeatableRequest(self._layout, header.client_id, b"", asked)
        later = self._tell(cost, context, told, exchange, answer)
        if later is not None:
            await later

    async def _tell_later(
        self,
        cost: Cost,
        context: Context,
        told: Awaitable[Any],
        exchange: RepeatableRequest,
        answer: Answer,
    ) -> None:
        later = self._tell(cost, context, await told, exchange, answer)
        if later is not None:
            await later

    def _tell(
        self, cost: Cost, context: Context, told: Any, exchange: RepeatableRequest, answer: Answer
    ) -> Awaitable[None] | None:
        throttle_ms = cost.throttle_ms()
        if exchange.body and not throttle_ms and exchange.told == told:
            answer.send([exchange.body], len(exchange.body))
            return None
        result = context.broker.turns.begin(self._write(told, throttle_ms, exchange, answer))
        return result if isinstance(result, Awaitable) else None

    def _write(
        self, told: Any, throttle_ms: int, exchange: RepeatableRequest, answer: Answer
    ) -> Steps[None]:
        response = self._handler.respond(told)
        if isinstance(response, Generator):
            response = yield from response
        if throttle_ms:
            response = replace(response, throttle_time=timedelta(milliseconds=throttle_ms))
        body = b"".join((yield from encode_steps(response, self._response)))
        if not throttle_ms:
            exchange.told, exchange.body = told, body
        answer.send([body], len(body))
