"""Who is let in: one table for every protocol, when a failure is answered, and what it says."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from entrepot.broker.access import ANONYMOUS, Access, AccessSettings, Principal
from entrepot.broker.acls import Acls
from entrepot.broker.login import (
    NODE,
    LoginPolicy,
    LoginRefused,
    Origin,
    host_of,
    is_loopback,
)
from entrepot.broker.permissions import Permissions
from entrepot.broker.users import User, Users, user_deleted_record, user_record
from entrepot.core import limits, scram
from entrepot.core.record import Record
from entrepot.core.scram import Mechanism
from sim import loop
from sim.entropy import SimEntropy

HERE, THERE = Origin("127.0.0.1", "PLAIN"), Origin("192.0.2.1", "PLAIN")
REBOUND = Origin("127.0.0.1", "Basic", is_addressed_here=False)
EXCHANGED = b"what was said"

Attempt = Callable[[LoginPolicy, Users], Awaitable[Principal]]


def fold(users: Users, record: Record) -> None:
    users.apply((record.key or b"").decode().removeprefix("user:"), record.value)


def run(attempt: Attempt, **options: Any) -> Principal | str:
    """Who is let in, or what the log is told of it; ana's password is `right`."""

    async def main(sim: loop.SimLoop) -> Principal | str:
        users = Users(SimEntropy(sim.random("entropy")))
        fold(users, user_record(await users.with_password("ana", "right")))
        access = Access(AccessSettings(), Acls(), Permissions())
        policy = LoginPolicy(users, access, **options)
        begun = asyncio.get_running_loop().time()
        try:
            return await attempt(policy, users)
        except LoginRefused as refused:
            took = asyncio.get_running_loop().time() - begun
            assert took == pytest.approx(limits.LOGIN_FAILURE_MS / 1_000)
            return str(refused)

    found: Any = loop.run(0, main)
    assert isinstance(found, Principal | str)
    return found


def by_password(user: str, password: str, origin: Origin) -> Attempt:
    return lambda policy, users: policy.by_password(user, password, origin)


@pytest.mark.parametrize(
    ("asks_users", "is_open", "user", "password", "origin", "is_in"),
    [
        (True, False, "ana", "right", HERE, True),
        (True, False, "ana", "right", THERE, True),
        (True, False, "ana", "right", REBOUND, True),
        (True, False, "ana", "guessed", HERE, False),
        (True, False, "ana", "", HERE, False),
        (True, False, "ben", "right", HERE, False),
        (True, False, "", "", HERE, False),
        (True, False, "guest", "guest", HERE, False),
        (True, True, "guest", "guest", HERE, False),
        (True, True, "ana", "guessed", HERE, False),
        (False, False, "guest", "guest", HERE, True),
        (False, False, "guest", "guest", Origin("::1", "PLAIN"), True),
        (False, False, "guest", "guest", Origin("somewhere", "PLAIN"), False),
        (False, False, "guest", "guest", THERE, False),
        (False, False, "guest", "guest", REBOUND, False),
        (False, False, "guest", "other", HERE, False),
        (False, False, "ana", "right", HERE, False),
        (False, True, "guest", "guest", THERE, True),
        (False, True, "guest", "guest", REBOUND, True),
        (False, True, "guest", "other", HERE, False),
    ],
)
def test_a_password(
    asks_users: bool, is_open: bool, user: str, password: str, origin: Origin, is_in: bool
) -> None:
    found = run(by_password(user, password, origin), asks_users=asks_users, is_open=is_open)
    if is_in:
        assert isinstance(found, Principal)
        assert (found.user, found.host) == (user, origin.host)
    else:
        assert str(found).startswith(f"login of {user!r} with {origin.mechanism} failed: ")
        assert password in ("", user) or password not in str(found)


def test_an_empty_password_is_nobodys_even_if_it_was_set() -> None:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        fold(users, user_record(await users.with_password("ana", "")))
        return await policy.by_password("ana", "", HERE)

    assert run(attempt, asks_users=True) == (
        "login of 'ana' with PLAIN failed: wrong user or password"
    )


def test_a_long_name_does_not_fill_the_log() -> None:
    assert len(str(run(by_password("x" * 10_000, "y", HERE), asks_users=True))) < 200


