"""PLAIN and SCRAM as messages: RFC 7677's example, both sides together, and hostile ones."""

from base64 import b64encode

import pytest

from entrepot.core import scram
from entrepot.core.scram import Mechanism
from entrepot.wire.sasl import SaslError, ScramClient, ScramServer, plain_token, read_plain

SALT = bytes(range(16))


def kept(password: str, mechanism: Mechanism = Mechanism.SHA_256) -> scram.Verifier:
    salted = scram.salted_password(mechanism, password, SALT, 4096)
    return scram.verifier(mechanism, salted, SALT, 4096)


def finish(server: ScramServer, verifier: scram.Verifier, answer: bytes) -> bytes:
    """The server's last message to a client whose proof is right."""
    exchanged, proof = server.proof(answer)
    mechanism = Mechanism.SHA_256 if len(proof) == 32 else Mechanism.SHA_512
    assert scram.proves(mechanism, verifier, exchanged, proof)
    return server.signature(exchanged)


def test_plain() -> None:
    assert read_plain(plain_token("ana", "pass word")) == ("ana", "pass word")
    assert read_plain(b"ana\0ana\0x") == ("ana", "x")


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"ana",
        b"\0ana",
        b"\0\0password",
        b"\0ana\0",
        b"\0ana\0pass\0word",
        b"bob\0ana\0password",
        b"\0\xff\0password",
    ],
)
def test_what_is_not_plain(token: bytes) -> None:
    with pytest.raises(SaslError):
        read_plain(token)


def test_the_example_of_the_rfc() -> None:
    """RFC 7677, section 3."""
    client = ScramClient(Mechanism.SHA_256, "user", "pencil", "rOprNGfwEbeRWgbNEkqO")
    server = ScramServer(Mechanism.SHA_256, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    salt = b"[m\x99h\x9d\x125\x8e\xec\xa0K\x14\x126\xfa\x81"
    salted = scram.salted_password(Mechanism.SHA_256, "pencil", salt, 4096)
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert server.first(client.first()) == "user"
    verifier = scram.verifier(Mechanism.SHA_256, salted, salt, 4096)
    challenge = server.challenge(verifier)
    assert challenge == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    answer = client.answer(challenge)
    assert answer == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    final = finish(server, verifier, answer)
    assert final == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    client.check(final)


@pytest.mark.parametrize("mechanism", Mechanism)
@pytest.mark.parametrize("user", ["ana", "a=b,c", "=2C", "zoë", "=" * 3 + ","])
def test_both_sides_agree(mechanism: Mechanism, user: str) -> None:
    client = ScramClient(mechanism, user, "s,e=cret", "client")
    server = ScramServer(mechanism, "server")
    assert server.first(client.first()) == user
    verifier = kept("s,e=cret", mechanism)
    client.check(finish(server, verifier, client.answer(server.challenge(verifier))))


def test_librdkafka_says_its_nonce_twice() -> None:
    """As it did before 2.6.1; Kafka 3 takes it, too."""
    client = ScramClient(Mechanism.SHA_256, "ana", "right", "client")
    server = ScramServer(Mechanism.SHA_256, "server")
    server.first(client.first())
    challenge = server.challenge(kept("right"))
    without_proof = b"c=biws,r=clientclientserver"
    exchanged = client.first()[3:] + b"," + challenge + b"," + without_proof
    salted = scram.salted_password(Mechanism.SHA_256, "right", SALT, 4096)
    proof = b64encode(scram.client_proof(Mechanism.SHA_256, salted, exchanged))
    assert finish(server, kept("right"), without_proof + b",p=" + proof).startswith(b"v=")


def test_a_wrong_password_proves_nothing() -> None:
    client = ScramClient(Mechanism.SHA_256, "ana", "wrong", "client")
    server = ScramServer(Mechanism.SHA_256, "server")
    server.first(client.first())
    answer = client.answer(server.challenge(kept("right")))
    assert not scram.proves(Mechanism.SHA_256, kept("right"), *server.proof(answer))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "channel binding"),
        (b"n", "channel binding"),
        (b"n,", "channel binding"),
        (b"p=tls-unique,,n=ana,r=x", "channel binding"),
        (b"p=tls-exporter,,n=ana,r=x", "channel binding"),
        (b"x,,n=ana,r=x", "channel binding"),
        (b"n,,", "not a SCRAM message"),
        (b"n,,n=ana", "not a SCRAM message"),
        (b"n,,r=x,n=ana", "not a SCRAM message"),
        (b"n,,m=must,n=ana,r=x", "not a SCRAM message"),
        (b"n,,n=,r=x", "without a user"),
        (b"n,,n=ana,r=", "without a user"),
        (b"n,,n=a=b,r=x", "equals sign"),
        (b"n,,n=a=,r=x", "equals sign"),
        (b"n,a=bob,n=ana,r=x", "somebody else"),
        (b"n,,n=\xff,r=x", "UTF-8"),
    ],
)
def test_a_first_message_that_is_none(message: bytes, problem: str) -> None:
    with pytest.raises(SaslError, match=problem):
        ScramServer(Mechanism.SHA_256, "server").first(message)


