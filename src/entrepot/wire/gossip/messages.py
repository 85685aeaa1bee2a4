"""What gossiping nodes say to each other.

Each message is a value that the state machines of `cluster.gossip` make and take, and that
MessagePack can carry: an array whose first element is the message's number. In a simulation the
values themselves travel, between processes their bytes. Numbers never change their meaning.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from entrepot.wire.gossip import limits

NodeId = Annotated[int, Meta(ge=0, lt=1 << 62)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Host = Annotated[str, Meta(max_length=limits.HOST_BYTES_MAX)]
Key = Annotated[str, Meta(min_length=1, max_length=limits.KEY_BYTES_MAX)]
Value = Annotated[bytes, Meta(max_length=limits.VALUE_BYTES_MAX)]


class Entry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A fact that its owner published."""

    owner: NodeId
    version: Annotated[int, Meta(ge=1, lt=1 << 62)]  # Counts all changes of this owner.
    key: Key
    value: Value


class Entries(msgspec.Struct, frozen=True, array_like=True, tag=1):
    entries: tuple[Entry, ...]


class Share(msgspec.Struct, frozen=True, array_like=True, tag=2, gc=False):
    """What two nodes exchange to agree on an aggregate."""

    epoch: Count  # Each begins anew, with the values that the nodes have then.
    number: Count  # Of the exchange, by the node that began it; its answer has the same.
    mean: float  # The sender's; in an answer, what is to be added to the other's.
    weight: float  # Likewise. Its sum over all nodes is 1, so its mean is 1 / their number.
    minimum: float
    maximum: float


