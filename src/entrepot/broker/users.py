"""Who there is: names, and what is kept of their passwords.

Of a password, three things are kept, none of which gives it back: a salted scrypt hash,
for protocols that send the password itself, and a SCRAM verifier for each of its two
mechanisms, which never do. A user made with one of Kafka's tools has only the verifier
that the tool computed; a password sent in clear is then checked against that.

A wrong password and a name that nobody has cost the same work and get the same answer.
Hashing is slow on purpose, so it is done by a worker, outside of the loop. A password
that was right is remembered as a keyed hash, in memory only, until the user changes:
a client that comes back is not made to wait again. Passwords are never logged.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import msgspec

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
    n: int = _SCRYPT_N  # Kept, so that they may be raised for those who come later.
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
    # The one that was set last is last: it is what a password sent in clear is checked against.
    verifiers: Mapping[Mechanism, Verifier] = field(default_factory=dict, repr=False)

    def with_verifier(self, mechanism: Mechanism, verifier: Verifier) -> User:
        """The scrypt hash goes: it may be of another password."""
        others = {each: kept for each, kept in self.verifiers.items() if each is not mechanism}
        return replace(self, scrypt=None, verifiers={**others, mechanism: verifier})

    def without_verifier(self, mechanism: Mechanism) -> User | None:
        """None when it was the last: the user is gone, whatever else is kept."""
        others = {each: kept for each, kept in self.verifiers.items() if each is not mechanism}
        return replace(self, verifiers=others) if others else None

    def check(self) -> tuple[Callable[[str], bytes], bytes]:
        """What to do with a password sent in clear, and what must come of it."""
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
        self._key = entropy.token(32)  # Of this process: for what is only kept in memory.
        self._proven: dict[str, bytes] = {}  # Keyed hashes of passwords that were right.

    def apply(self, name: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        self._proven.pop(name, None)
        if value is None:
            self._users.pop(name, None)
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
        """Whether this is the user's password."""
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
        """What to challenge with; for a name that nobody has, what nobody can meet."""
        user = self._users.get(name)
        kept = user.verifiers.get(mechanism) if user is not None else None
        if kept is not None:
            return kept
        # Always the same for a name, as a real one is.
        made_up = hmac.digest(self._key, name.encode(), mechanism.hash)
        return Verifier(made_up[:SALT_BYTES], limits.SCRAM_ITERATIONS, made_up, made_up)

    def nonce(self) -> str:
        return b64encode(self._entropy.token(NONCE_BYTES)).decode()

    def _nobody(self) -> User:
        return User("", Scrypt(self._key[:SALT_BYTES], bytes(64)))

    # --- making

    async def with_password(self, name: str, password: str) -> User:
        """A user with everything that can be kept of a password."""
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
