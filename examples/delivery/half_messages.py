"""What RocketMQ has beside queues, made of queues: half messages, delay levels and tags.

A shop takes money and tells the warehouse, both or neither, without a transaction over database and
broker. It puts a *half message*, which the warehouse does not see; then it books the money in its
database; then it says commit. Shops may die at any point. A half message that is settled by nobody
in time is a dead letter of its queue, and whoever checks it asks a shop, any of them, what the
database says. `once` has the warehouse get it once, though it may be committed twice.

Delay levels are queues whose messages expire, each into the queue that it was for. Tags are types
of messages, by which a consumer chooses.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import entrepot
from examples.interaction.room import WAIT_S, eventually, room

ORDERS, HALF, CHECK = "orders", "orders.half", "orders.check"
SHOPS = "shops.orders"  # Where a shop is asked what has become of an order.
PATIENCE_S = 0.5  # For which a half message may wait for its shop.
LEVELS_S = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)


def declare(client: entrepot.Client) -> None:
    client.declare_queue(ORDERS)
    client.declare_queue(CHECK)
    client.declare_queue(HALF, expires_s=PATIENCE_S, arguments=to(CHECK))


def to(queue: str) -> dict[str, str]:
    """Return what sends the expired messages of a queue to another."""
    return {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}


class Shop:
    """A producer. Any shop can say of any order whether the money was booked."""

    def __init__(self, client: entrepot.Client, books: Path) -> None:
        self._client = client
        self._books = books
        with closing(sqlite3.connect(books)) as database:
            database.execute("create table if not exists booked (id text primary key)")

    def sell(self, id: str, what: str, dies: str | None = None) -> None:
        """Sell something. `dies` is before which step."""
        self._client.put(HALF, what, id=id, type="sale")
        step("booking", dies)
        self._book(id)
        step("commit", dies)
        try:
            with self._client.lease(HALF, 0, id=id) as half:
                commit(self._client, half)
        except TimeoutError:
            pass  # It took so long that it is being checked.

    def _book(self, id: str) -> None:
        with closing(sqlite3.connect(self._books)) as database, database:
            database.execute("insert into booked values (?)", (id,))

    def is_booked(self, id: str) -> bool:
        with closing(sqlite3.connect(self._books)) as database:
            return bool(database.execute("select 1 from booked where id = ?", (id,)).fetchone())

    def answer(self) -> None:
        """Answer those who check."""
        self._client.serve(SHOPS, lambda request: self.is_booked(request.text))


def commit(client: entrepot.Client, half: entrepot.Message) -> None:
    client.put(ORDERS, half.value, id=half.id, type=half.type, once=True)


def check(client: entrepot.Client, half: entrepot.Message) -> None:
    """Do what its shop has not done. If nobody answers, it comes again."""
    if client.request(SHOPS, half.id, timeout_s=WAIT_S).value:
        commit(client, half)


def delayed(client: entrepot.Client, queue: str, value: str, level: int) -> None:
    """Put a message that comes later, by a level from 1 to 18."""
    waits = f"delay.{level}.{queue}"
    client.declare_queue(waits, expires_s=LEVELS_S[level - 1], arguments=to(queue))
    client.put(waits, value, type="reminder")


def step(name: str, dies: str | None) -> None:
    if name == dies:
        os.kill(os.getpid(), signal.SIGKILL)


def sell(address: str, books: Path, id: str, what: str, dies: str | None) -> None:
    with entrepot.Client(address) as client:
        Shop(client, books).sell(id, what, dies)


def main() -> None:
    spawn = multiprocessing.get_context("spawn")
    with room() as (server, connect), tempfile.TemporaryDirectory() as directory:
        books = Path(directory) / "books"
        client = connect()
        declare(client)
        Shop(client, books)
        address = "{}:{}".format(*server.endpoints["amqp"])
        for id, what, dies in (
            ("1", "a lamp", None),
            ("2", "a chair", "commit"),  # Booked, and nobody was told.
            ("3", "a table", "booking"),  # Nothing was booked.
        ):
            shop = spawn.Process(target=sell, args=(address, books, id, what, dies))
            shop.start()
            shop.join()
            print(f"{what}: the shop {'has died before ' + dies if shop.exitcode else 'is done'}")
        Shop(connect(), books).answer()  # It is another one, and the first to be there again.
        checker = connect()
        checker.notify(CHECK, lambda half: check(checker, half))
        delayed(client, ORDERS, "count the lamps", level=1)
        eventually(lambda: client.count(ORDERS) == 3)
        eventually(lambda: client.count(HALF) + client.count(CHECK) == 0)
        sold = [client.get(ORDERS, WAIT_S, type="sale").text for _ in range(2)]
        print("to be packed:", ", ".join(sorted(sold)))
        print("after a second:", client.get(ORDERS, WAIT_S, "JMSType IN ('reminder')").text)
        print("more:", client.poll(ORDERS))


if __name__ == "__main__":
    main()
