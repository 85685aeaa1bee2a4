"""Five processes in a group; one is killed and one is stopped for a while, with messages in flight.

    python -m tests.end_to_end.five_members --rounds 100

All survivors must see one sequence of views and messages; the killed one a beginning of it, and the
stopped one all of it up to the view that it is not in. Each round is a group of its own, and whom
it befalls, and when, is another's turn.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import threading
import time
from itertools import zip_longest
from random import Random

from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import eventually

MESSAGES = 150
MEMBER = """
import entrepot, sys, threading, time
amqp, kafka, name, me, count = sys.argv[1:]
done, ready, over = set(), threading.Event(), threading.Event()

def say(*words):
    with lock:  # Two threads speak.
        print(*words, flush=True)

def tell(event):
    if hasattr(event, "members"):
        say("view", event.number, *event.members)
        if len(event.members) == 5:
            ready.set()
        if me not in event.members and ready.is_set():
            over.set()
        size[0] = len(event.members)
    else:
        say("sent", event.sender, event.value)
        if event.value == "done":
            done.add(event.sender)
    if len(done) >= 3 and size[0] == 3:
        say("end")
        over.set()

size, lock = [0], threading.Lock()
with entrepot.Client(amqp, kafka) as client:
    group = client.group(name, tell, member=me)
    group.join()
    ready.wait()
    try:
        for number in range(int(count)):
            group.send(number)
            time.sleep(0.02)
        group.send("done")
    except Exception as error:
        say("refused", error)
    over.wait()
"""
NAMES = [f"m{number}" for number in range(5)]


class Member:
    """A process that is a member, and what it prints."""

    def __init__(self, server: Broker, group: str, name: str) -> None:
        host, port = server.endpoints["amqp"]
        command = [sys.executable, "-c", MEMBER, f"{host}:{port}", server.bootstrap]
        self.name = name
        self.printed: list[str] = []
        self.process = subprocess.Popen(
            [*command, group, name, str(MESSAGES)], stdout=subprocess.PIPE, text=True
        )
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        self.printed.extend(line.strip() for line in self.process.stdout)

    def wait(self) -> None:
        self.process.wait(120)
        self._thread.join()

    @property
    def sequence(self) -> list[str]:
        """Return what it was told from the first view of all five on."""
        lines = list(self.printed)
        first = next((place for place, line in enumerate(lines) if is_view_of(line, 5)), None)
        if first is None:
            return []
        return [line for line in lines[first:] if not line.startswith("refused")]


def run_round(server: Broker, group: str, seed: int) -> int:
    """Run one group to its end. Return how long the survivors' sequence is."""
    chance = Random(seed)
    victim, sleeper, *staying = chance.sample(range(5), 5)
    members = [Member(server, group, name) for name in NAMES]
    try:
        reached = f" {chance.randrange(5, 60)}"
        eventually(lambda: all(any(reached in line for line in m.printed) for m in members))
        members[victim].process.kill()
        members[sleeper].process.send_signal(signal.SIGSTOP)
        witness = members[staying[0]]
        eventually(lambda: any(is_view_of(line, 3) for line in witness.sequence))
        time.sleep(chance.random() / 2)
        members[sleeper].process.send_signal(signal.SIGCONT)
        for each in members:
            each.wait()
    finally:
        for each in members:
            if each.process.poll() is None:
                each.process.kill()
                each.wait()
    _check(members[victim], members[sleeper], [members[place] for place in staying])
    return len(witness.sequence)


def _check(victim: Member, sleeper: Member, staying: list[Member]) -> None:
    one, *others = [each.sequence for each in staying]
    for other in others:
        _compare(other, one)
    assert one[-1] == "end"
    _compare(victim.sequence, one[: len(victim.sequence)])  # Up to its end, the killed one, too.
    without = next(
        line
        for line in sleeper.sequence
        if line.startswith("view") and sleeper.name not in line.split()
    )
    until = sleeper.sequence.index(without)
    _compare(sleeper.sequence[: until + 1], one[: until + 1])
    assert any(f"is closed, and '{sleeper.name}' no member" in line for line in sleeper.printed)
    for each in staying:
        mine = [line.split()[2] for line in one if line.startswith(f"sent {each.name} ")]
        assert mine == [*map(str, range(MESSAGES)), "done"]


def _compare(found: list[str], expected: list[str]) -> None:
    """Say where two sequences part."""
    for place, (mine, theirs) in enumerate(zip_longest(found, expected)):
        around = slice(max(0, place - 3), place + 4)
        assert mine == theirs, f"{place}: {found[around]} and {expected[around]}"


def is_view_of(line: str, count: int) -> bool:
    return line.startswith("view") and len(line.split()) == 2 + count


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with broker() as server:
        for number in range(chosen.rounds):
            begun = time.monotonic()
            length = run_round(server, f"five-{number}", chosen.seed + number)
            took = time.monotonic() - begun
            print(f"round {number + 1}: one sequence of {length}, {took:.1f} s", flush=True)
    print(f"the same sequence in all survivors, {chosen.rounds} times")


if __name__ == "__main__":
    main()
