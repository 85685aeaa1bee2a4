"""Who is let in: users of the store, or guest from this machine."""

import asyncio
from base64 import b64encode

import pytest

from entrepot.broker.access import Access, AccessSettings
from entrepot.broker.acls import Acls
from entrepot.broker.login import LoginPolicy
from entrepot.broker.permissions import Permissions
from entrepot.broker.users import Users, user_record
from entrepot.core import limits
from entrepot.core.ports import in_place
from entrepot.gateway.http.login import log_in
from entrepot.wire.http.request import HttpError, Request
from sim import loop
from sim.entropy import SimEntropy


def request(authorization: str | None, host: str = "127.0.0.1:15672") -> Request:
    headers = {"host": host}
    if authorization is not None:
        headers["authorization"] = authorization
    return Request("GET", "/", headers)


def basic(name: str, password: str) -> str:
    return "Basic " + b64encode(f"{name}:{password}".encode()).decode()


def policy(users: Users, *, asks_users: bool, is_open: bool = False) -> LoginPolicy:
    access = Access(AccessSettings(), Acls(), Permissions())
    return LoginPolicy(users, access, asks_users=asks_users, is_open=is_open)


def ask(login: LoginPolicy, asked: Request, peer: str = "127.0.0.1") -> str | int:
    """The name, or the status."""
    return loop.run(0, lambda sim: _ask(login, asked, peer))


async def _ask(login: LoginPolicy, asked: Request, peer: str) -> str | int:
    started = asyncio.get_running_loop().time()
    try:
        return (await log_in(login, asked, peer)).user
    except HttpError as error:
        is_attempt = str(error) == "Login failed"
        took = asyncio.get_running_loop().time() - started
        assert not is_attempt or took >= limits.LOGIN_FAILURE_MS / 1_000 - 0.001
        return error.status


@pytest.fixture
def users() -> Users:
    return Users(SimEntropy(loop.SimLoop(0).random("entropy")), in_place)


@pytest.mark.parametrize("host", ["127.0.0.1:15672", "localhost", "[::1]:1", "localhost:80"])
@pytest.mark.parametrize("peer", ["127.0.0.1", "::1"])
def test_guest_from_here(users: Users, host: str, peer: str) -> None:
    login = policy(users, asks_users=False)
    assert ask(login, request(basic("guest", "guest"), host), peer) == "guest"


@pytest.mark.parametrize(
    ("authorization", "host", "peer"),
    [
        (None, "localhost", "127.0.0.1"),
        ("Bearer x", "localhost", "127.0.0.1"),
        ("Basic !", "localhost", "127.0.0.1"),
        ("Basic " + b64encode(b"guest").decode(), "localhost", "127.0.0.1"),
        ("Basic " + b64encode(b"\xff:\xff").decode(), "localhost", "127.0.0.1"),
        (basic("guest", "Guest"), "localhost", "127.0.0.1"),
        (basic("ana", "guest"), "localhost", "127.0.0.1"),
        (basic("guest", "guest"), "localhost", "10.0.0.1"),
        (basic("guest", "guest"), "rebound.example", "127.0.0.1"),
        (basic("guest", "guest"), "10.0.0.1", "127.0.0.1"),
    ],
)
def test_nobody_else(users: Users, authorization: str | None, host: str, peer: str) -> None:
    login = policy(users, asks_users=False)
    assert ask(login, request(authorization, host), peer) == 401


def test_guest_from_anywhere_where_it_is_open(users: Users) -> None:
    login = policy(users, asks_users=False, is_open=True)
    assert ask(login, request(basic("guest", "guest"), "broker.example"), "10.0.0.1") == "guest"
    assert ask(login, request(basic("ana", "ana")), "10.0.0.1") == 401


def test_users_of_the_store_from_anywhere(users: Users) -> None:
    ana = loop.run(0, lambda sim: users.with_password("ana", "s:crä"))
    record = user_record(ana)
    assert record.key is not None
    users.apply(record.key.decode().partition(":")[2], record.value)
    login = policy(users, asks_users=True)
    assert ask(login, request(basic("ana", "s:crä"), "broker.example"), "10.0.0.1") == "ana"
    assert ask(login, request(basic("ana", "other")), "10.0.0.1") == 401
    assert ask(login, request(basic("guest", "guest"))) == 401


def test_a_failure_is_a_line_of_the_log(users: Users, caplog: pytest.LogCaptureFixture) -> None:
    login = policy(users, asks_users=True)
    assert ask(login, request(basic("ana", "a guess")), "10.0.0.1") == 401
    (record,) = caplog.records
    assert record.getMessage() == (
        "10.0.0.1: login of 'ana' with Basic failed: wrong user or password"
    )
