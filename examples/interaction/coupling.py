"""Coupling in space and time: four ways to hand something over, and what each was seen to need.

Coupled in time: who comes later gets nothing. Coupled in space: of two who want it one gets it,
the one that was named.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from examples.interaction.room import SILENCE_S, Connect, room, table

Seen = tuple[bool, int]  # Whether who came later got it; and how many got it who were there.


def connection(_: Connect) -> Seen:
    """Bytes over a socket: the other side has an address, and must be there."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    is_late = True
    try:
        socket.create_connection(address, timeout=5).close()
    except ConnectionRefusedError:  # Nobody is there yet, and nobody keeps it for later.
        is_late = False
    reached: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)):

        def serve() -> None:
            peer, _ = one.accept()
            with peer:
                reached.append(peer.recv(100))

        server = threading.Thread(target=serve)
        server.start()
        with socket.create_connection(one.getsockname()) as peer:
            peer.sendall(b"hello")
        server.join()
    return is_late, len(reached)


def mailbox(connect: Connect) -> Seen:
    """A queue that has its receiver's name: who sends knows it, and need not wait for it."""
    connect().put("ana.mailbox", "hello")
    is_late = connect().poll("ana.mailbox") is not None
    reached: list[str] = []
    for name in ("ana", "bert"):
        connect().notify(f"{name}.mailbox", lambda _, name=name: reached.append(name))
    connect().put("ana.mailbox", "hello")
    time.sleep(SILENCE_S)
    return is_late, len(reached)


def subject(connect: Connect) -> Seen:
    """Publish and subscribe: who publishes knows nobody, and who is not there hears nothing."""
    late: list[object] = []
    connect().publish("news", "hello")
    connect().subscribe("news", lambda _, event: late.append(event)).unsubscribe()
    reached: list[str] = []
    for name in ("ana", "bert"):
        connect().subscribe("news", lambda _, event, name=name: reached.append(name))
    connect().publish("news", "hello")
    time.sleep(SILENCE_S)
    return bool(late), len(reached)


def topic(connect: Connect) -> Seen:
    """A topic remembers: whoever comes, whenever, reads it."""
    connect().topic("news", partitions=1).append("hello")
    readers = [connect().topic("news").read(group=name) for name in ("ana", "bert")]
    found = [reader.poll(5) for reader in readers]
    return bool(found[0]), sum(map(len, found))


WAYS: dict[str, Callable[[Connect], Seen]] = {
    "a connection": connection,
    "a mailbox": mailbox,
    "a subject": subject,
    "a topic": topic,
}


def main() -> None:
    cells: dict[tuple[str, str], str] = {}
    for name, hand_over in WAYS.items():
        with room() as (_, connect):
            is_late, reached = hand_over(connect)
        in_space = "coupled" if reached == 1 else "uncoupled"
        cells[in_space, "uncoupled" if is_late else "coupled"] = name
    rows = [
        (
            f"{space} in space",
            *(cells.get((space, in_time), "-") for in_time in ("coupled", "uncoupled")),
        )
        for space in ("coupled", "uncoupled")
    ]
    table(("", "coupled in time", "uncoupled in time"), rows)


if __name__ == "__main__":
    main()
