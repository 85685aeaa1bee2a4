"""Requests over HTTP, and which answers are worth another try."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from entrepot.connect.interface import ConnectError, Unavailable
from entrepot.connect.registry import need
from entrepot.core.limits import MIB

BODY_BYTES_MAX = 64 * MIB
_AGAIN = (408, 425, 429)  # Timed out, too early, too many.


class Refusal(ConnectError):
    """An answer that will not change."""


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    timeout_s: float = 30.0

    def url_problem(self, url: str) -> str | None:
        return None if url.startswith(("http://", "https://")) else "url: as in https://host/path"


class HttpSession:
    def __init__(self, library: Any, timeout_s: float) -> None:
        self._library = library
        self._session = library.ClientSession(timeout=library.ClientTimeout(total=timeout_s))

    async def request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        """Of the 2xx, or 304. Raises Unavailable or Refusal."""
        try:
            asked = self._session.request(
                method, url, data=body, headers=headers, allow_redirects=body is None
            )
            async with asked as answer:
                content = await answer.content.read(BODY_BYTES_MAX + 1)
                while not answer.content.at_eof() and len(content) <= BODY_BYTES_MAX:
                    content += await answer.content.read(BODY_BYTES_MAX + 1 - len(content))
        except TimeoutError:
            raise Unavailable(f"{url}: timed out") from None
        except (self._library.InvalidURL, ValueError) as error:
            raise ConnectError(f"{url}: {error}") from None
        except (self._library.ClientError, OSError) as error:
            raise Unavailable(f"{url}: {error}") from None
        if answer.status >= 500 or answer.status in _AGAIN:
            raise Unavailable(f"{url}: {answer.status} {answer.reason}")
        if answer.status != 304 and not 200 <= answer.status < 300:
            raise Refusal(f"{url}: {answer.status} {answer.reason}")
        if len(content) > BODY_BYTES_MAX:
            raise ConnectError(f"{url}: the answer has more than {BODY_BYTES_MAX} bytes")
        return Answer(answer.status, answer.headers, content)

    async def close(self) -> None:
        await self._session.close()


def open_session(options: HttpOptions) -> HttpSession:
    return HttpSession(need("aiohttp", "aiohttp", "HTTP"), options.timeout_s)
