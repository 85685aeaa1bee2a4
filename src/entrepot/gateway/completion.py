"""Waits for a publication: for gateways that answer a request when its messages are stored."""

from __future__ import annotations

import asyncio

from entrepot.broker.queue.message import Failure, Publication
from entrepot.core.errors import PeerError, StorageError


def completion() -> tuple[Publication, asyncio.Future[Failure | None]]:
    """Return a publication, and a future with what it ends with: the failure, or None."""
    done: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    def finish(failure: Failure | None) -> None:
        if not done.done():  # Otherwise the client is gone.
            done.set_result(failure)

    return Publication(finish), done


def check_stored(failure: Failure | None) -> None:
    """Raise StorageError or PeerError if something was not stored."""
    if isinstance(failure, StorageError):
        raise failure
    if failure is not None:
        raise PeerError(f"not everything is stored: {failure}")
