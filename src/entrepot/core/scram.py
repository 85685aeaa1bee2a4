"""The computations of SCRAM (RFC 5802, RFC 7677): password verifiers and proofs.

A verifier lets a server check that a peer knows the password, and lets the peer check that the
server has the verifier. The password can be found from it only by guessing, and each guess
costs `iterations` hashes.
"""

import hashlib
import hmac
from dataclasses import dataclass
from enum import Enum


class Mechanism(Enum):
    """SCRAM's mechanisms, by their SASL names."""

    SHA_256 = "SCRAM-SHA-256"
    SHA_512 = "SCRAM-SHA-512"

    @property
    def hash(self) -> str:
        return "sha256" if self is Mechanism.SHA_256 else "sha512"

    @property
    def hash_bytes(self) -> int:
        return 32 if self is Mechanism.SHA_256 else 64


@dataclass(frozen=True, slots=True, repr=False)
class Verifier:
    """What a server stores of a password. It is secret: whoever has it can pose as the server."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def salted_password(mechanism: Mechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash a password, which is slow on purpose. Whoever has the result can log in."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def verifier(mechanism: Mechanism, salted: bytes, salt: bytes, iterations: int) -> Verifier:
    stored_key = hashlib.new(mechanism.hash, _client_key(mechanism, salted)).digest()
    server_key = hmac.digest(salted, b"Server Key", mechanism.hash)
    return Verifier(salt, iterations, stored_key, server_key)


def client_proof(mechanism: Mechanism, salted: bytes, exchanged: bytes) -> bytes:
    """Return the client's proof that it knows the password; `exchanged` is all messages before
    it."""
    key = _client_key(mechanism, salted)
    stored_key = hashlib.new(mechanism.hash, key).digest()
    return _xor(key, hmac.digest(stored_key, exchanged, mechanism.hash))


def proves(mechanism: Mechanism, kept: Verifier, exchanged: bytes, proof: bytes) -> bool:
    """Return whether the proof is right, in the same time for a wrong one."""
    if len(proof) != mechanism.hash_bytes:
        return False
    key = _xor(proof, hmac.digest(kept.stored_key, exchanged, mechanism.hash))
    stored_key = hashlib.new(mechanism.hash, key).digest()
    return hmac.compare_digest(stored_key, kept.stored_key)


def server_signature(mechanism: Mechanism, server_key: bytes, exchanged: bytes) -> bytes:
    """Return the server's proof that it has the verifier."""
    return hmac.digest(server_key, exchanged, mechanism.hash)


def _client_key(mechanism: Mechanism, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", mechanism.hash)


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
