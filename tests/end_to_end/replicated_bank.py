"""A member of a group with a state machine: accounts, and transfers that do not commute.

Prints how many messages its state follows from, and the state, when the group says "end".
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import entrepot
from entrepot.client.messaging.groups import Sent


class Bank:
    """A state in which the order of everything matters."""

    def __init__(self) -> None:
        self.count = 0
        self.accounts = [100, 100, 100]
        self.ended = threading.Event()

    def apply(self, sent: Sent) -> Any:
        self.count += 1
        if sent.value == "end":
            self.ended.set()
            return None
        source, target, percent = sent.value
        amount = self.accounts[source] * percent // 100
        if amount == 0:
            raise ValueError(f"account {source} is empty")
        self.accounts[source] -= amount
        self.accounts[target] = (self.accounts[target] + 3 * amount) % 10_007
        return amount

    def text(self) -> str:
        return f"{self.count} {json.dumps(self.accounts)}"


def main() -> None:
    amqp, kafka, name, me, count = sys.argv[1:]
    bank = Bank()
    with entrepot.Client(amqp, kafka) as client:
        group = client.group(name, member=me, machine=bank.apply)
        group.join()
        print("in", flush=True)
        number = int(me[1:])
        for turn in range(int(count)):
            try:
                amount = group.send([(number + turn) % 3, (number + 2 * turn) % 3, 7 + turn % 80])
                print("moved", amount, flush=True)
            except ValueError:
                print("empty", flush=True)
            time.sleep(0.01)
        print("finished", flush=True)
        bank.ended.wait()
        print("state", bank.text(), flush=True)


if __name__ == "__main__":
    main()