@pytest.mark.parametrize(
    "first", [b"y,,n=ana,r=x", b"n,a=ana,n=ana,r=x", b"n,,n=ana,r=x,tokenauth=true"]
)
def test_a_first_message_that_is_unusual(first: bytes) -> None:
    server = ScramServer(Mechanism.SHA_256, "server")
    assert server.first(first) == "ana"
    assert server.challenge(kept("right")).startswith(b"r=xserver,")


PROOF = b64encode(bytes(32))


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (b"", "not a SCRAM message"),
        (b"c=biws,r=xserver", "not a SCRAM message"),
        (b"r=xserver,c=biws,p=" + PROOF, "not a SCRAM message"),
        (b"c=biws,r=x,p=" + PROOF, "nonce"),
        (b"c=biws,r=server,p=" + PROOF, "nonce"),
        (b"c=biws,r=xserverx,p=" + PROOF, "nonce"),
        (b"c=" + b64encode(b"y,,") + b",r=xserver,p=" + PROOF, "channel binding"),
        (b"c=" + b64encode(b"p=tls-unique,,") + b",r=xserver,p=" + PROOF, "channel binding"),
        (b"c=biws,r=xserver,p=*", "base64"),
        (b"c=*,r=xserver,p=" + PROOF, "base64"),
        (b"c=biws,r=xserver,p=" + PROOF + b",p=" + PROOF, "not a SCRAM message"),
    ],
)
def test_a_last_message_that_is_none(message: bytes, problem: str) -> None:
    server = ScramServer(Mechanism.SHA_256, "server")
    server.first(b"n,,n=ana,r=x")
    server.challenge(kept("right"))
    with pytest.raises(SaslError, match=problem):
        server.proof(message)


@pytest.mark.parametrize("proof", [PROOF, b"AAAA", b""])
def test_a_last_message_with_a_proof_of_nothing(proof: bytes) -> None:
    server = ScramServer(Mechanism.SHA_256, "server")
    server.first(b"n,,n=ana,r=x")
    server.challenge(kept("right"))
    found = server.proof(b"c=biws,r=xserver,p=" + proof)
    assert not scram.proves(Mechanism.SHA_256, kept("right"), *found)


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"r=client,s=AAAA,i=4096", "nonce"),
        (b"r=other,s=AAAA,i=4096", "nonce"),
        (b"r=clientserver,s=AAAA,i=1", "iterations"),
        (b"r=clientserver,s=AAAA,i=99999999", "iterations"),
        (b"r=clientserver,s=AAAA,i=" + b"9" * 30, "not a number"),
        (b"r=clientserver,s=AAAA,i=x", "not a number"),
        (b"r=clientserver,s=*,i=4096", "base64"),
        (b"e=unknown-user", "not a SCRAM message"),
    ],
)
def test_a_server_that_is_hostile(challenge: bytes, problem: str) -> None:
    client = ScramClient(Mechanism.SHA_256, "ana", "right", "client")
    with pytest.raises(SaslError, match=problem):
        client.answer(challenge)


@pytest.mark.parametrize("final", [b"", b"v=", b"v=AAAA", b"e=no", b"v=" + b64encode(bytes(32))])
def test_a_server_that_does_not_know_the_password(final: bytes) -> None:
    client = ScramClient(Mechanism.SHA_256, "ana", "right", "client")
    with pytest.raises(SaslError):
        client.check(final)
    client.answer(b"r=clientserver,s=AAAA,i=4096")
    with pytest.raises(SaslError):
        client.check(final)
