"""Queues over HTTP: as RabbitMQ answers."""

import pytest

from entrepot.gateway.rabbitmq.queue_arguments import QueueDeclaration
from tests.unit.gateway.http.management.house import FakeConsumer, FakeSession, House, in_house


@in_house()
async def test_declared_shown_listed_deleted(house: House) -> None:
    path = "/api/queues/%2F/work"
    wanted = {"durable": True, "auto_delete": False, "arguments": {"x-max-priority": 3}}
    assert await house.call("PUT", path, wanted) == (201, None)
    assert await house.call("PUT", path, wanted) == (204, None)
    shown = await house.get(path)
    assert {
        "name": "work",
        "vhost": "/",
        "durable": True,
        "auto_delete": False,
        "exclusive": False,
        "arguments": {"x-max-priority": 3},
        "type": "classic",
        "messages": 0,
        "consumers": 0,
        "state": "running",
        "consumer_details": [],
    }.items() <= shown.items()
    for listed in ("/api/queues", "/api/queues/%2F", "/api/queues/%2F/"):
        assert [row["name"] for row in await house.get(listed)] == ["work"]
    assert await house.call("DELETE", path) == (204, None)
    assert (await house.call("DELETE", path))[0] == 404
    assert (await house.call("GET", path))[0] == 404


@in_house()
async def test_counts(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a", "b", "c")
    queue = house.broker.vhosts.get("/").queue("work")
    owner = object()
    assert queue.get(owner, auto_ack=False) is not None
    queue.add_consumer(FakeConsumer("only", is_exclusive=True))
    house.broker.sessions.add(FakeSession(5, queue="work"))
    shown = await house.get("/api/queues/%2F/work")
    assert (shown["messages"], shown["messages_ready"]) == (3, 2)
    assert (shown["messages_unacknowledged"], shown["consumers"]) == (1, 1)
    assert shown["exclusive_consumer_tag"] == "only"
    assert [row["consumer_tag"] for row in shown["consumer_details"]] == ["tag"]
    vhost = await house.get("/api/vhosts/%2F")
    assert (vhost["messages"], vhost["messages_unacknowledged"]) == (3, 1)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"durable": False}, "inequivalent arg 'durable' for queue 'work' in vhost '/': "),
        ({"durable": "yes"}, "not_boolean"),
        ({"arguments": {"x-max-priority": -1}}, "inequivalent arg 'x-max-priority'"),
        ({"arguments": [1]}, "arguments: not an object"),
        ({"arguments": {"n": 2**70}}, "not a 64-bit number"),
        ([1], "not_json"),
        (b"{bad", "not_json"),
        (b"[" * 100_000, "not_json"),
    ],
)
@in_house()
async def test_declared_wrongly(house: House, body: object, reason: str) -> None:
    await house.declare("work")
    status, said = await house.call("PUT", "/api/queues/%2F/work", body)
    assert (status, said["error"]) == (400, "bad_request")
    assert reason in said["reason"]


@in_house()
async def test_invalid_arguments_are_refused_in_rabbitmqs_words(house: House) -> None:
    status, said = await house.call(
        "PUT", "/api/queues/%2F/new", {"arguments": {"x-message-ttl": -1}}
    )
    reason = "invalid arg 'x-message-ttl' for queue 'new' in vhost '/': {value_negative,-1}"
    assert (status, said) == (400, {"error": "bad_request", "reason": reason})
    assert (await house.call("PUT", "/api/queues/%2F/amq.new", {}))[0] == 403
    assert (await house.call("PUT", "/api/queues/nosuch/new", {}))[0] == 404


@in_house()
async def test_deleted_only_if(house: House) -> None:
    await house.declare("work")
    await house.publish("work", "a")
    queue, consumer = house.broker.vhosts.get("/").queue("work"), FakeConsumer()
    queue.add_consumer(consumer)
    for condition, reason in (("if-empty", "not empty"), ("if-unused", "in use")):
        status, said = await house.call("DELETE", f"/api/queues/%2F/work?{condition}=true")
        assert (status, said["reason"]) == (400, f"queue 'work' in vhost '/' {reason}")
    assert await house.call("DELETE", "/api/queues/%2F/work") == (204, None)


@in_house()
async def test_a_connections_own_queue_is_seen_and_left_alone(house: House) -> None:
    session = FakeSession(5)
    house.broker.sessions.add(session)
    vhost = house.broker.vhosts.get("/")
    await vhost.declare_queue(QueueDeclaration("/", "own", durable=False, exclusive=True), session)
    shown = await house.get("/api/queues/%2F/own")
    assert (shown["exclusive"], shown["owner_pid_details"]["name"]) == (True, session.name)
    for method, path in (("DELETE", ""), ("DELETE", "/contents"), ("PUT", "")):
        status, said = await house.call(method, f"/api/queues/%2F/own{path}", {})
        assert (status, "locked" in said["reason"]) == (400, True)


