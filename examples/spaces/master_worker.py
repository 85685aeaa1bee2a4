"""Master and workers through a tuple space, who know nothing of each other.

    python -m examples.spaces.master_worker

The master writes tasks: count the primes in a range. Workers, each a process, take a task and
write its result. One worker is killed in the middle of a task. What it had taken went with it, so
the master writes a task again whose result does not come; results have the number of their task,
and a second one for the same task is taken and dropped.
"""

from __future__ import annotations

import subprocess
import sys

import entrepot
from entrepot.testing import Broker, broker

TASKS, SIZE, WORKERS = 12, 2_000, 3
PATIENCE_S = 4.0  # For a result, before the task is written again.
SLOW = 5  # The number of the task that its first worker does not survive.


def main() -> None:
    with broker() as server:
        host, port = server.endpoints["amqp"]
        with entrepot.Client(f"{host}:{port}", server.bootstrap) as client:
            workers = [start(server) for _ in range(WORKERS)]
            space = client.space("primes")
            for number in range(TASKS):
                space.write("task", number, number * SIZE, (number + 1) * SIZE)
            victim = space.take("working on", SLOW, int)[2]
            next(each for each in workers if each.pid == victim).kill()
            print("a worker is killed")
            results: dict[int, int] = {}
            while len(results) < TASKS:
                try:
                    _, number, count = space.take("result", int, int, timeout_s=PATIENCE_S)
                    results[number] = count
                except TimeoutError:
                    for number in sorted(set(range(TASKS)) - set(results)):
                        print(f"task {number} is written again")
                        space.write("again", number, number * SIZE, (number + 1) * SIZE)
            print(f"{sum(results.values())} primes below {TASKS * SIZE}")
            for _ in workers:
                space.write("task", -1, 0, 0)
            for each in workers:
                each.wait()


def start(server: Broker) -> subprocess.Popen[bytes]:
    host, port = server.endpoints["amqp"]
    command = [sys.executable, "-m", "examples.spaces.worker", f"{host}:{port}", server.bootstrap]
    return subprocess.Popen(command)


if __name__ == "__main__":
    main()
