"""STOMP 1.2, by stomp.py."""

from __future__ import annotations

import queue
from typing import Any

import stomp

from entrepot.prove.clients import POLL_S, RESULTS, SOURCE, WAIT_S, Delivery, Lost, Plain, Setting
from entrepot.prove.semantics import Semantics

_FROM, _TO = f"/queue/{SOURCE}", f"/queue/{RESULTS}"


def prepare(setting: Setting) -> None:
    """Do nothing: queues are made when they are first used."""


def sender(setting: Setting) -> StompSender:
    return StompSender(setting)


def receiver(setting: Setting) -> StompReceiver:
    return StompReceiver(setting)


def results(setting: Setting) -> list[int]:
    """Take what is in the queue of results."""
    reader = StompReceiver(setting, _TO)
    found = []
    while (delivery := reader.receive()) is not None:
        found.append(delivery.number)
    reader.close()
    return found


class _Connection(Plain, stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self, setting: Setting) -> None:
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._receipts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._count = 0
        self.transaction = ""
        self._connection = stomp.Connection12(
            [setting.endpoints["stomp"]], reconnect_attempts_max=1
        )
        self._connection.set_listener("", self)
        self._connection.connect("guest", "guest", wait=True)

    def on_message(self, frame: Any) -> None:
        self._heard.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def on_disconnected(self) -> None:
        self._heard.put(None)
        self._receipts.put(None)

    def receipt(self) -> str:
        self._count += 1
        return f"receipt-{self._count}"

    def wait_for(self, receipt: str) -> None:
        """Return when the broker has done it, and it is on disk."""
        try:
            if self._receipts.get(timeout=WAIT_S) != receipt:
                raise Lost("the connection is gone")
        except queue.Empty:
            raise Lost("no receipt came") from None

    def end_transaction(self) -> None:
        receipt = self.receipt()
        self._connection.commit(self.transaction, headers={"receipt": receipt})
        self.wait_for(receipt)

    def close(self) -> None:
        self._connection.disconnect()


class StompSender(_Connection):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._is_sure = setting.semantics is not Semantics.AT_MOST_ONCE
        self._is_transacted = setting.semantics is Semantics.TRANSACTION

    def send(self, number: int) -> None:
        headers = {"persistent": "true"} if self._is_sure else {}
        if self._is_transacted:
            headers["transaction"] = self.transaction = self._connection.begin()
        receipt = self.receipt() if self._is_sure and not self._is_transacted else None
        self._connection.send(_FROM, str(number), headers=headers, receipt=receipt)
        if receipt is not None:
            self.wait_for(receipt)

    def commit(self) -> None:
        if self._is_transacted:
            self.end_transaction()


class StompReceiver(_Connection):
    def __init__(self, setting: Setting, source: str = _FROM) -> None:
        super().__init__(setting)
        is_audited = source == _TO
        self._acknowledges = setting.semantics is not Semantics.AT_MOST_ONCE and not is_audited
        receipt = self.receipt()
        headers = {"receipt": receipt}
        if self._acknowledges:
            headers["prefetch-count"] = "5"
        mode = "client-individual" if self._acknowledges else "auto"
        self._connection.subscribe(source, "1", ack=mode, headers=headers)
        self.wait_for(receipt)

    def receive(self) -> Delivery | None:
        try:
            frame = self._heard.get(timeout=POLL_S)
        except queue.Empty:
            return None
        if frame is None:
            raise Lost("the connection is gone")
        return Delivery(int(frame.body), frame.headers.get("ack"))

    def acknowledge(self, delivery: Delivery) -> None:
        if self._acknowledges:
            receipt = self.receipt()
            self._connection.ack(delivery.token, receipt=receipt)
            self.wait_for(receipt)

    def move(self, delivery: Delivery) -> None:
        self.transaction = self._connection.begin()
        headers = {"persistent": "true", "transaction": self.transaction}
        self._connection.send(_TO, str(delivery.number), headers=headers)
        self._connection.ack(delivery.token, transaction=self.transaction)

    def commit(self) -> None:
        self.end_transaction()
