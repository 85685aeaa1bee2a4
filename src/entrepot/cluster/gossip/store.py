"""Facts that spread: each has one owner, who counts its changes.

What a node knows of an owner is everything up to one version, so a digest is one number for each
owner, and the difference of two nodes is what lies between their numbers. A newer value of a key
takes the place of the older one. Packets are small: a difference is cut off at the end of a
packet, in the order of its versions, so that what arrives is again everything up to one version.
(This is the reconciliation of van Renesse and others, "Efficient Reconciliation and Flow Control
for Anti-Entropy Protocols", which Cassandra uses.)

`Store` as the data of an `Exchange` sends all it knows, as the lectures have it; `Reconciliation`
sends digests first and then only what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, PeerSelection, Sends
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Delta, Digest, Entries, Entry, Versions

PACKET_BYTES = limits.BODY_BYTES_MAX - 64  # Of entries; the rest is for what surrounds them.
_ENTRY_BYTES = 28  # Of what surrounds a key and a value, at most.
_VERSION_BYTES = 19  # Of one owner in a digest, at most.
_NOTHING = Entries(())


class _Owner:
    __slots__ = ("entries", "version")

    def __init__(self) -> None:
        self.version = 0  # Everything up to here is known.
        self.entries: dict[str, Entry] = {}  # By key, in the order of their versions.


class Store:
    def __init__(self, me: Peer, process: Callable[[Entry], None] | None = None) -> None:
        """`process` is told of each fact of others that is new here."""
        self._me = me
        self._process = process
        self._owners: dict[Peer, _Owner] = {}
        self._count = 0
        self._everything: Entries | None = _NOTHING  # What `select_to_send` returns, if known.

    def put(self, key: str, value: bytes) -> Entry:
        """Publish a fact of this node; return it."""
        entry = Entry(self._me, self.version(self._me) + 1, key, value)
        if not self._add(entry):
            raise ValueError(f"more than {limits.ENTRIES_MAX} facts")
        return entry

    def get(self, owner: Peer, key: str) -> bytes | None:
        known = self._owners.get(owner)
        entry = known and known.entries.get(key)
        return entry.value if entry else None

    def version(self, owner: Peer) -> int:
        """Return up to which version everything of this owner is known."""
        known = self._owners.get(owner)
        return known.version if known else 0

    def entries(self) -> list[Entry]:
        """Return all facts, by owner and version: the same at two nodes that know the same."""
        return [
            entry
            for owner in sorted(self._owners)
            for entry in self._owners[owner].entries.values()
        ]

    def forget(self, owner: Peer) -> None:
        """Remove what is known of an owner, which is gone for good."""
        known = self._owners.pop(owner, None)
        self._count -= len(known.entries) if known else 0
        self._everything = None

    # What an Exchange asks for.

    def select_to_send(self, peer: Peer) -> Entries:
        if self._everything is None:
            self._everything = Entries(tuple(_fitting(self.entries())))
        return self._everything

    def answer(self, peer: Peer, payload: Entries) -> Entries:
        mine = self.select_to_send(peer)
        if payload.entries:
            self.keep_all(payload.entries)
        return mine

    def keep(self, peer: Peer, payload: Entries) -> None:
        if payload.entries:
            self.keep_all(payload.entries)

    # What a Reconciliation and a RumorMonger ask for.

    def keep_all(self, entries: Iterable[Entry]) -> None:
        """Keep what is new of entries that follow on what is known here."""
        for entry in entries:
            if entry.version > self.version(entry.owner):
                if entry.owner == self._me:
                    self._resume(entry)
                elif self._add(entry) and self._process is not None:
                    self._process(entry)

    def keep_next(self, entry: Entry) -> bool:
        """Keep an entry if it is the next of its owner; return whether it was."""
        if entry.version != self.version(entry.owner) + 1 or entry.owner == self._me:
            return False
        self.keep_all((entry,))
        return True

    def digest(self, owners: Sequence[Peer]) -> Versions:
        return tuple((owner, self.version(owner)) for owner in owners)

    def owners(self) -> list[Peer]:
        return list(self._owners)

    def newer(self, versions: Versions, taken: int = 0) -> list[Entry]:
        """Return what is newer than a digest, as much as fits into a packet of which some bytes
        are taken."""
        found = (
            entry
            for owner, version in versions
            if self.version(owner) > version
            for entry in self._owners[owner].entries.values()
            if entry.version > version
        )
        return _fitting(found, PACKET_BYTES - taken)

    def _add(self, entry: Entry) -> bool:
        """Add an entry; return whether there was room."""
        owner = self._owners.get(entry.owner)
        is_new = owner is None or entry.key not in owner.entries
        if is_new and self._count >= limits.ENTRIES_MAX:
            return False
        if owner is None:
            owner = self._owners[entry.owner] = _Owner()
        self._count += is_new
        owner.entries.pop(entry.key, None)
        owner.entries[entry.key] = entry
        owner.version = entry.version
        self._everything = None
        return True

    def _resume(self, entry: Entry) -> None:
        """Others know of changes that this node has forgotten with its last process: go on above
        them, and publish again what it has published since."""
        mine = list(self._owners[self._me].entries.values()) if self._me in self._owners else []
        self._owners.setdefault(self._me, _Owner()).version = entry.version
        for each in mine:
            self.put(each.key, each.value)


def _fitting(entries: Iterable[Entry], room: int = PACKET_BYTES) -> list[Entry]:
    found = []
    for entry in entries:
        room -= _ENTRY_BYTES + len(entry.key) * 4 + len(entry.value)
        if room < 0:
            break
        found.append(entry)
    return found


class Reconciliation:
    """Push-pull by digests: what the other has is not sent to it.

    A digest is about some owners, and the next one about others, until all had their turn.
    """

    hears: ClassVar[tuple[type, ...]] = (Digest, Delta)
    is_active: ClassVar[bool] = True

    def __init__(self, store: Store, peers: PeerSelection, period_s: float = PERIOD_S) -> None:
        self.period_s = period_s
        self._store = store
        self._peers = peers
        self._turn = 0

    def tick(self, now: float) -> Sends:
        peer = self._peers.select()
        return () if peer is None else ((peer, Digest(self._store.digest(self._next_owners()))),)

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        store = self._store
        if type(message) is Digest:
            ahead = [(o, version) for o, v in message.versions if (version := store.version(o)) < v]
            told = dict(message.versions)
            untold: list[tuple[Peer, int]] = []
            if len(told) < limits.DIGEST_OWNERS_MAX:  # It is about all that the sender knows.
                untold = [(owner, 0) for owner in store.owners() if owner not in told]
            newer = store.newer((*message.versions, *untold), len(ahead) * _VERSION_BYTES)
            return ((sender, Delta(tuple(newer), tuple(ahead))),) if newer or ahead else ()
        store.keep_all(message.entries)
        newer = store.newer(message.wanted)
        return ((sender, Delta(tuple(newer), ())),) if newer else ()

    def _next_owners(self) -> list[Peer]:
        owners = self._store.owners()
        count = limits.DIGEST_OWNERS_MAX
        if len(owners) < count:
            return owners
        begin = self._turn % len(owners)
        self._turn = begin + count
        return (owners + owners)[begin : begin + count]
