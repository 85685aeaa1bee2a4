"""The way of one message through the broker, call by call: `python -m bench.hops`.

A broker in the simulated world, a publisher and a consumer on connections of their own, and one
message with properties of its own. Every call of a function of ours is written down from the
bytes of a publish to those of its confirm and its delivery, from those of an acknowledgement to
its settlement, and for a message whose time to live ends: AMQP; with `--mqtt`, from the bytes of a
PUBLISH to those of its answer and its delivery; with `--kafka`, from those of a Produce to its
answer and to that of the Fetch that waits for it, and for the next Fetch. Not a measurement of
time: what it counts is the same on every machine, and what a reader has to follow.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, cast

import entrepot
from entrepot.broker.server_settings import Defaults
from entrepot.core import batch
from entrepot.core.record import Record
from entrepot.gateway.kafka.adapter import KafkaAdapter
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods import basic, confirm, queue
from entrepot.wire.amqp.properties import BasicProperties, encode
from entrepot.wire.kafka import fetch, produce
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from entrepot.wire.kafka.frames import request_header, size_prefix
from entrepot.wire.kafka.produce import ProducePartition, ProduceRequest
from entrepot.wire.mqtt.packets import V311, Ack, Disconnect, write
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.scan import Event, Publishes
from sim.loop import SimLoop, run
from tests.unit.gateway.amqp.node import FRAME_BYTES_MAX, Client, FakeLink, Node
from tests.unit.gateway.kafka import node as kafka
from tests.unit.gateway.mqtt import node as mqtt

_ROOT = Path(entrepot.__file__).parent
_TTL_MS = 5_000
_PRODUCE, _FETCH = 13, 18  # Versions: the newest.
_ASIDE = ("Log._keep_doing",)  # What the broker does now and then, whatever comes.
_COMPREHENSIONS = ("<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>", "<lambda>")


class Call(NamedTuple):
    module: str
    function: str
    depth: int


class Walk:
    """The calls between `begin` and `end`."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self._depth = 0
        self._is_aside = False

    def begin(self) -> None:
        sys.setprofile(self._note)

    def end(self) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(str(_ROOT)) or code.co_name in _COMPREHENSIONS:
            return
        if event == "call":
            call = Call(
                str(Path(code.co_filename).relative_to(_ROOT)), code.co_qualname, self._depth
            )
            self._is_aside = call.function in _ASIDE if not self._depth else self._is_aside
            if not self._is_aside:
                self.calls.append(call)
            self._depth += 1
        elif event == "return":
            self._depth = max(0, self._depth - 1)

    @property
    def module_count(self) -> int:
        return len({call.module for call in self.calls})


async def _walked(act: Callable[[], object], seconds: float = 0.2) -> Walk:
    """Note the calls of an act, and of all that comes of it in that time."""
    walk = Walk()
    walk.begin()
    try:
        act()
        await asyncio.sleep(seconds)
    finally:
        walk.end()
    return walk


def _publish(key: str, number: int) -> bytes:
    """Return the bytes of a publish to a queue, with properties of its own."""
    properties = BasicProperties(
        content_type="application/json",
        headers={"number": number, "source": f"application {number}"},
        delivery_mode=2,
        message_id=f"message-{number}",
        timestamp=1_700_000_000 + number,
    )
    method = basic.Publish(0, "", key)
    return b"".join(content(1, method, encode(properties), b"x" * 100, FRAME_BYTES_MAX))


async def _story(loop: SimLoop, durable: bool) -> dict[str, Walk]:
    node = Node(loop, authorizes=False)
    await node.broker.open()
    publisher, consumer = await node.client(), await node.client()
    await publisher.ask(queue.Declare(queue="work", durable=durable), queue.DeclareOk)
    await publisher.ask(confirm.Select(), confirm.SelectOk)
    await consumer.ask(basic.Qos(prefetch_count=10), basic.QosOk)
    await consumer.ask(basic.Consume(queue="work", consumer_tag="c"), basic.ConsumeOk)

    for number in range(1, 4):  # What is loaded or remembered for the first ones is not the way.
        publisher.send(_publish("work", number))
        await asyncio.sleep(1)
        consumer.say(basic.Ack(number))
        await asyncio.sleep(1)
    walks: dict[str, Walk] = {}
    published, acknowledged = _publish("work", 4), method_frame(1, basic.Ack(4))
    walks["publish, confirm, delivery"] = await _walked(lambda: publisher.send(published))
    walks["acknowledgement"] = await _walked(lambda: consumer.send(acknowledged))
    publisher.heard()  # The confirms.
    walks["death by time to live"] = await _death(publisher, durable)
    await node.broker.close()
    return walks


async def _death(publisher: Client, durable: bool) -> Walk:
    await publisher.ask(queue.Declare(queue="dead", durable=durable), queue.DeclareOk)
    arguments: dict[str, Any] = {
        "x-message-ttl": _TTL_MS,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
    }
    mortal = queue.Declare(queue="mortal", durable=durable, arguments=arguments)
    await publisher.ask(mortal, queue.DeclareOk)
    publisher.send(_publish("mortal", 5))
    await asyncio.sleep(10)
    publisher.send(_publish("mortal", 6))
    await asyncio.sleep(_TTL_MS / 1_000 - 0.1)
    return await _walked(lambda: None, 0.3)


