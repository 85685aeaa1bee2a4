"""SASL's mechanisms as messages: PLAIN (RFC 4616) and SCRAM (RFC 5802), both sides.

An exchange takes what the peer said and gives what to say next; it never waits. Where
the server needs to know something of a user, it is asked in between. There is no
channel binding: a client that insists on it is refused, one that could have done it
("y") is served, as the RFC asks of a server that never offered it.
"""

import hmac
from base64 import b64decode, b64encode
from typing import NamedTuple

from entrepot.core import scram
from entrepot.core.errors import PeerError
from entrepot.core.limits import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from entrepot.core.scram import Mechanism, Verifier

PLAIN = "PLAIN"
MECHANISMS = (PLAIN, *(mechanism.value for mechanism in Mechanism))


class SaslError(PeerError):
    """Not the mechanism's message, or not the right secret."""


class Plain(NamedTuple):
    user: str
    password: str


def plain_token(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def read_plain(token: bytes) -> Plain:
    """Raises SaslError. Acting for somebody else is not served."""
    parts = _text(token).split("\0")
    if len(parts) != 3:
        raise SaslError(f"PLAIN has 3 parts, not {len(parts)}")
    acts_for, user, password = parts
    if not user or not password:
        raise SaslError("PLAIN without a user or without a password")
    if acts_for not in ("", user):
        raise SaslError("PLAIN on behalf of somebody else")
    return Plain(user, password)


class Proof(NamedTuple):
    exchanged: bytes  # What it is a proof over.
    proof: bytes


class ScramServer:
    """One login: `first`, `challenge` with what is kept of that user, `proof`, `signature`."""

    def __init__(self, mechanism: Mechanism, nonce: str) -> None:
        self._mechanism = mechanism
        self._nonce = nonce  # Ours; from `first` on, the client's before it.
        self._header = ""  # The client's word on channel binding, repeated in its last message.
        self._exchanged = ""  # All that is signed: so far, the messages without their headers.
        self._verifier: Verifier | None = None

    def first(self, message: bytes) -> str:
        """Who wants to log in. Raises SaslError."""
        text = _text(message)
        binding, comma, rest = text.partition(",")
        acts_for, second_comma, bare = rest.partition(",")
        if binding not in ("n", "y") or not comma or not second_comma:
            raise SaslError("SCRAM begins with n,, or y,,: there is no channel binding")
        attributes = _attributes(bare, "nr")
        user = _user(attributes["n"])
        if not user or not attributes["r"]:
            raise SaslError("SCRAM without a user or without a nonce")
        if acts_for and acts_for != f"a={attributes['n']}":
            raise SaslError("SCRAM on behalf of somebody else")
        self._header = f"{binding},{acts_for},"
        self._nonce = attributes["r"] + self._nonce
        self._exchanged = bare
        return user

    def challenge(self, kept: Verifier) -> bytes:
        self._verifier = kept
        salt = b64encode(kept.salt).decode()
        message = f"r={self._nonce},s={salt},i={kept.iterations}"
        self._exchanged += f",{message}"
        return message.encode()

    def proof(self, message: bytes) -> Proof:
        """Read the client's proof, which somebody else has to check. Raises SaslError."""
        text = _text(message)
        attributes = _attributes(text, "crp")
        without_proof, _, _ = text.rpartition(",p=")
        exchanged = f"{self._exchanged},{without_proof}".encode()
        if _decoded(attributes["c"]) != self._header.encode():
            raise SaslError("SCRAM ends with another channel binding than it began with")
        # At its end: librdkafka before 2.6.1 says its own part twice, and Kafka 3 lets it.
        if not attributes["r"].endswith(self._nonce):
            raise SaslError("SCRAM with another nonce than ours")
        return Proof(exchanged, _decoded(attributes["p"]))

    def signature(self, exchanged: bytes) -> bytes:
        """Make the last message, for a client whose proof was right: a proof of ours."""
        assert self._verifier is not None
        signature = scram.server_signature(self._mechanism, self._verifier.server_key, exchanged)
        return b"v=" + b64encode(signature)


class ScramClient:
    """The other side: `first`, then `answer` the challenge, then `check` the server."""

    def __init__(self, mechanism: Mechanism, user: str, password: str, nonce: str) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._exchanged = f"n={name},r={nonce}"
        self._signature = b""  # What the server has to show.

    def first(self) -> bytes:
        return f"n,,{self._exchanged}".encode()

    def answer(self, challenge: bytes) -> bytes:
        """Raises SaslError for a challenge that is none, or not to this login."""
        text = _text(challenge)
        attributes = _attributes(text, "rsi")
        nonce, salt, count = attributes["r"], _decoded(attributes["s"]), attributes["i"]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce):
            raise SaslError("the server's nonce does not continue ours")
        if not count.isdecimal() or len(count) > 9:
            raise SaslError("the server's iteration count is not a number")
        iterations = int(count)
        if not SCRAM_ITERATIONS_MIN <= iterations <= SCRAM_ITERATIONS_MAX:
            raise SaslError(f"the server asks for {iterations} iterations")
        salted = scram.salted_password(self._mechanism, self._password, salt, iterations)
        without_proof = f"c={b64encode(b'n,,').decode()},r={nonce}"
        exchanged = f"{self._exchanged},{text},{without_proof}".encode()
        kept = scram.verifier(self._mechanism, salted, salt, iterations)
        self._signature = scram.server_signature(self._mechanism, kept.server_key, exchanged)
        proof = b64encode(scram.client_proof(self._mechanism, salted, exchanged)).decode()
        return f"{without_proof},p={proof}".encode()

    def check(self, message: bytes) -> None:
        """Raises SaslError when the server does not know the password either."""
        signature = _decoded(_attributes(_text(message), "v")["v"])
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise SaslError("the server does not know the password")


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise SaslError("not UTF-8") from None


def _attributes(message: str, wanted: str) -> dict[str, str]:
    """The wanted attributes, in their order; extensions may stand before the last one."""
    parts = message.split(",")
    leading, last = wanted[:-1], wanted[-1]
    found = {
        name: part[2:]
        for name, part in zip(leading, parts, strict=False)
        if part.startswith(f"{name}=")
    }
    rest = [part[2:] for part in parts[len(leading) :] if part.startswith(f"{last}=")]
    if len(found) != len(leading) or len(rest) != 1:
        raise SaslError(f"not a SCRAM message with {','.join(wanted)}")
    return found | {last: rest[0]}


def _user(name: str) -> str:
    """A comma and an equals sign are written in other words."""
    pieces = name.split("=")
    if any(piece[:2] not in ("2C", "3D") for piece in pieces[1:]):
        raise SaslError("a user's name with an equals sign")
    signs = {"2C": ",", "3D": "="}
    return pieces[0] + "".join(signs[piece[:2]] + piece[2:] for piece in pieces[1:])


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise SaslError("not base64") from None
