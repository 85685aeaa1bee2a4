"""Requests that repeat themselves: idle members of groups say the same every few seconds.

There may be ten thousand of them, so what one said is read once, and what it was told is
written once, for as long as both stay the same. A module that is served this way has

- `understand(context, header, request)`: what the broker is to be asked, whenever it is said;
- `ask(context, asked)`: what there is to tell, or an awaitable for it;
- `respond(told)`: that as kio's class, or a generator that makes it in steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from entrepot.core import limits
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.context import Context, Exchange
from entrepot.gateway.kafka.throttle import Cost
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps, encode_steps

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

_SAID_BYTES_MAX = 512  # An idle member says less.


class Repeated:
    """Serves one version of one API."""

    def __init__(
        self, module: Any, model: type[Any], layout: type[Any], response: type[Any]
    ) -> None:
        self._module = module
        self._model = model
        self._layout = layout
        self._response = response

    def serve(
        self,
        context: Context,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        answer: Answer,
    ) -> Awaitable[None] | None:
        cost = Cost(context, header.client_id)
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
            asked = self._module.understand(context, header, request)
            exchange = Exchange(self._layout, header.client_id, said, asked)
            context.exchange = exchange if len(said) <= _SAID_BYTES_MAX else None
        told = self._module.ask(context, exchange.asked)
        if hasattr(told, "__await__"):
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
        """Nobody says so much twice."""
        steps = decode_steps(self._model, self._layout, frame, position)
        request = await context.broker.turns.run(steps)
        asked = self._module.understand(context, header, request)
        context.exchange = None
        told = self._module.ask(context, asked)
        if hasattr(told, "__await__"):
            told = await cost.watch(told)
        exchange = Exchange(self._layout, header.client_id, b"", asked)
        later = self._tell(cost, context, told, exchange, answer)
        if later is not None:
            await later

    async def _tell_later(
        self,
        cost: Cost,
        context: Context,
        told: Awaitable[Any],
        exchange: Exchange,
        answer: Answer,
    ) -> None:
        later = self._tell(cost, context, await told, exchange, answer)
        if later is not None:
            await later

    def _tell(
        self, cost: Cost, context: Context, told: Any, exchange: Exchange, answer: Answer
    ) -> Awaitable[None] | None:
        throttle_ms = cost.throttle_ms()
        if exchange.body and not throttle_ms and exchange.told == told:
            answer.send([exchange.body], len(exchange.body))
            return None
        result = context.broker.turns.begin(self._write(told, throttle_ms, exchange, answer))
        return result if isinstance(result, Awaitable) else None

    def _write(
        self, told: Any, throttle_ms: int, exchange: Exchange, answer: Answer
    ) -> Steps[None]:
        response = self._module.respond(told)
        if isinstance(response, Generator):
            response = yield from response
        if throttle_ms:
            response = replace(response, throttle_time=timedelta(milliseconds=throttle_ms))
        body = b"".join((yield from encode_steps(response, self._response)))
        if not throttle_ms:
            exchange.told, exchange.body = told, body
        answer.send([body], len(body))
