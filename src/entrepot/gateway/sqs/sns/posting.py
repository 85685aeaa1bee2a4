"""One POST to an HTTP endpoint: connect, send, and read the status of the answer.

A connection serves one request. Redirections are not followed: where they lead nobody allowed.
"""

from __future__ import annotations

import asyncio

from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Link, Net
from entrepot.gateway.sqs.sns.url import Url
from entrepot.wire.http.answer import AnswerReader, post
from entrepot.wire.sqs import limits as sqs_limits

Headers = tuple[tuple[str, str], ...]


class PostFailed(Exception):
    """There is no answer, or none of HTTP."""


async def post_status(net: Net, url: Url, body: bytes, headers: Headers, content_type: str) -> int:
    """Return the status that an endpoint answers a message with. Raises PostFailed."""
    headers = (*headers, ("Connection", "close"))
    request = post(url.host_header, url.path, body, headers, content_type)
    answer = _Answer()
    link: Link | None = None
    try:
        async with asyncio.timeout(sqs_limits.POST_S_MAX):
            link = await net.connect(url.host, url.port, answer.attached)
            link.send([request])
            return await answer.status
    except TimeoutError:
        raise PostFailed(f"no answer in {sqs_limits.POST_S_MAX} s") from None
    except OSError as error:
        raise PostFailed(error.strerror or str(error) or type(error).__name__) from None
    finally:
        if link is not None:
            link.abort("the answer has come, or is waited for no longer")


class _Answer:
    """The receiver of one answer."""

    def __init__(self) -> None:
        self._reader = AnswerReader(sqs_limits.POST_ANSWER_BYTES_MAX)
        self.status: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def attached(self, link: Link) -> _Answer:
        return self

    def writable(self) -> memoryview:
        return self._reader.writable()

    def received(self, size: int) -> None:
        if self.status.done():
            return
        try:
            self._reader.received(size)
        except MalformedFrame as error:
            self.status.set_exception(PostFailed(str(error)))
            return
        if self._reader.status:
            self.status.set_result(self._reader.status)

    def drained(self) -> None:
        """Nothing more is sent."""

    def closed(self, reason: str) -> None:
        if not self.status.done():
            self.status.set_exception(PostFailed(f"the connection was closed: {reason}"))
