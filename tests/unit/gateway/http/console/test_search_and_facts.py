"""The search over all names, and the pages about the broker itself."""

from urllib.parse import quote

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import Acl, Pattern, PermissionType, acl_record
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.core.message import Envelope
from entrepot.gateway.amqp.format import AMQP
from tests.unit.broker.queue.bed import properties
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
    found = await house.get("/api/console/acls")
    (row,) = found["entries"]
    assert found["enforced"] is False
    assert (row["user"], row["operation"], row["permission"]) == ("max", "describe", "allow")


@in_house(asks=True)
async def test_a_transaction_is_aborted(house: House) -> None:
    transactions = house.broker.transactions
    await house.broker.create_topic("t", 1)
    await house.add_user("max")
    for name, timeout_ms in (("tx", 60_000), ("spark-q-0-0", 2**31 - 1)):
        producer = await transactions.init_producer_id(name, timeout_ms)
        await transactions.add_partitions(name, producer, [TopicPartition("t", 0)])
    rows = (await house.get("/api/console/transactions?sort=name"))["items"]
    assert [(row["name"], row["may_abort"]) for row in rows] == [
        ("spark-q-0-0", False),
        ("tx", True),
    ]
    assert rows[1]["places"] == ["t 0"]
    path = "/api/console/transactions/tx"
    assert (await house.call("DELETE", path, user="max"))[0] == 403
    assert (await house.call("DELETE", path))[0] == 204
    (row,) = (await house.get("/api/console/transactions?all=true&name=tx"))["items"]
    assert (row["state"], row["epoch"]) == ("complete abort", 1)
    assert (await house.call("DELETE", path))[0] == 400
    assert (await house.call("DELETE", "/api/console/transactions/nobody"))[0] == 404
    status, told = await house.call("DELETE", "/api/console/transactions/spark-q-0-0")
    assert (status, "entrepot transactions abort" in told["reason"]) == (400, True)


@in_house(asks=True)
async def test_a_retained_message_is_shown_and_found(house: House) -> None:
    await house.add_user("max")
    told = Envelope("x", "home.hall", properties(), AMQP)
    house.broker.vhosts.default.retained.keep((told, "21 °C".encode()), None)
    path = f"/api/console/retained/{quote('home/hall', safe='')}"
    found = await house.get(path)
    assert (found["name"], found["value"]) == ("home/hall", {"bytes": 6, "text": "21 °C"})
    assert (await house.call("GET", path, user="max"))[0] == 403
    assert (await house.call("GET", "/api/console/retained/home%2Fbath"))[0] == 404
    assert (await house.call("GET", "/api/console/retained/home%2F%23"))[0] == 400
    rows = await house.get("/api/console/search?q=hall")
    assert [(row["kind"], row["name"]) for row in rows] == [("retained", "home/hall")]
    assert (await house.call("GET", "/api/console/search?q=hall", user="max"))[1] == []
    rows = await house.get("/api/console/search?q=node_i")
    assert [row["kind"] for row in rows] == ["setting"]
