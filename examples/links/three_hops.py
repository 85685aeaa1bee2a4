"""A message crosses three managers, and the one in the middle is down for a while.

    python -m examples.links.three_hops

An application in Paris puts orders for Tokyo; Paris reaches it by way of London. London is killed
in between with kill -9 and comes back, again and again. Every order arrives, once.
"""

from __future__ import annotations

from collections import Counter

import pika

from examples.links.managers import channel, emptied, eventually, knows, linked

ORDERS, KILLS = 100, 5
PERSISTENT = pika.BasicProperties(delivery_mode=2)  # Others are in memory, where they wait.
CHAIN = {"paris": ["london"], "london": ["paris", "tokyo"], "tokyo": ["london"]}


def main() -> None:
    with linked(CHAIN) as managers:
        paris, london, tokyo = managers.values()
        with channel(tokyo) as declaring:
            declaring.queue_declare("orders", durable=True)
        eventually(lambda: knows(paris, "tokyo"))
        with channel(paris) as putting:
            for number in range(ORDERS):
                if number % (ORDERS // KILLS) == 10:
                    london.kill()
                    print(f"London is down; order {number} is put in Paris all the same")
                if number % (ORDERS // KILLS) == 15:
                    london.start()
                order = f"order {number}".encode()
                putting.basic_publish("", "orders@tokyo", order, PERSISTENT)
        found = Counter(emptied(tokyo, "orders", ORDERS))
        twice = sum(count > 1 for count in found.values())
        print(f"{len(found)} of {ORDERS} orders are in Tokyo, {twice} of them more than once")


if __name__ == "__main__":
    main()
