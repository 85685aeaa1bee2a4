"""The search over all names, and the pages about the broker itself."""

from urllib.parse import quote

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import Acl, Pattern, PermissionType, acl_record
from tests.unit.gateway.http.management.house import FakeSession, House, in_house

PAGES = ("transactions", "connections", "sessions", "retained", "storage")


async def let_describe(house: House, user: str) -> None:
    entry = Acl(
        ResourceKind.CLUSTER,
        Pattern.LITERAL,
        "kafka-cluster",
        user,
        "*",
        Operation.DESCRIBE,
        PermissionType.ALLOW,
    )
    await house.broker.change_security(acl_record(entry))


@in_house()
async def test_names_of_all_kinds_are_found(house: House) -> None:
    await house.declare("orders")
    await house.declare("new-orders")
    await house.broker.create_topic("orders.log", 1)
    await house.call("PUT", "/api/exchanges/%2F/orders.x", {"type": "fanout"})
    found = await house.get("/api/console/search?q=ORD")
    assert [(row["kind"], row["name"]) for row in found] == [
        ("queue", "orders"),
        ("topic", "orders.log"),
        ("exchange", "orders.x"),
        ("queue", "new-orders"),
    ]
    assert await house.get("/api/console/search?q=") == []


@in_house(asks=True)
async def test_who_monitors_sees_all_and_changes_nothing(house: House) -> None:
    await house.declare("q")
    session = FakeSession(4_000, user="boss")
    house.broker.sessions.add(session)
    await house.add_user("max")
    assert (await house.call("GET", "/api/console/settings", user="max"))[0] == 403
    assert (await house.call("GET", "/api/console/storage", user="max"))[0] == 403
    assert (await house.call("GET", "/api/console/search?q=q", user="max"))[1] == []
    await let_describe(house, "max")
    for page in PAGES:
        assert (await house.call("GET", f"/api/console/{page}", user="max"))[0] == 200, page
    _, rows = await house.call("GET", "/api/console/settings", user="max")
    assert [row["origin"] for row in rows] == ["default", "command line"]
    assert (await house.call("GET", "/api/console/connections", user="max"))[1]["total_count"] == 1
    assert (await house.call("GET", "/api/queues/%2F/q", user="max"))[0] == 200
    assert (await house.call("GET", "/api/console/acls", user="max"))[0] == 403
    name = session.name.replace(" ", "%20").replace(">", "%3E")
    for method, path, body in (
        ("DELETE", f"/api/connections/{name}", None),
        ("DELETE", "/api/queues/%2F/q", None),
        ("DELETE", "/api/queues/%2F/q/contents", None),
        ("PUT", "/api/queues/%2F/new", {}),
        ("PUT", "/api/exchanges/%2F/new", {"type": "fanout"}),
        ("POST", "/api/bindings/%2F/e/amq.fanout/q/q", {}),
        ("PUT", "/api/vhosts/new", {}),
        ("POST", "/api/queues/%2F/q/get", {"count": 1, "ackmode": "peek", "encoding": "auto"}),
        ("POST", "/api/queues/%2F/q/lease", {}),
        ("POST", "/api/queues/%2F/q/rewind", {"offset": 0}),
        ("POST", "/api/queues/%2F/q/move", {"to": "q"}),
        ("DELETE", "/api/queues/%2F/q/deferred/0", None),
    ):
        assert (await house.call(method, path, body, user="max"))[0] == 403, path
    assert session.closed is None


@in_house()
async def test_the_pages_about_the_broker(house: House) -> None:
    await house.broker.create_topic("t", 2)
    await house.declare("q")
    found = await house.get("/api/console/storage?sort=name")
    kinds = {row["name"]: row["kind"] for row in found["items"]}
    assert (kinds["t"], kinds["q"]) == ("topic", "queue")
    house.broker.sessions.add(FakeSession(4_000))
    (row,) = (await house.get("/api/console/connections?sort=unacked"))["items"]
    assert (row["unacked"], row["consumers"], row["mine"]) == (2, 1, True)
    kafka = FakeSession(4_001)
    house.broker.topic_sessions.add(kafka)
    assert (await house.get("/api/console/connections"))["total_count"] == 2
    assert len(await house.get("/api/connections")) == 1  # RabbitMQ's list is of queues' clients.
    name = quote(kafka.name, safe="")
    assert (await house.get(f"/api/connections/{name}"))["name"] == kafka.name
    assert (await house.call("DELETE", f"/api/connections/{name}"))[0] == 204
    assert kafka.closed is not None
    await house.broker.transactions.init_producer_id("tx", 60_000)
    assert (await house.get("/api/console/transactions"))["items"] == []
    (row,) = (await house.get("/api/console/transactions?all=true"))["items"]
    assert (row["name"], row["state"], row["started"]) == ("tx", "empty", None)
    await let_describe(house, "max")
    (row,) = await house.get("/api/console/acls")
    assert (row["user"], row["operation"], row["permission"]) == ("max", "describe", "allow")
