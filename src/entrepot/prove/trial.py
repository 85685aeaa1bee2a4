"""One trial: a broker, a producer and a consumer, all killed once, and what came of it."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from entrepot.prove.clients import Setting, calls_of
from entrepot.prove.notes import STEP_S, Notes
from entrepot.prove.semantics import HIDDEN_S, Outcome, Semantics
from entrepot.prove.workers import COUNT, DATABASE, HOLDS, Job
from entrepot.testing import Broker

WAIT_S = 60.0
QUIET_S = 1.0  # Nothing comes any more when nothing has come for so long.
AWAY_S = 0.3


class Stuck(Exception):
    """A trial that does not go on."""


def run(semantics: Semantics, protocol: str) -> Outcome:
    """Run a trial. Raises Stuck."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory(prefix="entrepot-prove-")))
        broker = Broker(directory / "data", settings={"ports.sqs": 0} if protocol == "sqs" else {})
        stack.callback(broker.close)
        broker.start()
        trial = Trial(semantics, protocol, broker, directory)
        stack.callback(trial.close)
        return trial.run()


class Trial:
    def __init__(
        self, semantics: Semantics, protocol: str, broker: Broker, directory: Path
    ) -> None:
        self._protocol = protocol
        self._broker = broker
        self._directory = directory
        self._setting = Setting(semantics, broker.endpoints)
        self._clients = calls_of(protocol)
        self._notes = {role: Notes(directory, role) for role in ("producer", "consumer")}
        self._lives = dict.fromkeys(self._notes, 0)
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def run(self) -> Outcome:
        producer, consumer = self._notes["producer"], self._notes["consumer"]
        self._clients.prepare(self._setting)
        if self._setting.semantics is Semantics.NUMBERED:  # Many at once: their order can change.
            self._start("producer")
            self._until("the producer has sent", lambda: HOLDS[0] in producer.numbers("hold"))
            self._start("consumer")
        else:
            self._start("consumer")
            self._until("the consumer is there", lambda: bool(consumer.numbers("ready")))
            self._start("producer")
        self._crash("consumer")
        self._until("the consumer is back", lambda: len(consumer.numbers("ready")) > 1)
        if self._setting.semantics is Semantics.TIMEOUT:  # A broker that was killed hides nothing.
            self._until("what it had comes again", lambda: self._hidden_s() is not None)
        producer.let_go(HOLDS[0])
        self._crash("producer")
        producer.let_go(HOLDS[1])
        self._kill_broker()
        producer.let_go(HOLDS[3])
        self._until("all is sent", lambda: "end" in [note.what for note in producer.read()])
        self._until("the last has come", lambda: COUNT - 1 in consumer.numbers("got"))
        self._until("nothing comes any more", self._is_quiet)
        self._kill("consumer")
        return self._outcome()

    def _crash(self, role: str) -> None:
        """Kill it where it waits for that, and start another."""
        self._until(f"the {role} is where it is killed", lambda: self._has(role, "crash"))
        self._kill(role)
        self._start(role)

    def _kill_broker(self) -> None:
        """With messages in it, while both sides are about to use it."""
        producer, consumer = self._notes["producer"], self._notes["consumer"]
        self._until("the producer waits", lambda: HOLDS[2] in producer.numbers("hold"))
        self._until("the consumer waits", lambda: self._has("consumer", "hold"))
        seen = len(consumer.numbers("ready"))
        self._broker.kill()
        consumer.let_go(0)
        producer.let_go(HOLDS[2])
        time.sleep(AWAY_S)
        self._broker.start()
        if self._protocol not in ("kafka", "sqs"):  # Those may not even notice.
            self._until("the consumer is back", lambda: len(consumer.numbers("ready")) > seen)
        self._until("the producer goes on", lambda: HOLDS[3] in producer.numbers("hold"))

    def _has(self, role: str, what: str) -> bool:
        return bool(self._notes[role].numbers(what))

    def _is_quiet(self) -> bool:
        """Return whether all that can come has come: nothing is hidden any more, either."""
        seconds = QUIET_S + (HIDDEN_S if self._protocol == "sqs" else 0)
        return time.monotonic() - self._notes["consumer"].read()[-1].at_s > seconds

    def _until(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            for role, process in self._running.items():
                if process.poll() not in (None, 0):
                    raise Stuck(f"the {role} has ended:\n{self._said(role)}")
            if time.monotonic() > deadline:
                said = "\n".join(self._said(role) for role in self._notes)
                raise Stuck(f"in {WAIT_S:.0f} seconds it did not happen that {what}\n{said}")
            time.sleep(STEP_S)

    def _said(self, role: str) -> str:
        path = self._directory / f"{role}.log"
        return path.read_text(errors="replace")[-2_000:] if path.exists() else ""

    def _start(self, role: str) -> None:
        self._lives[role] += 1
        job = Job(role, self._protocol, self._setting, self._directory, self._lives[role])
        with (self._directory / f"{role}.log").open("ab") as log:
            self._running[role] = subprocess.Popen(
                [sys.executable, "-m", "entrepot.prove.workers", job.text()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _kill(self, role: str) -> None:
        process = self._running.pop(role)
        process.kill()
        process.wait()

    def _outcome(self) -> Outcome:
        consumer = self._notes["consumer"]
        match self._setting.semantics:
            case Semantics.TRANSACTION:
                done = self._clients.results(self._setting)
            case Semantics.EXACTLY_ONCE | Semantics.NUMBERED:
                done = self._recorded()
            case _:
                done = consumer.numbers("did")
        return Outcome(COUNT, consumer.numbers("got"), done, self._hidden_s())

    def _recorded(self) -> list[int]:
        database = sqlite3.connect(self._directory / DATABASE)
        rows = database.execute("select number from done order by rowid").fetchall()
        database.close()
        return [number for (number,) in rows]

    def _hidden_s(self) -> float | None:
        """Return how long after its crash the consumer got again what it had received."""
        notes = self._notes["consumer"].read()
        (crash,) = [note for note in notes if note.what == "crash"]
        again = [
            note.at_s - crash.at_s
            for note in notes
            if note.what == "got" and note.number == crash.number and note.at_s > crash.at_s
        ]
        return again[0] if again else None

    def close(self) -> None:
        for role in [*self._running]:
            self._kill(role)
        for notes in self._notes.values():
            notes.close()
