"""The queues of a virtual host as its sessions use them."""

from __future__ import annotations

from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.virtual_host.inventory import Inventory


class SessionQueues:
    """Implements `Queues` of `session.registry`."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

    def find(self, name: str) -> Queue:
        return self._inventory.queue(name, self)  # Nobody's: so an exclusive one is refused.

    def hidden(self, name: str) -> Queue | None:
        return self._inventory.hidden.get(name)

    def in_memory(self, name: str, settings: QueueSettings) -> Queue:
        return self._inventory.in_memory(name, settings)

    async def prepare_hidden(self, name: str, settings: QueueSettings) -> Queue:
        return await self._inventory.prepare_hidden(name, settings)

    async def delete_hidden(self, name: str) -> None:
        await self._inventory.delete_hidden(name)
