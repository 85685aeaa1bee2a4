"""A burst of confirmed messages into a queue with a time to live, while others take them out.

Five thousand messages come in a few writes, which is more than a queue hands out in a turn. A
consumer takes them, and two clients get what they can meanwhile. Each message must end with
one of them, or as a dead letter.
"""

import threading
from collections.abc import Callable, Iterator

import pytest
from pika import frame, spec

from entrepot.testing import Broker
from tests.crash.amqp_peer import Peer

COUNT = 5_000
WRITES = 2


def burst(queue: str, numbers: range) -> bytes:
    properties = spec.BasicProperties(delivery_mode=2)
    return b"".join(
        frame.Method(1, spec.Basic.Publish(routing_key=queue)).marshal()
        + frame.Header(1, len(body), properties).marshal()
        + frame.Body(1, body).marshal()
        for body in (b"%d" % number for number in numbers)
    )


def publish(server: Broker, queue: str) -> None:
    """Until everything is confirmed."""
    peer = connect(server)
    peer.tell(spec.Confirm.Select())
    peer.expect(spec.Confirm.SelectOk)
    for first in range(0, COUNT, COUNT // WRITES):
        peer._send(burst(queue, range(first, first + COUNT // WRITES)))
    confirmed = 0
    while confirmed < COUNT:
        ack = peer.expect(spec.Basic.Ack)
        confirmed = ack.delivery_tag if ack.multiple else confirmed + 1
    peer.close()


def connect(server: Broker) -> Peer:
    return Peer(*server.endpoints["amqp"])


def get_all(peer: Peer, queue: str) -> Iterator[bytes]:
    while True:
        peer.tell(spec.Basic.Get(0, queue, no_ack=True))
        if isinstance(peer.expect(spec.amqp_object.Method), spec.Basic.GetEmpty):
            return
        yield peer.content()


def consume(peer: Peer, queue: str, seen: list[bytes], is_over: threading.Event) -> None:
    peer.tell(spec.Basic.Consume(0, queue, "c"))
    peer.expect(spec.Basic.ConsumeOk)
    while not is_over.wait(0.001):
        while peer.has_more():
            tag = peer.expect(spec.Basic.Deliver).delivery_tag
            seen.append(peer.content())
            peer.tell(spec.Basic.Ack(tag))


def get(peer: Peer, queue: str, seen: list[bytes], is_over: threading.Event) -> None:
    while not is_over.is_set():
        seen.extend(get_all(peer, queue))


def in_threads(
    works: list[Callable[[Peer, str, list[bytes], threading.Event], None]],
    server: Broker,
    queue: str,
    meanwhile: Callable[[], None],
) -> list[bytes]:
    is_over = threading.Event()
    seen: list[list[bytes]] = [[] for _ in works]
    peers = [connect(server) for _ in works]
    threads = [
        threading.Thread(target=work, args=(peer, queue, own, is_over))
        for work, peer, own in zip(works, peers, seen, strict=True)
    ]
    for thread in threads:
        thread.start()
    try:
        meanwhile()
        threading.Event().wait(0.3)
    finally:
        is_over.set()
        for thread in threads:
            thread.join(30)
    for peer in peers:
        peer.close()
    return [body for own in seen for body in own]


@pytest.mark.parametrize("ttl_ms", [0, 20, 50])
def test_everything_is_consumed_or_a_dead_letter(server: Broker, ttl_ms: int) -> None:
    queue = f"burst-{ttl_ms}"
    dead = f"{queue}-dead"
    arguments = {
        "x-message-ttl": ttl_ms,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
    }
    peer = connect(server)
    for name, given in ((dead, {}), (queue, arguments)):
        peer.tell(spec.Queue.Declare(0, name, durable=True, arguments=given))
        peer.expect(spec.Queue.DeclareOk)
    seen = in_threads([consume, get, get], server, queue, lambda: publish(server, queue))
    seen += get_all(peer, queue)
    seen += get_all(peer, dead)
    peer.close()
    sent = {b"%d" % number for number in range(COUNT)}
    missing = sent - set(seen)
    assert not missing, f"{len(missing)} of {COUNT} are neither consumed, got, dead nor ready"
