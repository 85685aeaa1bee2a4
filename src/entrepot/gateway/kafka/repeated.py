"""Requests that repeat themselves: idle members of groups say the same every few seconds.

There may be ten thousand of them, so what one said is read once, and what it was told is
written once, for as long as both stay the same. A module that is served this way has

- `understand(context, header, request)`: what the broker is to be asked, whenever it is said;
- `ask(context, asked)`: what there is to tell, or an awaitable for it;
- `respond(told)`: that as kio's class.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from entrepot.core import limits
from entrepot.gateway.kafka.context import Context, Exchange
from entrepot.gateway.kafka.throttle import Cost
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps, encode

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
            return self._tell_later(cost, cost.watch(told), exchange, answer)
        self._tell(cost, told, exchange, answer)
        return None

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
        self._tell(cost, told, Exchange(self._layout, header.client_id, b"", asked), answer)

    async def _tell_later(
        self, cost: Cost, told: Awaitable[Any], exchange: Exchange, answer: Answer
    ) -> None:
        self._tell(cost, await told, exchange, answer)

    def _tell(self, cost: Cost, told: Any, exchange: Exchange, answer: Answer) -> None:
        throttle_ms = cost.throttle_ms()
        if throttle_ms:
            throttle_time = timedelta(milliseconds=throttle_ms)
            response = replace(self._module.respond(told), throttle_time=throttle_time)
            body = encode(response, self._response)
        elif exchange.body and exchange.told == told:
            body = exchange.body
        else:
            body = encode(self._module.respond(told), self._response)
            exchange.told, exchange.body = told, body
        answer.send([body], len(body))
