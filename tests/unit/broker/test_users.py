"""Passwords: who is let in, what is kept, what a guess costs, and what survives."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

import pytest

from entrepot.broker.users import User, Users, user_deleted_record, user_record
from entrepot.core import scram
from entrepot.core.errors import InvalidName
from entrepot.core.record import Record
from entrepot.core.scram import Mechanism, Verifier
from sim.entropy import SimEntropy
from tests.unit.gateway.kafka.node import Node, on_node

T = TypeVar("T")


class Counted:
    """A worker that counts what it is given, and lets something happen meanwhile."""

    def __init__(self) -> None:
        self.times = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def __call__(self, work: Callable[[], T], /) -> T:
        self.times += 1
        result = work()
        self.meanwhile()
        return result


def fold(users: Users, record: Record) -> None:
    assert record.key is not None
    users.apply(record.key.decode().removeprefix("user:"), record.value)


def scram_only(name: str, mechanism: Mechanism, password: str) -> User:
    """As Kafka's tools make them."""
    return User(name).with_verifier(mechanism, verifier(mechanism, password))


def verifier(mechanism: Mechanism, password: str) -> Verifier:
    salted = scram.salted_password(mechanism, password, b"salt", 4096)
    return scram.verifier(mechanism, salted, b"salt", 4096)


@pytest.fixture
def worker() -> Counted:
    return Counted()


@pytest.fixture(scope="module")
def ana() -> User:
    return asyncio.run(Users(SimEntropy(Random(0))).with_password("ana", "right"))


@pytest.fixture
def users(worker: Counted, ana: User) -> Users:
    users = Users(SimEntropy(Random(0)), worker)
    fold(users, user_record(ana))
    return users


def knows(users: Users, name: str, password: str) -> bool:
    return asyncio.run(users.knows(name, password))


@pytest.mark.parametrize(
    ("name", "password", "is_right"),
    [
        ("ana", "right", True),
        ("ana", "wrong", False),
        ("ana", "", False),
        ("ana", "right ", False),
        ("bob", "right", False),
        ("", "right", False),
    ],
)
def test_a_password(users: Users, name: str, password: str, is_right: bool) -> None:
    assert knows(users, name, password) is is_right


def test_a_name_that_nobody_has_costs_as_much(users: Users, worker: Counted) -> None:
    hashed: list[Any] = []
    ana = users.get("ana")
    assert ana is not None
    for name in ("ana", "bob"):
        before = worker.times
        assert not knows(users, name, "wrong")
        assert worker.times == before + 1
        check, expected = (users.get(name) or users._nobody()).check()
        hashed.append((len(check("wrong")), len(expected), type(check.__self__)))  # type: ignore[attr-defined]
    assert hashed[0] == hashed[1]


def test_a_password_that_was_right_is_not_hashed_again(users: Users, worker: Counted) -> None:
    assert knows(users, "ana", "right")
    assert knows(users, "ana", "right")
    assert worker.times == 1
    assert not knows(users, "ana", "wrong")
    assert worker.times == 2
    assert "right" not in repr(vars(users))


def test_a_new_password_counts_at_once(users: Users) -> None:
    assert knows(users, "ana", "right")
    fold(users, user_record(asyncio.run(users.with_password("ana", "other"))))
    assert not knows(users, "ana", "right")
    assert knows(users, "ana", "other")
    fold(users, user_deleted_record("ana"))
    assert not knows(users, "ana", "other")


def test_a_password_that_changes_while_it_is_checked(users: Users, worker: Counted) -> None:
    worker.meanwhile = lambda: fold(users, user_deleted_record("ana"))
    assert not knows(users, "ana", "right")
    worker.meanwhile = lambda: None
    assert not knows(users, "ana", "right")


def test_one_without_a_scrypt_hash_is_checked_with_what_was_set_last(users: Users) -> None:
    bob = scram_only("bob", Mechanism.SHA_256, "first")
    fold(users, user_record(bob))
    assert knows(users, "bob", "first")
    bob = bob.with_verifier(Mechanism.SHA_512, verifier(Mechanism.SHA_512, "second"))
    fold(users, user_record(bob))
    assert not knows(users, "bob", "first")
    assert knows(users, "bob", "second")
    bob = bob.with_verifier(Mechanism.SHA_256, verifier(Mechanism.SHA_256, "third"))
    fold(users, user_record(bob))
    assert knows(users, "bob", "third")


def test_a_new_verifier_drops_the_hash_of_the_old_password(users: Users) -> None:
    ana = users.get("ana")
    assert ana is not None
    changed = verifier(Mechanism.SHA_256, "new")
    fold(users, user_record(ana.with_verifier(Mechanism.SHA_256, changed)))
    assert not knows(users, "ana", "right")
    assert knows(users, "ana", "new")


def test_without_its_last_verifier_a_user_is_gone(users: Users) -> None:
    ana = users.get("ana")
    assert ana is not None
    left = ana.without_verifier(Mechanism.SHA_256)
    assert left is not None
    assert list(left.verifiers) == [Mechanism.SHA_512]
    assert left.without_verifier(Mechanism.SHA_512) is None


@pytest.mark.parametrize("mechanism", Mechanism)
def test_a_name_that_nobody_has_is_challenged_all_the_same(
    users: Users, mechanism: Mechanism
) -> None:
    ana, bob = users.verifier("ana", mechanism), users.verifier("bob", mechanism)
    assert users.verifier("bob", mechanism) == bob
    assert users.verifier("eve", mechanism).salt != bob.salt
    assert (len(bob.salt), bob.iterations) == (len(ana.salt), ana.iterations)
    assert len(bob.stored_key) == len(ana.stored_key) == mechanism.hash_bytes


def test_a_record_keeps_all_of_it_and_not_the_password(users: Users) -> None:
    ana = users.get("ana")
    assert ana is not None
    record = user_record(ana)
    again = Users(SimEntropy(Random(1)))
    fold(again, record)
    assert again.get("ana") == ana
    assert again.names() == ["ana"]
    assert record.value is not None
    assert b"right" not in record.value
    assert "hash" not in repr(ana)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "\x1b[31m"])
def test_a_name_that_is_none(users: Users, name: str) -> None:
    with pytest.raises(InvalidName):
        asyncio.run(users.with_password(name, "password"))


@on_node()
async def test_users_survive_a_power_failure(node: Node) -> None:
    broker = node.context.broker
    made = await broker.users.with_password("ana: =", "right")
    await broker.change_security(user_record(made))
    await node.power_fails()
    assert node.context.broker.users is not broker.users
    assert await node.context.broker.users.knows("ana: =", "right")
    await node.context.broker.change_security(user_deleted_record("ana: ="))
    await node.power_fails()
    assert node.context.broker.users.names() == []