async def _mqtt_story(loop: SimLoop) -> dict[str, Walk]:
    node = mqtt.Node(loop)
    await node.broker.open()
    context = node.context()
    walks: dict[str, Walk] = {}
    for act, qos, is_clean in (
        ("QoS 0 to a subscriber of QoS 0", 0, True),
        ("QoS 1 to a subscriber of QoS 0", 0, True),
        ("QoS 1 to a subscriber of QoS 1", 1, True),
        ("QoS 1 to a session that is stored", 1, False),
    ):
        publisher, subscriber = mqtt.Client(context), mqtt.Client(context)
        await publisher.open(f"publisher of {act}")
        await subscriber.open(f"subscriber of {act}", "a/+", qos=qos, clean=is_clean)
        published_qos = int(act[4])
        for number in range(1, 5):
            packet = mqtt.publication("a/b", b"%d" % number, published_qos, number)
            walks[act] = await _walked(partial(publisher.send, packet))
            acks = [write(each, V311) for each in _pubacks(subscriber.events())]
            walk = await _walked(partial(subscriber.send, *acks))
            if qos:
                walks[f"{act}: acknowledgement"] = walk
        subscriber.send(Disconnect())
        await asyncio.sleep(1)
    await node.broker.close()
    return walks


def _pubacks(events: Sequence[Event]) -> list[Ack]:
    runs = [event for event in events if isinstance(event, Publishes)]
    return [Ack(PacketType.PUBACK, each) for run in runs for each in run.ids]


def mqtt_walks() -> dict[str, Walk]:
    """Return the walk of each act, over MQTT."""
    return run(0, _mqtt_story)


async def _kafka_story(loop: SimLoop) -> dict[str, Walk]:
    node = kafka.Node(loop, Defaults())
    await node.start()
    topic = await node.context.broker.create_topic("orders", 1, {"durability": "os"})
    producer, consumer = (
        KafkaAdapter(cast(Any, FakeLink()), replace(node.context)) for _ in range(2)
    )
    walks: dict[str, Walk] = {}
    session_id = 0
    for number in range(5):
        wanted = FetchPartition(0, 0, max(0, number - 1), -1, -1, 1 << 20)
        asked = FetchRequest(
            max_wait_ms=5_000 if number else 0,
            min_bytes=1,
            max_bytes=1 << 25,
            session_id=session_id,
            session_epoch=number,
            topics=[FetchTopic(None, topic.id, [wanted])],
        )
        message = _kafka_request(Api.FETCH, number, fetch.encode_request(_FETCH, asked))
        walks["the next fetch, which waits"] = await _walked(partial(_feed, consumer, message))
        if not number:
            (told,) = cast(FakeLink, consumer.link).writes
            session_id = fetch.decode_response(_FETCH, memoryview(told), 9).session_id
            continue
        record = Record(b"key", b"x" * 100)
        data = batch.build([record], now_ms=node.clock.now_ms(), producer_id=1, producer_epoch=0,
                           sequence_first=number - 1)  # fmt: skip
        produced = ProduceRequest(None, -1, 1_000, [ProducePartition(None, topic.id, 0, data)])
        message = _kafka_request(Api.PRODUCE, number, produce.encode_request(_PRODUCE, produced))
        walks["produce, its answer, delivery"] = await _walked(partial(_feed, producer, message))
    await node.stop()
    return walks


def _kafka_request(api: Api, number: int, message: bytes) -> bytes:
    version = _PRODUCE if api is Api.PRODUCE else _FETCH
    frame = request_header(api, version, number, "client") + message
    return size_prefix(len(frame)) + frame


def _feed(adapter: KafkaAdapter, data: bytes) -> None:
    adapter.writable()[: len(data)] = data
    adapter.received(len(data))


def kafka_walks() -> dict[str, Walk]:
    """Return the walk of each act, over Kafka's protocol."""
    return run(0, _kafka_story)


def walks(*, durable: bool) -> dict[str, Walk]:
    """Return the walk of each act."""
    return run(0, lambda loop: _story(loop, durable))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hops", description=__doc__)
    parser.add_argument("--durable", action="store_true", help="a queue that survives a crash")
    parser.add_argument("--mqtt", action="store_true", help="over MQTT")
    parser.add_argument("--kafka", action="store_true", help="over Kafka's protocol")
    parser.add_argument("--calls", action="store_true", help="every call, not only how many")
    options = parser.parse_args()
    if options.kafka:
        found = kafka_walks()
    else:
        found = mqtt_walks() if options.mqtt else walks(durable=options.durable)
    for act, walk in found.items():
        print(f"{act}: {len(walk.calls)} calls in {walk.module_count} modules")
        if options.calls:
            for call in walk.calls:
                print(f"  {'  ' * call.depth}{call.module} {call.function}")


if __name__ == "__main__":
    main()