class Descriptors(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Nodes that the sender knows, each with its age in rounds."""

    nodes: tuple[tuple[NodeId, Count], ...]


Payload = Entries | Share | Descriptors


class Push(msgspec.Struct, frozen=True, array_like=True, tag=10, gc=False):
    payload: Payload


class Pull(msgspec.Struct, frozen=True, array_like=True, tag=11, gc=False):
    """A request for a payload."""


class PushPull(msgspec.Struct, frozen=True, array_like=True, tag=12, gc=False):
    """A payload that is answered with one."""

    payload: Payload


class Reply(msgspec.Struct, frozen=True, array_like=True, tag=13, gc=False):
    payload: Payload


Versions = tuple[tuple[NodeId, Count], ...]  # How much is known of which owner.


class Digest(msgspec.Struct, frozen=True, array_like=True, tag=14):
    """How much the sender knows of each owner; a request for what is newer."""

    versions: Versions


class Delta(msgspec.Struct, frozen=True, array_like=True, tag=15):
    """What is newer than a digest, and how much the sender knows of what the digest is ahead."""

    entries: tuple[Entry, ...]
    wanted: Versions


class Rumor(msgspec.Struct, frozen=True, array_like=True, tag=20, gc=False):
    entry: Entry


class Feedback(msgspec.Struct, frozen=True, array_like=True, tag=21, gc=False):
    """Tell whether a rumor was news."""

    owner: NodeId
    version: Count
    was_known: bool


EventId = tuple[NodeId, Count]  # The sender, and its count.


class Event(msgspec.Struct, frozen=True, array_like=True, tag=30, gc=False):
    """A message of bimodal multicast."""

    sender: NodeId
    number: Count
    body: Value


class EventDigest(msgspec.Struct, frozen=True, array_like=True, tag=31):
    """The names of the events that the sender has, not the events."""

    ids: tuple[EventId, ...]


class Solicit(msgspec.Struct, frozen=True, array_like=True, tag=32):
    """A request for events whose names a digest had."""

    ids: tuple[EventId, ...]


class Retransmit(msgspec.Struct, frozen=True, array_like=True, tag=33):
    event: Event


class MemberUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What somebody believes of a member. Of two, `state_of` says which one counts."""

    node: NodeId
    host: Host
    port: Port
    incarnation: Count
    state: Annotated[int, Meta(ge=0, le=3)]  # A `MemberState`.


class Ping(msgspec.Struct, frozen=True, array_like=True, tag=40):
    number: Count
    updates: tuple[MemberUpdate, ...]


class Ack(msgspec.Struct, frozen=True, array_like=True, tag=41):
    number: Count
    node: NodeId  # Who is alive: the sender, or whom it has asked for us.
    updates: tuple[MemberUpdate, ...]


class PingRequest(msgspec.Struct, frozen=True, array_like=True, tag=42):
    """A request to probe another member, and to pass its answer on."""

    number: Count
    node: NodeId
    updates: tuple[MemberUpdate, ...]


class Join(msgspec.Struct, frozen=True, array_like=True, tag=43, gc=False):
    """The first words of a node to one whose address it was told."""

    me: MemberUpdate


class MemberList(msgspec.Struct, frozen=True, array_like=True, tag=44):
    """A part of the members that the sender knows."""

    updates: tuple[MemberUpdate, ...]


Body = Annotated[bytes, Meta(max_length=limits.CARRIED_BYTES_MAX)]


class Carried(msgspec.Struct, frozen=True, array_like=True, tag=50, gc=False):
    """A message that nodes of an overlay hand on to their neighbours."""

    origin: NodeId
    number: Count  # With the origin, its name.
    hops: Count
    ttl: Count  # Hops that are left.
    body: Body


RingKey = Annotated[bytes, Meta(min_length=8, max_length=8)]  # A position on the ring of Chord.
OptionalNode = NodeId | None


class Lookup(msgspec.Struct, frozen=True, array_like=True, tag=60, gc=False):
    """A request for the node that is responsible for a key, handed on towards it."""

    key: RingKey
    asker: NodeId
    number: Count
    hops: Count


class Found(msgspec.Struct, frozen=True, array_like=True, tag=61, gc=False):
    number: Count
    node: NodeId
    hops: Count


class AskNeighbours(msgspec.Struct, frozen=True, array_like=True, tag=62, gc=False):
    """A request for a node's neighbours on the ring, by one that takes itself for the one
    before it."""


class Neighbours(msgspec.Struct, frozen=True, array_like=True, tag=63):
    before: OptionalNode
    successors: Annotated[tuple[NodeId, ...], Meta(max_length=16)]


class GroupJoin(msgspec.Struct, frozen=True, array_like=True, tag=64, gc=False):
    """The sender wants to be a child in the tree of a group, or to stay one."""

    group: RingKey


class GroupLeave(msgspec.Struct, frozen=True, array_like=True, tag=65, gc=False):
    group: RingKey


class GroupSend(msgspec.Struct, frozen=True, array_like=True, tag=66, gc=False):
    """A message on its way to the root of a group."""

    group: RingKey
    origin: NodeId
    number: Count
    hops: Count
    body: Body


class GroupMessage(msgspec.Struct, frozen=True, array_like=True, tag=67, gc=False):
    """A message on its way down the tree of a group."""

    group: RingKey
    origin: NodeId
    number: Count
    hops: Count
    body: Body


class Piece(msgspec.Struct, frozen=True, array_like=True, tag=70, gc=False):
    """A part of what one node tells another in order, and again until it has arrived."""

    view: Count  # Of which both are members; in another, nothing of it counts.
    number: Annotated[int, Meta(ge=1, lt=1 << 62)]  # From the sender to the receiver in this view.
    is_last: bool  # Of the message that it is a part of.
    body: Body


class Arrived(msgspec.Struct, frozen=True, array_like=True, tag=71, gc=False):
    view: Count
    number: Count  # All pieces up to this one have come.


Message = (
    Push | Pull | PushPull | Reply | Digest | Delta | Rumor | Feedback
    | Event | EventDigest | Solicit | Retransmit
    | Ping | Ack | PingRequest | Join | MemberList
    | Carried
    | Lookup | Found | AskNeighbours | Neighbours
    | GroupJoin | GroupLeave | GroupSend | GroupMessage
    | Piece | Arrived
)  # fmt: skip
