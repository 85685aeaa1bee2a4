"""Object stores in memory, which are away on request.

A store outlives the node that writes to it. What is written appears whole or not at all, and may
appear although the writer is told that it failed: then only the answer was lost.
"""

from collections.abc import Iterable

from entrepot.core.errors import StoreUnavailable
from entrepot.core.ports import Buffer


class MemoryStore:
    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.away: str | None = None  # Why every call fails.
        self.writes_left: int | None = None  # So many succeed, then the store is away.
        self.loses_answer = False  # The next write succeeds, and its writer hears of a failure.

    def check(self) -> None:
        self._check()

    def names(self, directory: str) -> list[str]:
        self._check()
        top = f"{directory}/" if directory else ""
        rest = [name.removeprefix(top) for name in self.objects if name.startswith(top)]
        return sorted({name.partition("/")[0] for name in rest})

    def size(self, name: str) -> int | None:
        self._check()
        found = self.objects.get(name)
        return None if found is None else len(found)

    def read(self, name: str, position: int = 0, size: int | None = None) -> bytes | None:
        self._check()
        found = self.objects.get(name)
        if found is None:
            return None
        return found[position:] if size is None else found[position : position + size]

    def write(self, name: str, chunks: Iterable[Buffer]) -> None:
        self._check()
        if self.writes_left is not None:
            if self.writes_left == 0:
                self.away = "it is away"
                self._check()
            self.writes_left -= 1
        self.objects[name] = b"".join(bytes(chunk) for chunk in chunks)
        if self.loses_answer:
            self.loses_answer = False
            raise StoreUnavailable("the answer was lost")

    def _check(self) -> None:
        if self.away is not None:
            raise StoreUnavailable(self.away)


class MemoryStores:
    """A world's stores, by address."""

    def __init__(self) -> None:
        self.stores: dict[str, MemoryStore] = {}

    def open(self, address: str, /) -> MemoryStore:
        return self.stores.setdefault(address, MemoryStore())
