"""Records to a URL, at least once.

Each record is a request, or each batch. An answer of the 2xx is an acknowledgement; 408,
425, 429, the 5xx and broken connections are tried again; any other answer is a refusal, and
the record is rejected. Partitions go side by side, each in its order. A crash between the
answer and the commit of the offset sends again; receivers can tell by `Idempotency-Key`,
which is the record's place in the log.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Literal

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.formats import Misfit, json_line
from entrepot.connect.http_session import HttpOptions, HttpSession, Refusal, open_session
from entrepot.connect.interface import Sink


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSinkOptions(HttpOptions):
    url: str
    method: Literal["POST", "PUT"] = "POST"
    send: Literal["record", "array", "lines"] = "record"  # What the body of a request is.
    content_type: str | None = None  # Without: what `send` suggests.
    headers: dict[str, str] = field(default_factory=dict)

    def problem(self) -> str | None:
        return self.url_problem(self.url)


_CONTENT_TYPES = {
    "record": "application/octet-stream",
    "array": "application/json",
    "lines": "application/x-ndjson",
}


class HttpSink(Sink):
    Options: ClassVar[type[Any] | None] = HttpSinkOptions
    batch_records = 100

    _session: HttpSession | None = None

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._session = open_session(self.options)
        return {}

    async def write(self, messages: Sequence[Message]) -> None:
        by_part: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            by_part.setdefault(message.part, []).append(message)
        post = self._post_each if self.options.send == "record" else self._post_all
        try:
            async with asyncio.TaskGroup() as tasks:
                for run in by_part.values():
                    tasks.create_task(post(run))
        except BaseExceptionGroup as group:
            raise group.exceptions[0] from None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post_each(self, run: Sequence[Message]) -> None:
        for message in run:
            try:
                await self._post(message.record.value or b"", message, message)
            except Refusal as error:
                await self.context.reject(message, str(error))

    async def _post_all(self, run: Sequence[Message]) -> None:
        """As one; what is refused as a whole is tried one by one, to find the culprit."""
        fitting: list[tuple[Message, bytes]] = []
        for message in run:
            try:
                fitting.append((message, json_line(message.record.value)))
            except Misfit as error:
                await self.context.reject(message, str(error))
        if not fitting:
            return
        try:
            await self._post(self._body(fitting), fitting[0][0], fitting[-1][0])
        except Refusal:
            for message, line in fitting:
                try:
                    await self._post(self._body([(message, line)]), message, message)
                except Refusal as error:
                    await self.context.reject(message, str(error))

    def _body(self, fitting: Sequence[tuple[Message, bytes]]) -> bytes:
        lines = [line for _, line in fitting]
        if self.options.send == "lines":
            return b"".join(lines)
        return b"[" + b",".join(line.rstrip(b"\n") for line in lines) + b"]"

    async def _post(self, body: bytes, first: Message, last: Message) -> None:
        assert self._session is not None
        place = f"{first.part.topic}/{first.part.partition}/{first.record.offset}"
        if last is not first:
            place += f"-{last.record.offset}"
        headers = {
            "Content-Type": self.options.content_type or _CONTENT_TYPES[self.options.send],
            "Idempotency-Key": json.dumps(place),  # A quoted string, as its draft wants.
            **self.options.headers,
        }
        request = partial(
            self._session.request, self.options.method, self.options.url, body, headers
        )
        await self.context.persist(request)
