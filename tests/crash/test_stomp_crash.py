"""kill -9 under STOMP: what had a RECEIPT is there, and a transaction is there as a whole or not.

One client sends with receipts, many at a time. Another sends pairs in transactions, and takes
messages and acknowledges them in the same transactions: the receipt of a COMMIT says that all of
it is on disk. A third acknowledges with receipts. Then the broker is killed, started, and all of
it goes on.
"""

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

from entrepot import testing
from entrepot.log.disk import FileDisk
from entrepot.log.verify import Verdict, verify
from tests.end_to_end.bare_stomp import BareStomp

SENT, TAKEN, PAIRS = "/queue/sent", "/queue/taken", "/queue/pairs"
UNANSWERED_MAX = 100
ANSWERED_S_MAX = 30.0


class Account:
    """What the clients know. Each set has one writer."""

    def __init__(self) -> None:
        self.sent = self.taken = self.pairs = 0  # Numbers below them were used.
        self.promised: set[int] = set()  # Their receipts came.
        self.acknowledged: set[int] = set()  # The ACK was sent, and no more is known.
        self.settled: set[int] = set()  # The receipt of the ACK came.
        self.committed: set[int] = set()  # The receipt of the COMMIT came.


def send(peer: BareStomp, account: Account) -> None:
    unanswered: set[int] = set()
    while True:
        while len(unanswered) < UNANSWERED_MAX:
            number = account.sent
            account.sent += 1
            unanswered.add(number)
            peer.say("SEND", b"%d" % number, destination=SENT, receipt=number)
        number = int(peer.expect("RECEIPT").headers["receipt-id"])
        unanswered.remove(number)
        account.promised.add(number)


def send_pairs(peer: BareStomp, account: Account) -> None:
    while True:
        number = account.pairs
        account.pairs += 1
        peer.say("BEGIN", transaction=number)
        for half in (b"a", b"b"):
            peer.say("SEND", b"%d%s" % (number, half), destination=PAIRS, transaction=number)
        peer.say("COMMIT", transaction=number, receipt=number)
        assert peer.expect("RECEIPT").headers["receipt-id"] == str(number)
        account.committed.add(number)


def take(peer: BareStomp, account: Account) -> None:
    peer.ask("SUBSCRIBE", destination=TAKEN, id=1, ack="client-individual", prefetch_count=1)
    while True:
        for _ in range(10):
            peer.say("SEND", b"%d" % account.taken, destination=TAKEN)
            account.taken += 1
        for _ in range(10):
            frame = peer.expect("MESSAGE")
            number = int(frame.body)
            assert number not in account.settled, f"message {number} was settled and came back"
            account.acknowledged.add(number)
            peer.say("ACK", id=frame.headers["ack"], receipt=number)
            # What comes next may be the next message, for which there is room before.
            while (frame := peer.read()) is not None and frame.command == "MESSAGE":
                peer.say("NACK", id=frame.headers["ack"])
            assert frame is not None, "closed"
            account.settled.add(int(frame.headers["receipt-id"]))


def until_cut(work: Callable[[BareStomp, Account], None], peer: BareStomp, on: Account) -> None:
    try:
        work(peer, on)
    except (ConnectionError, AssertionError) as error:
        if isinstance(error, AssertionError) and "closed" not in str(error):
            raise
    finally:
        peer.close()


def live(broker: testing.Broker, account: Account, seconds: float) -> None:
    before = [len(known) for known in (account.promised, account.settled, account.committed)]
    with ThreadPoolExecutor() as pool:
        futures = [
            pool.submit(until_cut, work, BareStomp(broker).connect(), account)
            for work in (send, send_pairs, take)
        ]
        time.sleep(seconds)
        deadline = time.monotonic() + ANSWERED_S_MAX
        while time.monotonic() < deadline:
            now = [len(known) for known in (account.promised, account.settled, account.committed)]
            if all(more > less for more, less in zip(now, before, strict=True)):
                break
            time.sleep(0.01)
        broker.kill()
        for future in futures:
            future.result()
    assert all(more > less for more, less in zip(now, before, strict=True))


def drain(broker: testing.Broker, destination: str) -> list[bytes]:
    """Everything that is ready, by way of a last message that is not."""
    with BareStomp(broker).connect() as peer:
        peer.ask("SEND", b"end", destination=destination)
        peer.say("SUBSCRIBE", destination=destination, id=1)
        found = []
        while (body := peer.expect("MESSAGE").body) != b"end":
            found.append(body)
        return found


def kill_again_and_again(broker: testing.Broker, rounds: int) -> None:
    random, account = Random(rounds), Account()
    for _ in range(rounds):
        live(broker, account, random.uniform(0.05, 0.5))
        broker.start()
    sent = [int(body) for body in drain(broker, SENT)]
    assert [number for number, count in Counter(sent).items() if count > 1] == [], "twice"
    assert account.promised - set(sent) == set(), "promised and lost"
    pairs = Counter(body[:-1] for body in drain(broker, PAIRS))
    assert [number for number, count in pairs.items() if count != 2] == [], "half a transaction"
    assert account.committed - {int(number) for number in pairs} == set(), "committed and lost"
    taken = {int(body) for body in drain(broker, TAKEN)}
    assert account.settled & taken == set(), "settled, and here again"


def kill(directory: Path, rounds: int) -> None:
    with testing.broker(directory) as broker:
        kill_again_and_again(broker, rounds)
    assert Verdict.CORRUPT not in [report.verdict for report in verify(FileDisk(directory))]


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_what_had_a_receipt_survives_a_kill(tmp_path: Path) -> None:
    kill(tmp_path / "data", 3)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_had_a_receipt_survives_many_kills() -> None:
    with tempfile.TemporaryDirectory() as directory:
        kill(Path(directory) / "data", 40)
