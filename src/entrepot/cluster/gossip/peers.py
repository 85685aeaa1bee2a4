"""Which peer is gossiped with: any, the one least often contacted, or one of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from entrepot.cluster.gossip.framework import Peer
from entrepot.core.ports import Entropy

_FINE = 1 << 30  # Chances are multiples of one part in this.


def happens(chance: float, entropy: Entropy) -> bool:
    """Decide something that is true with this probability."""
    return entropy.below(_FINE) < chance * _FINE


def some_of(peers: Sequence[Peer], count: int, entropy: Entropy) -> list[Peer]:
    """Return `count` different ones, each choice as likely as any other; all if there are fewer."""
    if count >= len(peers):
        return list(peers)
    if count == 1:
        return [peers[entropy.below(len(peers))]]
    chosen: dict[int, None] = {}
    for end in range(len(peers) - count, len(peers)):
        index = entropy.below(end + 1)
        chosen[end if index in chosen else index] = None
    return [peers[index] for index in chosen]


class Others(Sequence[Peer]):
    """The numbers from 0 to `count` - 1 without one of them, in no memory."""

    def __init__(self, count: int, me: Peer) -> None:
        self._size = count - 1
        self._me = me

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Peer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Peer]: ...
    def __getitem__(self, index: int | slice) -> Peer | Sequence[Peer]:
        if isinstance(index, slice):
            return [self[each] for each in range(*index.indices(self._size))]
        if index >= self._size:
            raise IndexError(index)
        return index if index < self._me else index + 1


class Uniform:
    """Any of the peers, each as likely."""

    def __init__(self, peers: Sequence[Peer], entropy: Entropy) -> None:
        self.peers = peers  # Of live nodes; may be replaced, or changed, at any time.
        self._entropy = entropy

    def select(self) -> Peer | None:
        count = len(self.peers)
        return self.peers[self._entropy.below(count)] if count else None


class LeastContacted:
    """One of those that were chosen least often so far, as CockroachDB does."""

    def __init__(self, peers: Sequence[Peer], entropy: Entropy) -> None:
        self.peers = peers
        self._entropy = entropy
        self._contacts: dict[Peer, int] = {}

    def select(self) -> Peer | None:
        if not self.peers:
            return None
        known = self._contacts
        self._contacts = known = {peer: known.get(peer, 0) for peer in self.peers}
        least = min(known.values())
        chosen = some_of(
            [peer for peer, count in known.items() if count == least], 1, self._entropy
        )
        known[chosen[0]] += 1
        return chosen[0]
