"""What a URL says into a topic: its JSON array, or its lines, asked for again and again.

With `cursor`, a field that grows from item to item, only items after the last one count;
`cursor_parameter` tells the server, too, so that it need not send the others. Without it,
all items count whenever the document has changed, which the server tells by ETag or
Last-Modified, or its checksum does.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from entrepot.connect.formats import Misfit, key_of, read_json, to_json
from entrepot.connect.http_session import Answer, HttpOptions, HttpSession, open_session
from entrepot.connect.interface import (
    ConnectError,
    Polled,
    Position,
    Rejected,
    Source,
    SourceRecord,
    Unavailable,
)

Item = tuple[SourceRecord | Rejected, Any]  # And its cursor.


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSourceOptions(HttpOptions):
    url: str
    format: Literal["json", "lines"] = "json"
    items: str | None = None  # Where the array is in the document, as in "data.items".
    key: str | None = None
    cursor: str | None = None
    cursor_parameter: str | None = None  # Of the URL's query.
    headers: dict[str, str] = field(default_factory=dict)

    def problem(self) -> str | None:
        if self.cursor_parameter is not None and self.cursor is None:
            return "cursor: the field that cursor_parameter is to be filled from"
        if self.format == "lines" and (self.items or self.key or self.cursor):
            return "format: lines have no fields for items, key or cursor"
        return self.url_problem(self.url)


class HttpSource(Source):
    Options: ClassVar[type[Any] | None] = HttpSourceOptions
    poll_ms = 10_000

    _session: HttpSession | None = None

    async def open(self, position: Position | None) -> None:
        self._session = open_session(self.options)
        self._position: dict[str, Any] = position or {}
        # Of the document that is being read: what is left, and the position after it.
        self._left: list[Item] = []
        self._after: dict[str, Any] = {}

    async def poll(self, count_max: int) -> Polled | None:
        if not self._left:
            await self._ask()
        if not self._left:
            return None
        taken, self._left = self._left[:count_max], self._left[count_max:]
        done = self._position.get("items_done", 0) + len(taken)
        if self.options.cursor is not None:
            cursors = [cursor for _, cursor in taken if cursor is not None]
            before = {"cursor": self._position["cursor"]} if "cursor" in self._position else {}
            self._position = before | ({"cursor": cursors[-1]} if cursors else {})
        elif self._left:
            self._position = {"reading": self._after["checksum"], "items_done": done}
        else:
            self._position = self._after
        return Polled([record for record, _ in taken], dict(self._position))

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _ask(self) -> None:
        assert self._session is not None
        headers = {"Accept": "application/json", **self.options.headers}
        for name, key in (("If-None-Match", "etag"), ("If-Modified-Since", "modified")):
            if key in self._position:
                headers[name] = self._position[key]
        answer = await self._session.request("GET", self._url(), None, headers)
        if answer.status == 304:
            return
        checksum = zlib.crc32(answer.body)
        if self.options.cursor is not None:
            self._left = [item for item in self._items(answer) if self._is_new(item[1])]
            return
        if self._position.get("checksum") == checksum:
            return
        self._after = {"checksum": checksum}
        for name, key in (("ETag", "etag"), ("Last-Modified", "modified")):
            if name in answer.headers:
                self._after[key] = answer.headers[name]
        if self._position.get("reading") != checksum:
            self._position.pop("items_done", None)  # It has changed since: all of it counts.
        self._left = list(self._items(answer))[self._position.get("items_done", 0) :]

    def _url(self) -> str:
        url: str = self.options.url
        if self.options.cursor_parameter is None or "cursor" not in self._position:
            return url
        parts = urlsplit(url)
        query = [*parse_qsl(parts.query), (self.options.cursor_parameter, self._position["cursor"])]
        return str(urlunsplit(parts._replace(query=urlencode(query))))

    def _is_new(self, cursor: Any) -> bool:
        if cursor is None or "cursor" not in self._position:
            return True
        try:
            return bool(cursor > self._position["cursor"])
        except TypeError:
            raise ConnectError(
                f"options.cursor: {cursor!r} cannot be compared with {self._position['cursor']!r}"
            ) from None

    def _items(self, answer: Answer) -> Iterator[Item]:
        if self.options.format == "lines":
            for line in answer.body.splitlines():
                if line:
                    yield SourceRecord(line), None
            return
        for number, item in enumerate(self._array(answer.body)):
            try:
                cursor = self._cursor(item)
                yield SourceRecord(to_json(item), key=key_of(item, self.options.key)), cursor
            except Misfit as error:
                where = f"{self.options.url}, item {number}"
                yield Rejected(to_json(item), where, str(error)), None

    def _array(self, body: bytes) -> list[Any]:
        try:
            found = read_json(body)
        except Misfit as error:
            raise Unavailable(f"{self.options.url}: {error}") from None
        for name in self.options.items.split(".") if self.options.items else ():
            found = found.get(name) if isinstance(found, dict) else None
        if not isinstance(found, list):
            raise Unavailable(f"{self.options.url}: no array of items")
        return found

    def _cursor(self, item: Any) -> Any:
        if self.options.cursor is None:
            return None
        if not isinstance(item, dict) or item.get(self.options.cursor) is None:
            raise Misfit(f"no field {self.options.cursor} for the cursor")
        return item[self.options.cursor]
