"""Connectors: data from the world into topics (sources), and out of them (sinks).

    from entrepot.connect import Source, SourceRecord, Polled

    class Dice(Source):
        async def poll(self, count_max: int) -> Polled | None: ...

`entrepot connect run dice.toml`, with `connector = "my_module:Dice"` in the file, runs it.
Whoever writes a connector imports from here; the rest is the house's.
"""

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.interface import (
    ConfigError,
    ConnectError,
    Context,
    Polled,
    Position,
    Rejected,
    Sink,
    Source,
    SourceRecord,
    Unavailable,
)

__all__ = [
    "ConfigError",
    "ConnectError",
    "Context",
    "Message",
    "Polled",
    "Position",
    "Rejected",
    "Sink",
    "Source",
    "SourceRecord",
    "TopicPartition",
    "Unavailable",
]
