"""A client of SQS on the simulated network: one connection, one request after the other.

Requests are JSON over HTTP, as boto3 sends them. A lost connection, or an answer that says that
the broker cannot do it now, is ordinary: `Gone`; what was asked for may have been done or not.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Link, Net
from entrepot.wire.http.answer import AnswerReader, post
from sim.history import Violation

PATIENCE_S = 1.5
_ANSWER_BYTES_MAX = 1 << 20


class Gone(Exception):
    """There is no answer. What was asked for may have been done."""


class Refused(Exception):
    """The answer is an error. The text is its code."""


class SqsClient:
    """A `Receiver` of the net."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._reader = AnswerReader(_ANSWER_BYTES_MAX)
        self._gone: str | None = None  # Why.
        self._news = asyncio.Event()

    @classmethod
    async def open(cls, net: Net, host: str, port: int) -> SqsClient:
        made: list[SqsClient] = []

        def attach(link: Link) -> SqsClient:
            made.append(cls(link))
            return made[0]

        try:
            async with asyncio.timeout(PATIENCE_S):
                await net.connect(host, port, attach)
        except (OSError, TimeoutError) as error:
            raise Gone(str(error)) from None
        return made[0]

    async def ask(self, action: str, **parameters: Any) -> dict[str, Any]:
        """Return what is answered. Raises Gone, Refused."""
        self._reader.begin()
        headers = (("X-Amz-Target", f"AmazonSQS.{action}"),)
        body = json.dumps(parameters).encode()
        self._link.send([post("node", "/", body, headers, "application/x-amz-json-1.0")])
        try:
            async with asyncio.timeout(PATIENCE_S + parameters.get("WaitTimeSeconds", 0)):
                while not self._reader.is_whole:
                    if self._gone is not None:
                        raise Gone(self._gone)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self.leave()
            raise Gone("no answer in time") from None
        answer = json.loads(self._reader.take_body() or b"{}")
        if self._reader.status == 200:
            return dict(answer)
        code = str(answer["__type"]).rpartition("#")[2]
        if self._reader.status >= 500 or code == "QueueDoesNotExist":
            self.leave()
            raise Gone(code)
        raise Refused(code)

    def leave(self) -> None:
        self._gone = self._gone or "it has left"
        self._link.abort("the client leaves")

    # --- Receiver

    def writable(self) -> memoryview:
        return self._reader.writable()

    def received(self, size: int) -> None:
        try:
            self._reader.received(size)
        except MalformedFrame as error:
            raise Violation(f"not HTTP: {error}") from None
        self._news.set()

    def drained(self) -> None:
        """Requests are small: nothing waits for the backlog."""

    def closed(self, reason: str) -> None:
        self._gone = self._gone or reason
        self._news.set()
