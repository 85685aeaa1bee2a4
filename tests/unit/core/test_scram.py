"""SCRAM's arithmetic against RFC 7677's example, and both sides against each other."""

from base64 import b64decode, b64encode

import pytest

from entrepot.core import scram
from entrepot.core.scram import Mechanism

# RFC 7677, section 3: user "user", password "pencil".
SALT = b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
EXCHANGED = (
    b"n=user,r=rOprNGfwEbeRWgbNEkqO,"
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,"
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
)


def test_the_example_of_the_rfc() -> None:
    salted = scram.salted_password(Mechanism.SHA_256, "pencil", SALT, 4096)
    kept = scram.verifier(Mechanism.SHA_256, salted, SALT, 4096)
    proof = scram.client_proof(Mechanism.SHA_256, salted, EXCHANGED)
    signature = scram.server_signature(Mechanism.SHA_256, kept.server_key, EXCHANGED)
    assert b64encode(proof) == b"dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    assert b64encode(signature) == b"6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert scram.proves(Mechanism.SHA_256, kept, EXCHANGED, proof)


@pytest.mark.parametrize("mechanism", Mechanism)
def test_only_the_password_proves(mechanism: Mechanism) -> None:
    kept = scram.verifier(
        mechanism, scram.salted_password(mechanism, "right", SALT, 4096), SALT, 4096
    )
    for password, is_right in (("right", True), ("wrong", False), ("", False)):
        salted = scram.salted_password(mechanism, password, SALT, 4096)
        proof = scram.client_proof(mechanism, salted, EXCHANGED)
        assert scram.proves(mechanism, kept, EXCHANGED, proof) is is_right
        assert not scram.proves(mechanism, kept, EXCHANGED + b"x", proof)
        assert not scram.proves(mechanism, kept, EXCHANGED, proof[:-1])
        assert not scram.proves(mechanism, kept, EXCHANGED, b"")


def test_a_verifier_does_not_print_itself() -> None:
    kept = scram.verifier(Mechanism.SHA_256, bytes(32), SALT, 4096)
    assert "key" not in repr(kept)
