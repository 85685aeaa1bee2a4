"""kill -9 under AMQP: what was confirmed is there, and what was settled does not come back.

One client publishes with confirms, many at a time. Another takes messages in transactions:
the answer to a commit says that its acknowledgements are permanent. A third acknowledges as
most do, without hearing anything about it, gives some messages back and keeps others; what it
had may come again or may not. Then the broker is killed, started, and all of it goes on.
"""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest
from pika import spec

from entrepot import testing
from entrepot.log.disk import FileDisk
from entrepot.log.verify import Verdict, verify
from tests.crash.amqp_peer import Cut, Peer

QUEUE = "crash"
UNCONFIRMED_MAX = 200
TAKEN_AT_ONCE = 5
CONFIRMED_S_MAX = 30.0


class Account:
    """What the clients know. Each set has one writer."""

    def __init__(self) -> None:
        self.published = 0  # Numbers below it were.
        self.confirmed: set[int] = set()
        self.settled: set[int] = set()  # Their transaction was answered.
        self.doubtful: set[int] = set()  # Acknowledged in one that may not have been,
        self.acknowledged: set[int] = set()  # or without any: nobody knows whether it arrived.

    def take(self, body: bytes) -> int:
        number = int(body)
        assert number not in self.settled, f"message {number} was settled and came back"
        return number


def publish(peer: Peer, account: Account) -> None:
    """Confirms count from one on each channel: what is unconfirmed is known by its tag."""
    peer.tell(spec.Confirm.Select())
    peer.expect(spec.Confirm.SelectOk)
    unconfirmed: dict[int, int] = {}
    tag = 0
    while True:
        if len(unconfirmed) < UNCONFIRMED_MAX:
            tag += 1
            unconfirmed[tag] = account.published
            account.published += 1
            peer.publish(QUEUE, b"%d" % unconfirmed[tag])
        while peer.has_more() or len(unconfirmed) == UNCONFIRMED_MAX:
            ack = peer.expect(spec.Basic.Ack)
            tags = [each for each in unconfirmed if each <= ack.delivery_tag]
            for each in tags if ack.multiple else [ack.delivery_tag]:
                account.confirmed.add(unconfirmed.pop(each))


def take_in_transactions(peer: Peer, account: Account) -> None:
    peer.tell(spec.Tx.Select())
    peer.expect(spec.Tx.SelectOk)
    while True:
        got = [found for _ in range(TAKEN_AT_ONCE) if (found := peer.get(QUEUE)) is not None]
        numbers = [account.take(body) for _, body in got]
        account.doubtful.update(numbers)
        for tag, _ in got:
            peer.tell(spec.Basic.Ack(tag))
        peer.tell(spec.Tx.Commit())
        peer.expect(spec.Tx.CommitOk)
        account.settled.update(numbers)


def take(peer: Peer, account: Account, random: Random) -> None:
    """Some are given back, others kept: there are holes in what is settled."""
    peer.tell(spec.Basic.Qos(prefetch_count=50))
    peer.expect(spec.Basic.QosOk)
    peer.tell(spec.Basic.Consume(queue=QUEUE, consumer_tag="c"))
    peer.expect(spec.Basic.ConsumeOk)
    while True:
        delivery = peer.expect(spec.Basic.Deliver)
        number = account.take(peer.content())
        chance = random.random()
        if chance < 0.1:
            peer.tell(spec.Basic.Nack(delivery.delivery_tag, requeue=True))
        elif chance < 0.98:
            account.acknowledged.add(number)
            peer.tell(spec.Basic.Ack(delivery.delivery_tag))


def until_cut(work: Callable[..., None], peer: Peer, *arguments: object) -> None:
    try:
        work(peer, *arguments)
    except Cut:
        return
    finally:
        peer.close()


def live(broker: testing.Broker, account: Account, random: Random, seconds: float) -> None:
    """All three at work until the broker is killed, and that something was confirmed before."""
    host, port = broker.endpoints["amqp"]
    before = len(account.confirmed)
    with ThreadPoolExecutor() as pool:
        peers = [Peer(host, port) for _ in range(3)]
        futures = [
            pool.submit(until_cut, publish, peers[0], account),
            pool.submit(until_cut, take_in_transactions, peers[1], account),
            pool.submit(until_cut, take, peers[2], account, random),
        ]
        deadline = time.monotonic() + CONFIRMED_S_MAX
        time.sleep(seconds)
        while len(account.confirmed) == before and time.monotonic() < deadline:
            time.sleep(0.01)
        broker.kill()
        for future in futures:
            future.result()
    assert len(account.confirmed) > before


def drain(broker: testing.Broker) -> list[int]:
    peer = Peer(*broker.endpoints["amqp"])
    numbers = []
    while (found := peer.get(QUEUE)) is not None:
        numbers.append(int(found[1]))
    peer.close()
    return numbers


def kill_again_and_again(broker: testing.Broker, rounds: int) -> Account:
    random, account = Random(rounds), Account()
    peer = Peer(*broker.endpoints["amqp"])
    peer.tell(spec.Queue.Declare(queue=QUEUE, durable=True))
    peer.expect(spec.Queue.DeclareOk)
    peer.close()
    for _ in range(rounds):
        live(broker, account, random, random.uniform(0.05, 0.5))
        broker.start()
    left = drain(broker)
    assert [number for number, count in Counter(left).items() if count > 1] == [], "twice"
    assert account.settled.isdisjoint(left), "settled, and here again"
    lost = account.confirmed - set(left) - account.acknowledged - account.doubtful
    assert lost == set(), "confirmed and lost"
    assert len(account.confirmed) > 10 * rounds
    assert len(account.settled) > rounds
    return account


def kill(directory: Path, rounds: int, durability: str = "fsync") -> None:
    with testing.broker(directory, durability=durability) as broker:
        kill_again_and_again(broker, rounds)
    assert Verdict.CORRUPT not in [report.verdict for report in verify(FileDisk(directory))]


@pytest.mark.parametrize(
    "durability",
    ["fsync", *(pytest.param(each, marks=pytest.mark.slow) for each in ("interval", "os"))],
)
def test_a_few_kills(tmp_path: Path, durability: str) -> None:
    kill(tmp_path / "data", 3, durability)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_forty_kills(tmp_path: Path) -> None:
    kill(tmp_path / "data", 40)


if __name__ == "__main__":  # python -m tests.crash.test_amqp_crash 200
    with tempfile.TemporaryDirectory() as directory:
        kill(Path(directory) / "data", int(sys.argv[1]))
    print(f"{sys.argv[1]} kills: nothing lost, nothing came back")
