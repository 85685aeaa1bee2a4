"""Names of queues and topics that are being made or deleted, so that others can wait for them."""

from __future__ import annotations

import asyncio


class Claims:
    def __init__(self) -> None:
        self._claims: dict[str, asyncio.Future[None]] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._claims

    def take(self, name: str) -> None:
        assert name not in self._claims, name
        self._claims[name] = asyncio.get_running_loop().create_future()

    def release(self, name: str) -> None:
        self._claims.pop(name).set_result(None)

    async def wait(self, name: str) -> None:
        """Wait until the name is not claimed."""
        while name in self._claims:
            await asyncio.shield(self._claims[name])

    async def wait_all(self) -> None:
        while self._claims:
            await asyncio.shield(next(iter(self._claims.values())))
