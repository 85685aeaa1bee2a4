"""A process that shares a memory, and prints what it read.

    python -m tests.end_to_end.memory_writer AMQP KAFKA MINE OTHERS ROUNDS

In each round it writes a variable of its own and then reads the other's: of two processes that do
so, at least one must see what the other has written. And it prints every change that it was told.
"""

from __future__ import annotations

import json
import sys
import threading

import entrepot


def main() -> None:
    amqp, kafka, mine, others, rounds = sys.argv[1:]
    changes: list[tuple[str, int]] = []
    over = threading.Event()

    def tell(name: str, value: int) -> None:
        changes.append((name, value))
        if name == "over":
            over.set()

    with entrepot.Client(amqp, kafka) as client:
        memory = client.memory("litmus")
        memory.notify(tell)
        memory[f"ready-{mine}"] = 1
        while not memory.read(f"ready-{others}"):
            pass
        read = []
        for number in range(int(rounds)):
            memory[f"{mine}{number}"] = 1
            read.append(memory.read(f"{others}{number}", 0))
        print(json.dumps(read), flush=True)
        over.wait()
        print(json.dumps(changes), flush=True)


if __name__ == "__main__":
    main()
