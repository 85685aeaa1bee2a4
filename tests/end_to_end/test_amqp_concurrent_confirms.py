"""Every publish is confirmed, refused or returned, however many channels publish at once."""

import asyncio
from random import Random

import aiormq
import pytest
from aiormq import spec
from aiormq.exceptions import DeliveryError, PublishError

from entrepot.testing import broker

ROUNDS, CHANNELS, AT_ONCE = 10, 20, 10
WAIT_S = 60
SIZES = (0, 1, 20, 20, 20, 600, 5_000, 200_000)  # The last needs several frames.


async def told(channel: aiormq.abc.AbstractChannel, random: Random, queues: list[str]) -> str:
    """What became of one message. Raises TimeoutError when nothing is said of it."""
    properties = spec.Basic.Properties(
        delivery_mode=random.choice((1, 2)), priority=random.randrange(4)
    )
    try:
        async with asyncio.timeout(WAIT_S):
            await channel.basic_publish(
                bytes(random.choice(SIZES)),
                routing_key=random.choice([*queues, "nowhere"]),
                mandatory=random.random() < 0.5,
                properties=properties,
            )
    except PublishError:
        return "returned"
    except DeliveryError:
        return "refused"
    return "confirmed"


async def declare(channel: aiormq.abc.AbstractChannel) -> list[str]:
    """More durable queues than are synced one by one, and some of every other kind."""
    queues = [f"durable-{number}" for number in range(12)]
    for name in queues:
        await channel.queue_declare(name, durable=True)
    await channel.queue_declare("transient")
    await channel.queue_declare("priority", durable=True, arguments={"x-max-priority": 3})
    full = {"x-max-length": 5, "x-overflow": "reject-publish"}
    await channel.queue_declare("full", durable=True, arguments=full)
    return [*queues, "transient", "priority", "full"]


async def noise(connection: aiormq.abc.AbstractConnection) -> None:
    """Channels that come and go, and queues that are declared and deleted meanwhile."""
    for _ in range(3):
        channel = await connection.channel()
        await channel.queue_declare("passing", durable=True)
        await channel.queue_delete("passing")
        await channel.close()


async def publish(url: str, seed: int) -> dict[str, int]:
    random, counts = Random(seed), dict[str, int]()
    connection = await aiormq.connect(url)
    channels = [await connection.channel(publisher_confirms=True) for _ in range(CHANNELS)]
    queues = await declare(channels[0])
    for _ in range(ROUNDS):
        publishes = [told(each, random, queues) for each in channels for _ in range(AT_ONCE)]
        *outcomes, _ = await asyncio.gather(*publishes, noise(connection))
        for outcome in outcomes:
            assert isinstance(outcome, str)
            counts[outcome] = counts.get(outcome, 0) + 1
    await connection.close()
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fsync", "interval", "os"])
def test_something_is_said_of_every_message(durability: str) -> None:
    with broker(durability=durability) as server:
        counts = asyncio.run(publish(server.amqp_url, seed=1))
    assert sum(counts.values()) == ROUNDS * CHANNELS * AT_ONCE
    assert set(counts) == {"confirmed", "refused", "returned"}