@in_house()
async def test_a_topic_is_a_stream(house: House) -> None:
    await house.broker.create_topic("events", 2)
    await house.publish("events", "a", "b", "c")
    (row,) = await house.get("/api/queues")
    assert (row["name"], row["type"], row["messages"]) == ("events", "stream", 3)
    assert (await house.get("/api/queues/%2F/events"))["type"] == "stream"
    status, said = await house.call("DELETE", "/api/queues/%2F/events/contents")
    assert (status, said["reason"]) == (404, "queue 'events' in vhost '/' is a stream")
    assert await house.call("DELETE", "/api/queues/%2F/events") == (204, None)
    assert "events" not in house.broker.topics
    stream = {"arguments": {"x-queue-type": "stream"}}
    assert await house.call("PUT", "/api/queues/%2F/made", stream) == (201, None)
    assert "made" in house.broker.topics


@in_house(asks=True)
async def test_permissions_are_those_of_amqp(house: House) -> None:
    await house.add_user("ana")
    await house.declare("work")
    status, said = await house.call("GET", "/api/queues/%2F", user="ana")
    assert (status, said["reason"]) == (403, "access to vhost '/' refused for user 'ana'")
    assert await house.call("GET", "/api/queues", user="ana") == (200, [])
    own = {"configure": "^ana", "write": "", "read": "^work$"}
    assert (await house.call("PUT", "/api/permissions/%2F/ana", own))[0] == 201
    assert len((await house.call("GET", "/api/queues", user="ana"))[1]) == 1
    assert (await house.call("PUT", "/api/queues/%2F/ana.1", {}, user="ana"))[0] == 201
    status, said = await house.call("PUT", "/api/queues/%2F/other", {}, user="ana")
    reason = "configure access to queue 'other' in vhost '/' refused for user 'ana'"
    assert (status, said) == (403, {"error": "not_authorised", "reason": reason})
    letters = {"arguments": {"x-dead-letter-exchange": "x"}}
    assert (await house.call("PUT", "/api/queues/%2F/ana.2", letters, user="ana"))[0] == 403
    assert (await house.call("DELETE", "/api/queues/%2F/work", user="ana"))[0] == 403
    assert (await house.call("DELETE", "/api/queues/%2F/work/contents", user="ana"))[0] == 204
    assert (await house.call("DELETE", "/api/queues/%2F/ana.1/contents", user="ana"))[0] == 403


@in_house()
async def test_one_that_is_down(house: House) -> None:
    """Without a word about its messages, and with one about why."""
    await house.declare("work")
    await house.publish("work", "a")
    broker = house.broker
    broker.served_partition(broker.topic("work"), 0).partition.refuse("a bad batch")
    await broker.create_topic("t")
    broker.served_partition(broker.topic("t"), 0).partition.refuse("another")
    for name, reason in (("work", "a bad batch"), ("t", "another")):
        shown = await house.get(f"/api/queues/%2F/{name}")
        assert (shown["state"], shown["reason"]) == ("down", reason)
        assert "messages" not in shown
    assert (await house.get("/api/overview"))["queue_totals"]["messages"] == 0
    account = await house.get("/api/accounts/%2F/work")
    assert (account["ok"], account["wrong"]) == (False, ["the queue is down: a bad batch"])
    asked = {"count": 1, "ackmode": "peek", "encoding": "auto"}
    for method, path, body in (("POST", "get", asked), ("DELETE", "contents", None)):
        status, said = await house.call(method, f"/api/queues/%2F/work/{path}", body)
        assert status == 503
        assert said["reason"] == "queue 'work' in vhost '/' is down: a bad batch"


@in_house()
async def test_one_that_a_mistake_of_ours_has_stopped(house: House) -> None:
    """It is down as any other that cannot be served, and every list says so."""
    await house.declare("work")
    await house.publish("work", "a")
    house.broker.vhosts.default.queue("work").stop()
    reason = "a mistake of the broker's own; the log has more"
    shown = await house.get("/api/queues/%2F/work")
    assert (shown["state"], shown["reason"]) == ("down", reason)
    assert "messages" not in shown
    fault = {"kind": "queue", "name": "work in vhost /", "state": "down", "reason": reason}
    assert await house.get("/api/faults") == [fault]
    [account] = await house.get("/api/accounts")
    assert (account["ok"], account["wrong"]) == (False, [f"the queue is down: {reason}"])


@in_house()
async def test_what_waits_at_delayed_exchanges_can_be_down_too(house: House) -> None:
    delayed = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    await house.call("PUT", "/api/exchanges/%2F/later", delayed)
    queue = house.broker.vhosts.default.delayed
    assert queue is not None
    queue.stop("why")
    [fault] = await house.get("/api/faults")
    assert (fault["state"], fault["reason"]) == ("down", "why")


@in_house(asks=True)
async def test_what_cannot_be_used(house: House) -> None:
    await house.add_user("ana")
    await house.declare("work")
    assert await house.get("/api/faults") == []
    house.broker.served_partition(house.broker.topic("work"), 0).partition.refuse("a bad batch")
    queue = {"kind": "queue", "name": "work in vhost /", "state": "down", "reason": "a bad batch"}
    place = {"kind": "partition", "name": "partitions/work-0", "state": "refused"}
    assert await house.get("/api/faults") == [place | {"reason": "a bad batch"}, queue]
    assert (await house.call("GET", "/api/faults", user="ana"))[0] == 403