def proof_of(users: Users, user: str, password: str, mechanism: Mechanism) -> bytes:
    kept = users.verifier(user, mechanism)
    salted = scram.salted_password(mechanism, password, kept.salt, kept.iterations)
    return scram.client_proof(mechanism, salted, EXCHANGED)


def by_proof(
    user: str,
    password: str,
    mechanism: Mechanism = Mechanism.SHA_256,
    between: Callable[[Users], None] = lambda users: None,
) -> Attempt:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        challenge = policy.challenge(user, mechanism)
        proof = proof_of(users, user, password, mechanism)
        between(users)
        origin = Origin("192.0.2.1", mechanism.value)
        return await policy.by_proof(challenge, EXCHANGED, proof, origin)

    return attempt


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_proof(mechanism: Mechanism) -> None:
    found = run(by_proof("ana", "right", mechanism), asks_users=True)
    assert isinstance(found, Principal)
    assert (found.user, found.host) == ("ana", "192.0.2.1")
    text = f"with {mechanism.value} failed: wrong user or password"
    assert run(by_proof("ana", "wrong", mechanism), asks_users=True) == f"login of 'ana' {text}"
    assert run(by_proof("ben", "right", mechanism), asks_users=True) == f"login of 'ben' {text}"


def _change(users: Users) -> None:
    kept = users.get("ana")
    assert kept is not None
    verifier = users.verifier("somebody else", Mechanism.SHA_256)
    changed: User = kept.with_verifier(Mechanism.SHA_256, verifier)
    fold(users, user_record(changed))


@pytest.mark.parametrize(
    "between", [_change, lambda users: fold(users, user_deleted_record("ana"))]
)
def test_a_proof_of_what_was_the_password_at_the_challenge(
    between: Callable[[Users], None],
) -> None:
    found = run(by_proof("ana", "right", between=between), asks_users=True)
    assert str(found).endswith("wrong user or password")


def test_what_is_no_attempt_is_refused_as_late() -> None:
    found = run(lambda policy, users: policy.refuse("ana", "not base64", HERE), asks_users=True)
    assert found == "login of 'ana' with PLAIN failed: not base64"


def test_a_certificate() -> None:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        return policy.by_certificate("CN=ana", THERE)

    for asks_users in (False, True):
        found = run(attempt, asks_users=asks_users)
        assert isinstance(found, Principal)
        assert (found.user, found.host) == ("CN=ana", THERE.host)


@pytest.mark.parametrize(("subject", "user"), [(None, ANONYMOUS), ("CN=ana", "CN=ana")])
def test_who_is_not_asked(subject: str | None, user: str) -> None:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        return policy.identify(subject, "192.0.2.1")

    found = run(attempt)
    assert isinstance(found, Principal)
    assert (found.user, found.host) == (user, "192.0.2.1")


@pytest.mark.parametrize(("asks_users", "guest"), [(False, "guest"), (True, None)])
def test_there_is_a_guest_where_nobody_is_asked(asks_users: bool, guest: str | None) -> None:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        assert policy.guest == guest
        return policy.identify(None, "")

    run(attempt, asks_users=asks_users)


def test_addresses() -> None:
    peers = ["127.0.0.1:5672", "[::1]:5672", "host:1"]
    assert [host_of(peer) for peer in peers] == ["127.0.0.1", "::1", "host"]
    assert [is_loopback(host_of(peer)) for peer in peers] == [True, True, False]


@pytest.mark.parametrize(
    ("secret", "said", "is_in"),
    [("the secret", "the secret", True), ("the secret", "another", False), ("", "", False)],
)
def test_another_node_of_the_cluster(secret: str, said: str, is_in: bool) -> None:
    async def attempt(policy: LoginPolicy, users: Users) -> Principal:
        challenge = policy.challenge(NODE, Mechanism.SHA_512)
        kept = challenge.verifier
        salted = scram.salted_password(Mechanism.SHA_512, said, kept.salt, kept.iterations)
        proof = scram.client_proof(Mechanism.SHA_512, salted, EXCHANGED)
        return await policy.by_proof(challenge, EXCHANGED, proof, THERE)

    found = run(attempt, secret=secret)
    assert (getattr(found, "user", None) == NODE) is is_in
    assert isinstance(run(by_password(NODE, secret, THERE), secret=secret), str), "by SCRAM only"
