"""The coordinator: a small store that all nodes of a cluster agree on, and the fifth door.

Keys are text, values are bytes. Each transaction that changes something gets the next revision,
and a watch tells of all changes from a revision on, in order, so that whoever has read a range
at a revision and watches from the next one has missed nothing. A key may be held by a lease: it
is deleted when the lease is not kept alive.

What it says may be late. A lease that the holder takes for alive may be gone, and somebody else
may have been elected since. So nothing here protects data: every append carries the epoch that
was decided here, and replicas refuse an older one.

Every call raises CoordinatorUnavailable when there is no answer. A change may have been made
then, or may be made later: whoever needs to know reads again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Entry(NamedTuple):
    key: str
    value: bytes
    revision: int  # Of its last change.
    lease: int  # 0 means: none holds it.


class Snapshot(NamedTuple):
    """All entries of a range, as of one revision, by ascending keys."""

    revision: int
    entries: list[Entry]


class Expected(NamedTuple):
    """A condition of a transaction."""

    key: str
    revision: int  # Of the last change of the key; 0 means: there is no such key.


class Put(NamedTuple):
    key: str
    value: bytes
    lease: int = 0  # 0 means: none holds it, also if one did before.


class Delete(NamedTuple):
    key: str  # It may be missing.


Change = Put | Delete


class Event(NamedTuple):
    """A change that was made."""

    key: str
    value: bytes | None  # None means: the key was deleted.
    revision: int


class Lease(NamedTuple):
    id: int  # Never 0.
    seconds: float  # It may be longer than asked for.


class Watch(Protocol):
    async def next(self) -> list[Event]:
        """Wait for changes and return them in order; those of one revision come together.

        Raises RevisionCompacted when some were forgotten before they were told: then this watch
        is of no use any more. After CoordinatorUnavailable it goes on: call it again.
        """

    def close(self) -> None: ...


class Coordinator(Protocol):
    async def get(self, key: str, *, may_be_stale: bool = False) -> Entry | None:
        """Return the entry; None if there is no such key.

        It is not older than any change whose call had returned before, unless `may_be_stale`.
        """

    async def range(self, prefix: str, *, may_be_stale: bool = False) -> Snapshot:
        """Return all entries whose key begins with the prefix, as `get` does."""

    async def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        """Make all changes if everything is as expected. Return the revision; None if not.

        At most TRANSACTION_CHANGES_MAX changes, each of another key. Raises LeaseLost if a key is
        to be held by a lease that is gone; nothing is changed then.
        """

    async def grant(self, seconds: int) -> Lease:
        """Return a new lease that ends when it was not kept alive for that long."""

    async def keep_alive(self, lease: int) -> float:
        """Begin the lease's time anew and return it in seconds. Raises LeaseLost if it is gone.

        The holder counts from before its call, by its own clock: the answer takes time, too.
        """

    async def revoke(self, lease: int) -> None:
        """End the lease, and delete the keys that it holds. It may be gone."""

    def watch(self, prefix: str, revision: int) -> Watch:
        """Return a watch of all changes, from that revision on, to keys with the prefix."""

    def close(self) -> None:
        """Close connections and files. Leases stay until their time is over."""
