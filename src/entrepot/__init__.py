"""entrepot: one durable, partitioned log that many kinds of clients use at once.

    with entrepot.Client() as client:
        client.put("work", {"id": 7})

Nothing is imported before it is used: a broker needs no client, and starts the sooner.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entrepot.client.messaging.blocking import Client as Client
    from entrepot.client.messaging.client import AsyncClient as AsyncClient
    from entrepot.client.messaging.message import Message as Message
    from entrepot.client.messaging.space_transactions import Conflict as Conflict

__all__ = ["AsyncClient", "Client", "Conflict", "Message"]

_HOMES = {
    "AsyncClient": "client",
    "Client": "blocking",
    "Conflict": "space_transactions",
    "Message": "message",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"entrepot.client.messaging.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
