"""What a trial needs of a client, whatever its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NamedTuple, Protocol

from entrepot.prove.semantics import Semantics

# The package that has each protocol's client.
PACKAGES = {
    "kafka": "confluent_kafka",
    "amqp": "pika",
    "mqtt": "paho",
    "stomp": "stomp",
    "sqs": "boto3",
}
SOURCE, RESULTS = "prove", "prove.results"
WAIT_S = 20.0
POLL_S = 0.2


def calls_of(protocol: str) -> Any:
    """Return the module with a protocol's calls, which imports its client."""
    assert protocol in PACKAGES
    return import_module(f"entrepot.prove.{protocol}")


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the broker is, and how messages are to be delivered."""

    semantics: Semantics
    endpoints: Mapping[str, tuple[str, int]]

    def address(self, protocol: str) -> str:
        host, port = self.endpoints[protocol]
        return f"{host}:{port}"


class Lost(Exception):
    """No answer came."""


class Delivery(NamedTuple):
    number: int  # Of the message, as its producer counts.
    token: Any  # For the client.
    place: int = 0  # The number that the broker gave it, where it tells.


class Sender(Protocol):
    def send(self, number: int) -> None:
        """Send a message; return when the broker has it, where the semantics asks for that."""

    def commit(self) -> None:
        """End the transaction of what was sent, where there is one."""

    def last(self) -> int | None:
        """Return the newest message that the broker has; None where nobody can ask."""

    def close(self) -> None: ...


class Receiver(Protocol):
    def receive(self) -> Delivery | None:
        """Return the next message, or None if there was none for a short while."""

    def acknowledge(self, delivery: Delivery) -> None: ...

    def give_back(self, delivery: Delivery) -> None:
        """Have it delivered again."""

    def move(self, delivery: Delivery) -> None:
        """Begin a transaction: put it into the results, and acknowledge it."""

    def commit(self) -> None: ...

    def close(self) -> None: ...


class Plain:
    """The calls that not all of them have."""

    def last(self) -> int | None:
        return None

    def acknowledge(self, delivery: Delivery) -> None:
        """Do nothing: the broker asks for no acknowledgement."""

    def give_back(self, delivery: Delivery) -> None:
        raise NotImplementedError

    def move(self, delivery: Delivery) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        """Do nothing: there is no transaction."""
