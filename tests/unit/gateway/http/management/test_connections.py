"""Connections, channels and consumers: all of them for some, one's own for others."""

from urllib.parse import quote

from tests.unit.gateway.http.management.house import FakeSession, House, in_house


@in_house()
async def test_as_rabbitmq_shows_them(house: House) -> None:
    session = FakeSession(5)
    house.broker.sessions.add(session)
    (connection,) = await house.get("/api/connections")
    assert {
        "name": "127.0.0.1:5 -> 127.0.0.1:5672",
        "user": "guest",
        "vhost": "/",
        "protocol": "AMQP 0-9-1",
        "host": "127.0.0.1",
        "port": 5672,
        "peer_host": "127.0.0.1",
        "peer_port": 5,
        "channels": 1,
        "state": "running",
        "connected_at": 1_000,
        "client_properties": {"product": "pika", "capabilities": {"basic.nack": True}},
    }.items() <= connection.items()
    path = f"/api/connections/{quote(session.name, safe='')}"
    assert await house.get(path) == connection
    (channel,) = await house.get("/api/channels")
    assert {
        "name": f"{session.name} (1)",
        "number": 1,
        "consumer_count": 1,
        "messages_unacknowledged": 2,
        "prefetch_count": 7,
        "confirm": True,
        "transactional": False,
    }.items() <= channel.items()
    assert await house.get(f"{path}/channels") == [channel]
    shown = await house.get(f"/api/channels/{quote(channel['name'], safe='')}")
    (consumer,) = await house.get("/api/consumers")
    assert shown == channel | {"consumer_details": [consumer]}
    assert {
        "consumer_tag": "tag",
        "ack_required": True,
        "prefetch_count": 7,
        "queue": {"name": "q", "vhost": "/"},
        "arguments": {"x-priority": 3},
    }.items() <= consumer.items()
    assert consumer["channel_details"]["connection_name"] == session.name
    assert await house.get("/api/consumers/%2F") == [consumer]
    assert await house.get("/api/vhosts/%2F/connections") == [connection]
    assert await house.get("/api/vhosts/%2F/channels") == [channel]


@in_house()
async def test_closed_for_a_reason(house: House) -> None:
    for reason, said in (("because", "because"), ("", "Closed via management plugin")):
        session = FakeSession(5)
        house.broker.sessions.add(session)
        path = f"/api/connections/{quote(session.name)}"
        headers = {"x-reason": reason}
        assert await house.call("DELETE", path, headers=headers) == (204, None)
        assert session.closed == said
        house.broker.sessions.remove(session)
        assert (await house.call("DELETE", path))[0] == 404
    assert (await house.call("GET", "/api/channels/nosuch"))[0] == 404


@in_house(asks=True)
async def test_one_sees_ones_own(house: House) -> None:
    await house.add_user("ana")
    anas, others = FakeSession(1, "ana"), FakeSession(2, "boss")
    house.broker.sessions.add(anas)
    house.broker.sessions.add(others)
    assert len(await house.get("/api/connections")) == 2
    _, rows = await house.call("GET", "/api/connections", user="ana")
    assert [row["name"] for row in rows] == [anas.name]
    path = f"/api/connections/{quote(others.name)}"
    assert (await house.call("DELETE", path, user="ana"))[0] == 404
    assert others.closed is None
