"""A store of keys with revisions, leases and a history: a state machine without time or files.

The local coordinator keeps one on disk, the simulated one keeps one for all nodes of a world.
Where etcd does something that one would not guess, this does the same: a transaction that
changes nothing has no revision of its own, and all keys of a lease are deleted in one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from entrepot.core import limits
from entrepot.core.coordinator import Change, Delete, Entry, Event, Expected, Put, Snapshot
from entrepot.core.errors import LeaseLost, RevisionCompacted


class KeyStore:
    def __init__(self, revision: int = 1, entries: Sequence[Entry] = ()) -> None:
        self.revision = revision
        self.compacted = revision  # Changes up to this revision are forgotten.
        self._entries = {entry.key: entry for entry in entries}
        # The keys that each lease holds, in the order in which it got them.
        self._leases: dict[int, dict[str, None]] = {}
        for entry in entries:
            if entry.lease:
                self._leases.setdefault(entry.lease, {})[entry.key] = None
        self._events: list[Event] = []  # Since `compacted`, revisions ascending.

    # --- reading

    def get(self, key: str) -> Entry | None:
        return self._entries.get(key)

    def range(self, prefix: str) -> Snapshot:
        keys = sorted(key for key in self._entries if key.startswith(prefix))
        return Snapshot(self.revision, [self._entries[key] for key in keys])

    def since(self, prefix: str, revision: int) -> list[Event]:
        """Return the changes from that revision on. Raises RevisionCompacted."""
        if revision <= self.compacted:
            raise RevisionCompacted(f"revision {revision} is gone: {self.compacted} is compacted")
        first = bisect_left(self._events, revision, key=_revision_of)
        return [event for event in self._events[first:] if event.key.startswith(prefix)]

    # --- changing

    def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        """Make the changes if everything is as expected. Return the revision; None if not."""
        assert len(changes) <= limits.TRANSACTION_CHANGES_MAX, len(changes)
        assert len({change.key for change in changes}) == len(changes), "a key is changed twice"
        for key, revision in expected:
            entry = self._entries.get(key)
            if revision != (entry.revision if entry is not None else 0):
                return None
        for change in changes:
            if isinstance(change, Put) and change.lease and change.lease not in self._leases:
                raise LeaseLost(f"there is no lease {change.lease}")
        self._apply(changes)
        return self.revision

    def _apply(self, changes: Sequence[Change]) -> None:
        revision, events = self.revision + 1, list[Event]()
        for change in changes:
            before = self._entries.pop(change.key, None)
            if before is not None and before.lease:
                self._leases[before.lease].pop(change.key, None)
            if isinstance(change, Put):
                key, value, lease = change
                self._entries[key] = Entry(key, value, revision, lease)
                if lease:
                    self._leases[lease][key] = None
                events.append(Event(key, value, revision))
            elif before is not None:
                events.append(Event(change.key, None, revision))
        if events:
            self.revision = revision
            self._events += events
            surplus = len(self._events) - limits.COORDINATOR_EVENTS_MAX
            if surplus > 0:
                self.compact(self._events[surplus - 1].revision)

    def grant(self, lease: int) -> None:
        self._leases[lease] = {}

    def has_lease(self, lease: int) -> bool:
        return lease in self._leases

    def end_lease(self, lease: int) -> None:
        """Delete the keys that the lease holds, and the lease."""
        self._apply([Delete(key) for key in self._leases.get(lease, {})])
        self._leases.pop(lease, None)

    def compact(self, revision: int) -> None:
        """Forget all changes up to that revision. The entries stay."""
        self.compacted = max(self.compacted, min(revision, self.revision))
        del self._events[: bisect_left(self._events, self.compacted + 1, key=_revision_of)]


def _revision_of(event: Event) -> int:
    return event.revision
