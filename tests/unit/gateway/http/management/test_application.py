"""Paths, methods, logins, and what went wrong as a status."""

import json
from typing import Any

import pytest

from entrepot.core.errors import StorageError
from entrepot.gateway.http.management.application import find, match
from entrepot.wire.http.request import HttpError, Request
from tests.unit.gateway.http.management.house import House, in_house


def test_paths() -> None:
    pattern = ("queues", "{vhost}", "{name}")
    assert match(pattern, ("queues", "/", "a")) == {"vhost": "/", "name": "a"}
    assert match(pattern, ("queues", "/")) is None
    assert match(pattern, ("exchanges", "/", "a")) is None
    assert find(("api", "queues", "/", "get", ""))[1] == {"vhost": "/", "name": "get"}
    for path in ((), ("",), ("api",), ("api", "nosuch"), ("queues",)):
        with pytest.raises(HttpError):
            find(path)


@in_house()
async def test_methods(house: House) -> None:
    assert await house.call("HEAD", "/api/overview") != (405, None)
    response = await house.handle(
        Request("POST", "/api/overview", {"authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}), "::1"
    )
    assert (response.status, dict(response.headers)["Allow"]) == (405, "GET, OPTIONS")
    assert await house.call("OPTIONS", "/api/queues") == (200, None)


@in_house()
async def test_who_is_not_let_in(house: House) -> None:
    response = await house.handle(Request("GET", "/api/whoami", {"host": "localhost"}), "::1")
    assert response.status == 401
    assert dict(response.headers)["WWW-Authenticate"].startswith("Basic ")
    said = await house.call("GET", "/api/whoami", user="ana")
    assert said == (401, {"error": "not_authorized", "reason": "Login failed"})
    assert (await house.call("GET", "/api/%FF"))[0] == 400


@pytest.mark.pure
@in_house()
async def test_a_failing_disk(house: House) -> None:
    async def fail(*_: Any, **__: Any) -> None:
        raise StorageError("the disk is gone")

    house.broker.vhosts.get("/").declare_queue = fail  # type: ignore[method-assign]
    status, said = await house.call("PUT", "/api/queues/%2F/q", {})
    assert (status, said["reason"]) == (503, "the disk is gone")


@in_house()
async def test_lists_are_arranged(house: House) -> None:
    for name in ("b", "a", "c"):
        await house.declare(name)
    assert await house.get("/api/queues?columns=name&sort=name&sort_reverse=true") == [
        {"name": "c"},
        {"name": "b"},
        {"name": "a"},
    ]


@in_house()
async def test_json_is_utf_8(house: House) -> None:
    await house.declare("%C3%BC")
    shown = await house.get("/api/queues/%2F/%C3%BC")
    assert shown["name"] == "ü"
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 201),
        ({"origin": "http://localhost"}, 201),
        ({"origin": "https://LOCALHOST:443", "host": "localhost"}, 201),
        ({"origin": "http://localhost:15672", "host": "localhost:15672"}, 201),
        ({"origin": "http://localhost", "sec-fetch-site": "same-origin"}, 201),
        ({"origin": "http://localhost:8080", "host": "localhost:15672"}, 403),
        ({"origin": "http://attacker.example"}, 403),
        ({"origin": "http://localhost.attacker.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
    ],
)
@in_house()
async def test_a_page_of_another_site_changes_nothing(
    house: House, headers: dict[str, str], status: int
) -> None:
    """A form of HTML can send a POST, with the password that the browser knows."""
    answer, _ = await house.call("PUT", "/api/queues/%2F/work", {}, headers=headers)
    assert answer == status
    assert (await house.call("GET", "/api/queues", headers=headers))[0] == 200
    assert (await house.call("DELETE", "/api/queues/%2F/work", headers=headers))[0] in (204, 403)
