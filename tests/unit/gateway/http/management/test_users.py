"""Users over HTTP. A password goes in and never comes out."""

from tests.unit.gateway.http.management.house import BOSS, House, in_house


@in_house(asks=True)
async def test_added_shown_deleted(house: House) -> None:
    made = {"password": "ana", "tags": "administrator"}
    assert await house.call("PUT", "/api/users/ana", made) == (201, None)
    assert await house.call("PUT", "/api/users/ana", made) == (204, None)
    assert await house.get("/api/users") == [
        {"name": "ana", "tags": ["management"], "limits": {}},
        {"name": BOSS, "tags": ["administrator"], "limits": {}},
    ]
    assert (await house.get("/api/users/ana"))["name"] == "ana"
    assert (await house.call("GET", "/api/whoami", user="ana"))[1]["name"] == "ana"
    rights = {"configure": "", "write": "", "read": ""}
    await house.call("PUT", "/api/permissions/%2F/ana", rights)
    assert await house.call("DELETE", "/api/users/ana") == (204, None)
    assert house.broker.permissions.entries == {}
    assert (await house.call("DELETE", "/api/users/ana"))[0] == 404
    assert (await house.call("GET", "/api/users/ana"))[0] == 404
    assert (await house.call("GET", "/api/whoami", user="ana"))[0] == 401


@in_house(asks=True)
async def test_what_cannot_be(house: House) -> None:
    for body in ({"tags": ""}, {"password_hash": "x", "tags": ""}, {"password": ""}):
        assert (await house.call("PUT", "/api/users/ana", body))[0] == 400
    assert (await house.call("PUT", "/api/users/a%0Ab", {"password": "x"}))[0] == 400


@in_house()
async def test_guest_where_nobody_is_asked(house: House) -> None:
    assert await house.get("/api/whoami") == {"name": "guest", "tags": ["administrator"]}
    assert [row["name"] for row in await house.get("/api/users")] == ["guest"]
