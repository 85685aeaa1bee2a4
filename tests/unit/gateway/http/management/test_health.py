"""Health: who is asked nothing, what is told, and when the broker is not ready."""

import asyncio
import json
from dataclasses import replace
from typing import Any

from entrepot.core import limits
from entrepot.core.ports import Space
from entrepot.gateway.http.management import health
from entrepot.gateway.http.management.call import Sources
from entrepot.wire.http.request import Request
from tests.unit.gateway.http.management.house import House, in_house

NOTHING = {"partitions": 0, "queues": 0, "tiers": 0}


async def asked(house: House, path: str, method: str = "GET") -> tuple[int, Any]:
    """Without a login."""
    response = await house.handle(Request(method, path, {"host": "example.com"}, b""), "10.0.0.9")
    return response.status, json.loads(response.body) if response.body else None


@in_house(asks=True)
async def test_nobody_has_to_log_in(house: House) -> None:
    assert await asked(house, "/health/live") == (200, {"status": "live"})
    ready = {"status": "ready", "alarms": [], "down": NOTHING}
    assert await asked(house, "/health/ready") == (200, ready)
    assert await asked(house, "/health/ready", "HEAD") == (200, ready)
    assert (await asked(house, "/health/ready", "POST"))[0] == 405
    for path in ("/health", "/health/", "/health/ready/more", "/health/other"):
        assert (await asked(house, path))[0] == 404
    assert (await asked(house, "/api/overview"))[0] == 401


@in_house()
async def test_a_broker_that_accepts_nobody_is_not_ready(house: House) -> None:
    await house.call("PUT", "/api/application", {"running": False})
    status, said = await asked(house, "/health/ready")
    assert (status, said["status"]) == (503, "stopped")
    assert (await asked(house, "/health/live"))[0] == 200
    await house.call("PUT", "/api/application", {"running": True})
    assert (await asked(house, "/health/ready"))[0] == 200


@in_house()
async def test_what_is_down_or_short_is_counted(house: House) -> None:
    await house.declare("secret")
    house.broker.vhosts.default.queues["secret"].stop("a reason")

    async def nearly_full() -> Space:
        return Space(limits.DISK_FREE_BYTES_LOW - 1, limits.GIB)

    health_of = house.handle._health
    health_of._context = replace(health_of._context, sources=Sources(space=nearly_full))
    status, said = await asked(house, "/health/ready")
    assert (status, said["alarms"], said["down"]) == (200, ["disk"], NOTHING | {"queues": 1})
    assert "secret" not in json.dumps(said)
    assert "reason" not in json.dumps(said)


@in_house()
async def test_it_is_counted_once_a_second(house: House) -> None:
    await house.declare("work")
    assert (await asked(house, "/health/ready"))[1]["down"]["queues"] == 0
    house.broker.vhosts.default.queues["work"].stop("a reason")
    assert (await asked(house, "/health/ready"))[1]["down"]["queues"] == 0
    await asyncio.sleep(health.KEPT_S)
    assert (await asked(house, "/health/ready"))[1]["down"]["queues"] == 1
