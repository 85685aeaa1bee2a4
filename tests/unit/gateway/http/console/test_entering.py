"""Logging in and out: who may, and what the answer tells."""

import json
from typing import Any

from entrepot.wire.http.request import Request
from tests.unit.gateway.http.management.house import BOSS, House, in_house

PATH = "/api/console/login"


async def ask(
    house: House, method: str, body: bytes = b"", *, path: str = PATH, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    sent = {"host": "localhost"} | {name.replace("_", "-"): each for name, each in headers.items()}
    answer = await house.handle(Request(method, path, sent, body), "127.0.0.1")
    return answer.status, bytes(answer.body), dict(answer.headers)


def credentials(user: str, password: str) -> bytes:
    return f'{{"user": "{user}", "password": "{password}"}}'.encode()


@in_house(asks=True)
async def test_logging_in_and_out(house: House) -> None:
    status, body, _ = await ask(house, "GET")
    assert (status, b'"user":null' in body, b'"guest":null' in body) == (200, True, True)
    status, _, _ = await ask(house, "POST", credentials(BOSS, BOSS))
    assert status == 403  # Another site's page can send that much.
    status, body, headers = await ask(house, "POST", credentials(BOSS, "x"), x_csrf_token="")
    assert (status, "Set-Cookie" in headers, "WWW-Authenticate" in headers) == (401, False, False)
    status, body, headers = await ask(house, "POST", credentials(BOSS, BOSS), x_csrf_token="")
    assert status == 200
    assert b'"administrator":true' in body
    token = body.partition(b'"token":"')[2].partition(b'"')[0].decode()
    cookie = headers["Set-Cookie"].partition(";")[0]

    put: dict[str, Any] = {"path": "/api/queues/%2F/q", "cookie": cookie}
    assert (await ask(house, "PUT", b"{}", **put))[0] == 403
    assert (await ask(house, "PUT", b"{}", x_csrf_token=token, **put))[0] == 201
    foreign = {"origin": "http://evil.example", "x_csrf_token": token}
    assert (await ask(house, "PUT", b"{}", **put, **foreign))[0] == 403
    assert (await ask(house, "DELETE", cookie=cookie, x_csrf_token="x"))[0] == 403
    status, body, _ = await ask(house, "GET", cookie=cookie)
    assert token.encode() in body
    status, _, headers = await ask(house, "DELETE", cookie=cookie, x_csrf_token=token)
    assert (status, "Max-Age=0" in headers["Set-Cookie"]) == (204, True)
    status, _, headers = await ask(house, "GET", path="/api/queues", cookie=cookie, x_csrf_token="")
    assert (status, "WWW-Authenticate" in headers) == (401, False)
    status, _, headers = await ask(house, "GET", path="/api/queues")
    assert (status, "WWW-Authenticate" in headers) == (401, True)


@in_house(asks=True)
async def test_what_somebody_may_create(house: House) -> None:
    """The page has buttons for these and no others."""

    async def creates(user: str, password: str) -> dict[str, bool]:
        _, body, _ = await ask(house, "POST", credentials(user, password), x_csrf_token="")
        found: dict[str, bool] = json.loads(body)["creates"]
        return found

    nothing = {"queue": False, "exchange": False, "topic": False}
    assert await creates(BOSS, BOSS) == dict.fromkeys(nothing, True)
    await house.add_user("max")
    assert await creates("max", "max") == nothing
    await house.call(
        "PUT", "/api/permissions/%2F/max", {"configure": "^max", "write": "", "read": ""}
    )
    assert await creates("max", "max") == nothing | {"queue": True, "exchange": True}


@in_house()
async def test_guest_comes_from_here_only(house: House) -> None:
    _, body, _ = await ask(house, "GET")
    assert b'"guest":"guest"' in body
    wanted = credentials("guest", "guest")
    assert (await ask(house, "POST", wanted, x_csrf_token=""))[0] == 200
    assert (await ask(house, "POST", wanted, x_csrf_token="", host="evil.example"))[0] == 401


@in_house()
async def test_what_makes_no_sense(house: House) -> None:
    assert (await ask(house, "POST", b"x" * 5_000, x_csrf_token=""))[0] == 413
    assert (await ask(house, "POST", b"[", x_csrf_token=""))[0] == 400
    assert (await ask(house, "PATCH", x_csrf_token=""))[0] == 405
