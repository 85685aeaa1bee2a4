"""Virtual hosts and permissions over HTTP."""

import pytest

from tests.unit.gateway.http.management.house import House, in_house


@in_house()
async def test_made_shown_deleted(house: House) -> None:
    assert await house.call("PUT", "/api/vhosts/v1") == (201, None)
    assert await house.call("PUT", "/api/vhosts/v1", {"description": "d"}) == (204, None)
    assert [row["name"] for row in await house.get("/api/vhosts")] == ["/", "v1"]
    assert (await house.get("/api/vhosts/v1"))["cluster_state"] == {"entrepot@here": "running"}
    assert (await house.call("PUT", "/api/queues/v1/q", {}))[0] == 201
    assert [row["vhost"] for row in await house.get("/api/queues")] == ["v1"]
    assert await house.call("DELETE", "/api/vhosts/v1") == (204, None)
    assert (await house.call("DELETE", "/api/vhosts/v1"))[0] == 404
    assert (await house.call("GET", "/api/vhosts/v1"))[0] == 404
    assert (await house.call("DELETE", "/api/vhosts/%2F"))[0] == 403


@in_house(asks=True)
async def test_permissions(house: House) -> None:
    await house.add_user("ana")
    path = "/api/permissions/%2F/ana"
    rights = {"configure": "^a", "write": ".*", "read": ""}
    assert (await house.call("GET", path))[0] == 404
    assert await house.call("PUT", path, rights) == (201, None)
    assert await house.call("PUT", path, rights) == (204, None)
    row = {"user": "ana", "vhost": "/", **rights}
    assert await house.get(path) == row
    for listed in ("permissions", "vhosts/%2F/permissions", "users/ana/permissions"):
        assert await house.get(f"/api/{listed}") == [row]
    assert await house.call("DELETE", path) == (204, None)
    assert (await house.call("DELETE", path))[0] == 404


@pytest.mark.parametrize(
    ("user", "body", "reason"),
    [
        ("ana", {"configure": ".*"}, "[{key_missing,write},{key_missing,read}]"),
        ("ana", {"configure": "*", "write": "", "read": ""}, "the regular expression '*'"),
        (
            "ana",
            {"configure": "^(?!x)", "write": "", "read": ""},
            "the regular expression '^(?!x)'",
        ),
        ("bob", {"configure": "", "write": "", "read": ""}, "vhost_or_user_not_found"),
    ],
)
@in_house(asks=True)
async def test_wrong_permissions(house: House, user: str, body: object, reason: str) -> None:
    await house.add_user("ana")
    status, said = await house.call("PUT", f"/api/permissions/%2F/{user}", body)
    assert status == 400
    assert said["reason"].startswith(reason)


@in_house()
async def test_guest_may_do_everything_where_nobody_is_asked(house: House) -> None:
    rights = {"configure": ".*", "write": ".*", "read": ".*"}
    assert await house.get("/api/permissions") == [{"user": "guest", "vhost": "/", **rights}]


@in_house(asks=True)
async def test_for_administrators_only(house: House) -> None:
    await house.add_user("ana")
    for method, path in (
        ("PUT", "vhosts/v"),
        ("DELETE", "vhosts/%2F"),
        ("GET", "permissions"),
        ("GET", "permissions/%2F/ana"),
        ("PUT", "permissions/%2F/ana"),
        ("DELETE", "permissions/%2F/ana"),
        ("GET", "users"),
        ("PUT", "users/ana"),
        ("DELETE", "users/ana"),
        ("PUT", "application"),
        ("DELETE", "application/contents"),
        ("GET", "definitions"),
        ("POST", "definitions"),
    ):
        status, said = await house.call(method, f"/api/{path}", {}, user="ana")
        assert (status, said["reason"]) == (403, "Not administrator user"), path
