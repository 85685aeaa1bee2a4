"""Prints what reading WebSocket's frames costs, by the libraries that could do it.

Processor time for a frame, in microseconds, and megabytes in a second of it. `wsproto` is compared
if it is installed.
"""

import os
import struct
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec

from websockets.protocol import OPEN, SERVER, Protocol

SECONDS = 0.3
CASES = ((100, 1), (100, 100), (1_024, 60), (1 << 20, 1))  # Bytes of a frame, frames of a read.


def frame(payload: bytes) -> bytes:
    """Return a client's frame."""
    mask, size = os.urandom(4), len(payload)
    if size < 126:
        head = struct.pack("!BB", 0x82, 0x80 | size)
    elif size < 65_536:
        head = struct.pack("!BBH", 0x82, 0x80 | 126, size)
    else:
        head = struct.pack("!BBQ", 0x82, 0x80 | 127, size)
    return head + mask + bytes(byte ^ mask[at & 3] for at, byte in enumerate(payload))


def by_websockets() -> Callable[[bytes], int]:
    protocol = Protocol(SERVER, state=OPEN, max_size=None)

    def read(block: bytes) -> int:
        protocol.receive_data(block)
        return len(protocol.events_received())

    return read


def by_wsproto() -> Callable[[bytes], int]:
    wsproto = import_module("wsproto.connection")
    connection = wsproto.Connection(wsproto.ConnectionType.SERVER)

    def read(block: bytes) -> int:
        connection.receive_data(block)
        return len(list(connection.events()))

    return read


def seconds_each(read: Callable[[bytes], int], block: bytes) -> float:
    """Return the processor time of one read."""
    count, start = 0, time.process_time()
    while time.process_time() - start < SECONDS:
        read(block)
        count += 1
    return (time.process_time() - start) / count


def main() -> None:
    readers = {"websockets": by_websockets}
    if find_spec("wsproto") is not None:
        readers["wsproto"] = by_wsproto
    print(f"{'frame':>10} {'in a read':>10}  {'reader':<11} {'us a frame':>10} {'MB/s':>8}")
    for size, count in CASES:
        block = b"".join(frame(os.urandom(size)) for _ in range(count))
        for name, make in readers.items():
            seconds = seconds_each(make(), block)
            rate = size * count / seconds / 1e6
            print(f"{size:>10} {count:>10}  {name:<11} {seconds / count * 1e6:>10.2f} {rate:>8.0f}")


if __name__ == "__main__":
    main()
