"""What the examples share: a broker of their own, clients of it, and waiting for what comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import entrepot
from entrepot.testing import Broker, broker

WAIT_S = 20.0
SILENCE_S = 0.5  # Who has heard nothing for so long hears nothing.

Connect = Callable[[], entrepot.Client]


@contextmanager
def room() -> Iterator[tuple[Broker, Connect]]:
    """Yield a broker, and what connects one more component to it."""
    with broker() as server, ExitStack() as stack:
        host, port = server.endpoints["amqp"]

        def connect() -> entrepot.Client:
            return stack.enter_context(entrepot.Client(f"{host}:{port}", server.bootstrap))

        yield server, connect


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(row[index]) for row in [heads, *rows]) for index in range(len(heads))]
    for row in [heads, *rows]:
        print(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )
