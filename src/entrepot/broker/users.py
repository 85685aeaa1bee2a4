"""Stores the users: their names, and hashes to check their passwords against.

For each password three hashes are stored, and the password can be computed from none of them: a
salted scrypt hash, for protocols that send the password in clear, and one SCRAM verifier for
each of the two SCRAM mechanisms. A client may also upload a verifier without the password;
such a user has that verifier only, and a password in clear is checked against it.

A login with an unknown name takes the same time and gets the same answer as one with a wrong
password. Hashing is slow on purpose, so a worker does it, outside of the event loop. After a
successful login a keyed hash of the password is cached in memory until the user is changed, so
that the next login of the same client is fast. Passwords are never logged.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

from entrepot.broker.access import NODE
from entrepot.broker.access_keys import AccessKey, AccessKeys
from entrepot.core import limits, scram
from entrepot.core.errors import InvalidName
from entrepot.core.ports import Entropy, Worker, in_place
from entrepot.core.record import Record
from entrepot.core.scram import Mechanism, Verifier

T = TypeVar("T")

SALT_BYTES = 16
NONCE_BYTES = 18
# 16 MiB of memory and some 50 ms of one core for every guess.
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 2**14, 8, 1
_SCRYPT_MEMORY_BYTES_MAX = 64 * limits.MIB


class Scrypt(msgspec.Struct, frozen=True):
    salt: bytes
    hash: bytes
    n: int = _SCRYPT_N  # Stored per user, so that the cost can be raised for new passwords.
    r: int = _SCRYPT_R
    p: int = _SCRYPT_P

    def hashed(self, password: str) -> bytes:
        return hashlib.scrypt(
            password.encode(),
            salt=self.salt,
            n=self.n,
            r=self.r,
            p=self.p,
            maxmem=_SCRYPT_MEMORY_BYTES_MAX,
        )


@dataclass(frozen=True, slots=True)
class User:
    name: str
    scrypt: Scrypt | None = field(default=None, repr=False)
    # In the order in which they were set. Without a scrypt hash, a password in clear is checked
    # against the last one.
    verifiers: Mapping[Mechanism, Verifier] = field(default_factory=dict, repr=False)

    def with_verifier(self, mechanism: Mechanism, verifier: Verifier) -> User:
        """Return the user with this verifier, and without the scrypt hash, which may be that of
        another password."""
        others = {each: kept for each, kept in self.verifiers.items() if each is not mechanism}
        return replace(self, scrypt=None, verifiers={**others, mechanism: verifier})

    def without_verifier(self, mechanism: Mechanism) -> User | None:
        """Return the user without this verifier. None means: it was the last one, so the user is
        to be deleted."""
        others = {each: kept for each, kept in self.verifiers.items() if each is not mechanism}
        return replace(self, verifiers=others) if others else None

    def check(self) -> tuple[Callable[[str], bytes], bytes]:
        """Return a function that hashes a password sent in clear, and the expected hash."""
        if self.scrypt is not None:
            return self.scrypt.hashed, self.scrypt.hash
        mechanism, kept = list(self.verifiers.items())[-1]

        def stored_key(password: str) -> bytes:
            salted = scram.salted_password(mechanism, password, kept.salt, kept.iterations)
            return scram.verifier(mechanism, salted, kept.salt, kept.iterations).stored_key

        return stored_key, kept.stored_key


class _VerifierValue(msgspec.Struct):
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


class _UserValue(msgspec.Struct):
    scrypt: Scrypt | None
    scram: dict[str, _VerifierValue]


class Users:
    def __init__(self, entropy: Entropy, worker: Worker = in_place) -> None:
        self._entropy = entropy
        self._worker = worker
        self._users: dict[str, User] = {}
        self.keys = AccessKeys()
        self._key = entropy.token(32)  # For hashes in memory only; new in each process.
        self._proven: dict[str, bytes] = {}  # Keyed hashes of passwords that were right.

    def apply(self, name: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        self._proven.pop(name, None)
        if value is None:
            self._users.pop(name, None)
            self.keys.user_deleted(name)
            return
        found = msgspec.json.decode(value, type=_UserValue)
        verifiers = {
            Mechanism(mechanism): Verifier(v.salt, v.iterations, v.stored_key, v.server_key)
            for mechanism, v in found.scram.items()
        }
        self._users[name] = User(name, found.scrypt, verifiers)

    # --- finding

    def __len__(self) -> int:
        return len(self._users)

    def names(self) -> list[str]:
        return sorted(self._users)

    def get(self, name: str) -> User | None:
        return self._users.get(name)

    # --- checking

    async def knows(self, name: str, password: str) -> bool:
        """Return whether this is the user's password."""
        token = hmac.digest(self._key, password.encode(), "sha256")
        if hmac.compare_digest(token, self._proven.get(name, b"")):
            return True
        user = self._users.get(name)
        hashed, expected = (user or self._nobody()).check()
        is_right = hmac.compare_digest(await self._worker(lambda: hashed(password)), expected)
        if not is_right or user is None or self._users.get(name) is not user:
            return False
        self._proven[name] = token
        return True

    def verifier(self, name: str, mechanism: Mechanism) -> Verifier:
        """Return the user's verifier. For an unknown name, return one that no password matches."""
        user = self._users.get(name)
        kept = user.verifiers.get(mechanism) if user is not None else None
        if kept is not None:
            return kept
        # Derived from the name, so that a client which asks twice sees no difference to a user.
        made_up = hmac.digest(self._key, name.encode(), mechanism.hash)
        return Verifier(made_up[:SALT_BYTES], limits.SCRAM_ITERATIONS, made_up, made_up)

    def nonce(self) -> str:
        return b64encode(self._entropy.token(NONCE_BYTES)).decode()

    def _nobody(self) -> User:
        return User("", Scrypt(self._key[:SALT_BYTES], bytes(64)))

    # --- making

    def new_key(self, name: str) -> AccessKey:
        """Make an access key of a user. Raises InvalidName if there is no such user."""
        if name not in self._users:
            raise InvalidName(f"there is no user {name}")
        return self.keys.new(name, self._entropy)

    async def with_password(self, name: str, password: str) -> User:
        """Make a user with the scrypt hash and both SCRAM verifiers of a password."""
        check_user_name(name)
        salts = {mechanism: self._entropy.token(SALT_BYTES) for mechanism in Mechanism}
        empty = Scrypt(self._entropy.token(SALT_BYTES), b"")

        def make() -> User:
            verifiers = {}
            for mechanism, salt in salts.items():
                iterations = limits.SCRAM_ITERATIONS
                salted = scram.salted_password(mechanism, password, salt, iterations)
                verifiers[mechanism] = scram.verifier(mechanism, salted, salt, iterations)
            scrypt = msgspec.structs.replace(empty, hash=empty.hashed(password))
            return User(name, scrypt, verifiers)

        return await self._worker(make)


def check_user_name(name: str) -> None:
    """Raise InvalidName unless the name is legal for a user."""
    if name == NODE:
        raise InvalidName(f"{NODE} is the name of the nodes of a cluster")
    if not 0 < len(name) <= limits.USER_NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidName(
            f"a user's name has 1 to {limits.USER_NAME_CHARACTERS_MAX} printable characters"
        )


def user_record(user: User) -> Record:
    verifiers = {
        mechanism.value: _VerifierValue(v.salt, v.iterations, v.stored_key, v.server_key)
        for mechanism, v in user.verifiers.items()
    }
    value = msgspec.json.encode(_UserValue(user.scrypt, verifiers))
    return Record(f"user:{user.name}".encode(), value)


def user_deleted_record(name: str) -> Record:
    return Record(f"user:{name}".encode(), None)
