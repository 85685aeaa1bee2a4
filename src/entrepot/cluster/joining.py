"""Joining a cluster: which one a data directory belongs to, as which node, and whether it may.

What a node has on disk is worth something only among those it was copied from. So the directory
says which cluster and which node it is, the coordinator says which directory each
node's number belongs to, and a node that does not fit says why and does not start:

- with the data of another cluster, of another node, or of a broker alone;
- with a number that another directory has: its data may be lost, but nobody may take a place in
  an in-sync set without having what counts as stored there;
- without the cluster's secret, or with another one;
- of a version that does not know how this cluster's nodes speak.

The secret itself is never stored: the coordinator has a keyed hash of the cluster's id. That
refuses a mistake at the start; strangers are refused by their logins, with every connection.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from entrepot.core.coordinator import Coordinator, Expected, Put
from entrepot.core.errors import CoordinatorUnavailable, Corruption
from entrepot.core.ports import Disk, Entropy
from entrepot.log import layout
from entrepot.log.files import load, replace

T = TypeVar("T")

CLUSTER = "cluster"
MEMBERS = "members/"
FORMAT = 1  # How nodes of a cluster speak to each other. A cluster keeps that of its first node.
_ID_BYTES = 16
_RETRY_S = 0.5
_TELL_EVERY_S = 30.0


class CannotJoin(Exception):
    """Why this node does not start. The text is one line for the user."""


class Identity(msgspec.Struct, array_like=True, frozen=True):
    """What a data directory says it is."""

    cluster: bytes
    node: int
    directory: bytes  # Another one for each data directory there ever was.


class _Cluster(msgspec.Struct):
    id: str
    format: int
    proof: str  # Empty means: without a secret.


class _Member(msgspec.Struct):
    directory: str


async def join(
    coordinator: Coordinator,
    disk: Disk,
    entropy: Entropy,
    *,
    node: int,
    secret: str,
    is_empty: bool,
    tell: Callable[[str], None],
) -> Identity:
    """Join the cluster of this coordinator as this node, or found it. Raises CannotJoin.

    `is_empty` says whether the directory has no partitions yet. Waits for a coordinator that does
    not answer, and says so by `tell`. The directory must be locked.
    """
    ours = read_identity(disk)
    if ours is not None and ours.node != node:
        raise CannotJoin(f"the data are those of node {ours.node}, and this is to be node {node}")
    if ours is None and not is_empty:
        raise CannotJoin("the data are those of a broker alone, which a cluster cannot take over")

    async def attempt() -> Identity:
        ours = read_identity(disk)  # Perhaps written by an attempt that had no answer.
        cluster = await _cluster(coordinator, entropy, ours, secret)
        return await _member(coordinator, disk, entropy, cluster, ours, node)

    return await _patiently(attempt, tell)


async def forget(coordinator: Coordinator, node: int) -> bool:
    """Let another data directory have this node's number: its own is lost for good. Return
    whether there was one."""
    entry = await coordinator.get(_member_key(node))
    if entry is None:
        return False
    changes = [Put(entry.key, b"")]
    return await coordinator.commit([Expected(entry.key, entry.revision)], changes) is not None


def read_identity(disk: Disk) -> Identity | None:
    """Return what the directory says; None if it says nothing. Raises CannotJoin."""
    payload = load(disk, layout.IDENTITY)
    if payload is None:
        if disk.exists(layout.IDENTITY):
            raise CannotJoin(f"{layout.IDENTITY} is damaged: it is not known whose data these are")
        return None
    try:
        return msgspec.msgpack.decode(payload, type=Identity)
    except msgspec.DecodeError as error:
        raise CannotJoin(f"{layout.IDENTITY}: {error}") from None


async def _cluster(
    coordinator: Coordinator, entropy: Entropy, ours: Identity | None, secret: str
) -> bytes:
    """Return the id of the cluster there is, or of a new one. Raises CannotJoin."""
    entry = await coordinator.get(CLUSTER)
    if entry is None and ours is not None:
        raise CannotJoin(
            f"the data are those of cluster {ours.cluster.hex()}, but the coordinator knows no "
            "cluster: is its address right, and cluster.name?"
        )
    if entry is None:
        new = entropy.token(_ID_BYTES)
        value = msgspec.json.encode(_Cluster(new.hex(), FORMAT, _proof(secret, new)))
        await coordinator.commit([Expected(CLUSTER, 0)], [Put(CLUSTER, value)])
        entry = await coordinator.get(CLUSTER)  # Perhaps that of somebody who was quicker.
        if entry is None:
            raise CoordinatorUnavailable("the cluster's key is gone")
    found = _read(entry.value, _Cluster)
    identity = bytes.fromhex(found.id)
    if found.format > FORMAT:
        raise CannotJoin(
            f"the cluster speaks version {found.format} between nodes, this node only {FORMAT}: "
            "it needs a later release"
        )
    if ours is not None and ours.cluster != identity:
        raise CannotJoin(
            f"the data are those of cluster {ours.cluster.hex()}, but the coordinator has "
            f"cluster {found.id}"
        )
    _check_secret(found, secret, identity)
    return identity


def _check_secret(found: _Cluster, secret: str, identity: bytes) -> None:
    if hmac.compare_digest(found.proof, _proof(secret, identity)):
        return
    if not secret:
        raise CannotJoin("the cluster has a secret, and this node has none (cluster.secret_file)")
    if not found.proof:
        raise CannotJoin("this node has a secret (cluster.secret_file), and the cluster has none")
    raise CannotJoin("this node's secret is not the cluster's")


def _proof(secret: str, identity: bytes) -> str:
    """Return what says who knows the secret; it does not tell the secret."""
    return hmac.digest(secret.encode(), identity, "sha256").hex() if secret else ""


async def _member(
    coordinator: Coordinator,
    disk: Disk,
    entropy: Entropy,
    cluster: bytes,
    ours: Identity | None,
    node: int,
) -> Identity:
    """Claim the node's number for this directory. Raises CannotJoin if another has it."""
    entry = await coordinator.get(_member_key(node))
    owner = _read(entry.value, _Member).directory if entry is not None and entry.value else None
    identity = ours or Identity(cluster, node, entropy.token(_ID_BYTES))
    mine = identity.directory.hex()
    if owner is not None and owner != mine:
        raise CannotJoin(
            f"the number {node} is taken by another data directory. If that is lost for good, "
            f"`entrepot cluster forget {node}` lets this one have the number"
        )
    if ours is None:
        # Before the claim: a directory that has claimed a number must know it.
        await replace(disk, "", layout.IDENTITY, msgspec.msgpack.encode(identity))
    if owner is None:
        revision = 0 if entry is None else entry.revision
        put = Put(_member_key(node), msgspec.json.encode(_Member(mine)))
        if await coordinator.commit([Expected(put.key, revision)], [put]) is None:
            if ours is None:
                disk.remove(layout.IDENTITY)
            raise CoordinatorUnavailable(f"somebody else claims the number {node}, too")
    return identity


async def _patiently(attempt: Callable[[], Awaitable[T]], tell: Callable[[str], None]) -> T:
    """Try until the coordinator answers. What was written meanwhile is found again."""
    loop, tell_at = asyncio.get_running_loop(), 0.0
    while True:
        try:
            return await attempt()
        except CoordinatorUnavailable as error:
            if loop.time() >= tell_at:
                tell(f"waiting for the coordinator: {error}")
                tell_at = loop.time() + _TELL_EVERY_S
        await asyncio.sleep(_RETRY_S)


def _member_key(node: int) -> str:
    return f"{MEMBERS}{node}"


def _read(value: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(value, type=kind)
    except msgspec.DecodeError as error:
        raise Corruption(f"the coordinator has {value[:100]!r}: {error}") from None
