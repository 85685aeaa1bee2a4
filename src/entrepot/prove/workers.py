"""The two loops of a trial: a producer that goes on whatever happens, and a consumer.

    python -m entrepot.prove.workers '{"role": "consumer", ...}'

Both connect again when something fails, with a new client. What they do in which order is all
there is to the semantics.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entrepot.in_order import InOrder
from entrepot.once import Once
from entrepot.prove.clients import Delivery, Receiver, Sender, Setting, calls_of
from entrepot.prove.notes import Notes
from entrepot.prove.semantics import Semantics

COUNT = 60
# Where the producer waits for the others: before the consumer is killed, itself, the broker; and
# before the end, which everybody is to see.
HOLDS = (20, 40, 55, 57)
PRODUCER_CRASHES_AT = 30
CONSUMER_CRASHES_AT = 9  # The number of its deliveries before.
CONSUMER_HOLDS_FROM = 45
GIVEN_BACK = 12  # By who has numbers to repair the order with.
PAUSE_S = 0.1
DATABASE = "done.db"


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker is told."""

    role: str
    protocol: str
    setting: Setting
    directory: Path
    life: int  # The first, or the one after it was killed.

    @classmethod
    def read(cls, text: str) -> Job:
        said = json.loads(text)
        ends = {name: (end[0], end[1]) for name, end in said["endpoints"].items()}
        setting = Setting(Semantics(said["semantics"]), ends)
        return cls(said["role"], said["protocol"], setting, Path(said["directory"]), said["life"])

    def text(self) -> str:
        return json.dumps(
            {
                "role": self.role,
                "protocol": self.protocol,
                "semantics": self.setting.semantics.value,
                "endpoints": self.setting.endpoints,
                "directory": str(self.directory),
                "life": self.life,
            }
        )

    @property
    def clients(self) -> Any:
        return calls_of(self.protocol)


def main(text: str) -> None:
    job = Job.read(text)
    notes = Notes(job.directory, job.role)
    if job.role == "producer":
        Producing(job, notes).run()
    else:
        Consuming(job, notes).run()


class Producing:
    def __init__(self, job: Job, notes: Notes) -> None:
        self._job = job
        self._notes = notes
        self._held = notes.numbers("hold")
        self._sender: Sender | None = None

    def run(self) -> None:
        number = self._first()
        while number < COUNT:
            if number in HOLDS and number not in self._held:
                self._held.append(number)
                self._notes.hold(number)
            self._notes.write("try", number)
            if self._send(number):
                self._notes.write("sent", number)
            elif self._job.setting.semantics is not Semantics.AT_MOST_ONCE:
                continue
            number += 1
        self._notes.write("end")

    def _first(self) -> int:
        """Return where to go on: behind what was tried, what is known to be there, or asked for."""
        if self._job.setting.semantics is Semantics.AT_MOST_ONCE:
            return 1 + max(self._notes.numbers("try"), default=-1)
        while (sender := self._connected()) is None:
            pass
        last = sender.last()
        return 1 + (max(self._notes.numbers("sent"), default=-1) if last is None else last)

    def _send(self, number: int) -> bool:
        """Return whether it was sent, as far as the semantics wants to know that."""
        sender = self._connected()
        if sender is None:
            return False
        try:
            sender.send(number)
            if self._job.life == 1 and number == PRODUCER_CRASHES_AT:
                self._notes.crash(number)
            sender.commit()
        except Exception:
            traceback.print_exc()
            close(sender)
            self._sender = None
            return False
        return True

    def _connected(self) -> Sender | None:
        if self._sender is None:
            self._sender = attempt(self._job.clients.sender, self._job.setting)
        return self._sender


class Consuming:
    def __init__(self, job: Job, notes: Notes) -> None:
        self._job = job
        self._notes = notes
        self._semantics = job.setting.semantics
        self._deliveries = 0
        self._database = sqlite3.connect(job.directory / DATABASE)
        self._database.execute("create table if not exists done (number integer)")
        self._database.commit()
        self._do_once = Once(self._database)(lambda _, number: self._record(number))
        self._do_in_order = InOrder(self._database)(lambda _, body: self._record(int(body)))
        self._given_back = bool(notes.numbers("back"))

    def run(self) -> None:
        while True:
            receiver: Receiver | None = attempt(self._job.clients.receiver, self._job.setting)
            if receiver is None:
                continue
            self._notes.write("ready")
            try:
                while True:
                    delivery = receiver.receive()
                    if delivery is not None:
                        self._notes.write("got", delivery.number)
                        self._handle(receiver, delivery)
                        self._deliveries += 1
            except Exception:
                traceback.print_exc()
            close(receiver)

    def _handle(self, receiver: Receiver, delivery: Delivery) -> None:
        number = delivery.number
        match self._semantics:
            case Semantics.AT_MOST_ONCE:
                receiver.acknowledge(delivery)
                self._stop(number)
                self._notes.write("did", number)
                return
            case Semantics.TRANSACTION:
                receiver.move(delivery)
                self._stop(number)
                receiver.commit()
                return
            case Semantics.AT_LEAST_ONCE | Semantics.TIMEOUT:
                self._notes.write("did", number)
            case Semantics.EXACTLY_ONCE:
                self._do_once(str(number), number)
            case Semantics.NUMBERED:
                if number == GIVEN_BACK and not self._given_back:
                    self._given_back = True
                    self._notes.write("back", number)
                    receiver.give_back(delivery)
                    return
                self._do_in_order(delivery.place, str(number).encode())
        self._stop(number)
        receiver.acknowledge(delivery)

    def _stop(self, number: int) -> None:
        """In the middle of the work: wait to be killed, or until the broker was."""
        if self._job.life == 1 and self._deliveries == CONSUMER_CRASHES_AT:
            self._notes.crash(number)
        if number >= CONSUMER_HOLDS_FROM and not self._notes.numbers("hold"):
            self._notes.hold(0)

    def _record(self, number: int) -> None:
        self._database.execute("insert into done values (?)", [number])


def attempt(connect: Callable[[Setting], Any], setting: Setting) -> Any:
    """Return a client, or None after a moment if there is no broker."""
    try:
        return connect(setting)
    except Exception:
        traceback.print_exc()
        time.sleep(PAUSE_S)
        return None


def close(client: Sender | Receiver) -> None:
    """Close a client that has failed: who has its name might be kept out otherwise."""
    try:
        client.close()
    except Exception:
        traceback.print_exc()


if __name__ == "__main__":
    main(sys.argv[1])
