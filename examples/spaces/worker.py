"""A worker: takes tasks out of a space until one has a negative number."""

from __future__ import annotations

import os
import sys
import time

import entrepot
from examples.spaces.master_worker import SLOW


def primes(first: int, end: int) -> int:
    """Count the primes in a range."""
    return sum(
        all(number % divisor for divisor in range(2, int(number**0.5) + 1))
        for number in range(max(2, first), end)
    )


def main() -> None:
    with entrepot.Client(sys.argv[1], sys.argv[2]) as client:
        space = client.space("primes")
        while True:
            try:  # What is urgent first.
                kind, number, first, end = space.take("again", int, int, int, timeout_s=0)
            except TimeoutError:
                try:
                    kind, number, first, end = space.take("task", int, int, int, timeout_s=0.5)
                except TimeoutError:
                    continue
            if number < 0:
                return
            if number == SLOW and kind == "task":
                space.write("working on", number, os.getpid())
                time.sleep(60)  # It is killed meanwhile.
            space.write("result", number, primes(first, end))


if __name__ == "__main__":
    main()
