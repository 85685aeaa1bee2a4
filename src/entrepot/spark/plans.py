"""Which messages of a queue make up a batch: Spark's offsets for a queue, and what else is
known of a batch that failed.

An offset is the plan of the batch that ends there:

    {"id": "…", "lease": "…", "rows": [[lane, first, end], …], "unsettled": [[…]],
     "size": 0, "hold": 0}

`rows` are the batch's messages. As the log does not change, a batch that is repeated after a
crash has the same rows again. `unsettled` are messages of earlier batches that could not be
settled, since somebody else had them: should they come to us again they are settled, not read.

A batch that fails comes again as it was planned, once: the sink may have committed it before
whatever failed did, and such a sink must not be given other rows under the same batch. If
that was so, it now says that it has the batch, and the query goes on. If it was not, the batch
fails a second time, and from then on only the first part of it is read, and a smaller one
after each failure, while the rest is the queue's again. The batches after it are as small, until
all that last failed is behind them, and then grow. So a message that cannot be processed is soon
alone. (A batch that fails, and then
fails again just between the sink's commit and Spark's own note of it, looks the same from
here: what is then not read again of it comes a second time.) What a batch was reduced to is
a record of a compacted topic under the plan's id, written before the part is read:

    {"failures": 3, "reduced": 3, "rows": [[…]], "lease": "…"}

`reduced` says at how many failures: or it is 0, and `rows` null. `lease` is that of the driver
that last began the batch, if that is not the one that planned it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from entrepot.client.client import Client
from entrepot.client.errors import BadAnswer
from entrepot.client.remembering import recall, remember
from entrepot.core.ports import Clock
from entrepot.spark.spans import Spans

TOPIC = "entrepot-spark-queues"
FAILURES_AS_PLANNED = 2
REDUCTION = 16
GROWTH = 4


@dataclass(frozen=True, slots=True)
class Plan:
    id: str = ""  # The plan before the first batch has none.
    lease: str | None = None
    rows: Spans = field(default_factory=Spans)
    unsettled: Spans = field(default_factory=Spans)
    size: int = 0  # Messages of the batch at most; 0: as many as the query's option says.
    hold: int = 0  # Messages from its first on among which one is that failed, if not 0.

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        return cls(
            document["id"],
            document["lease"],
            Spans(document["rows"]),
            Spans(document["unsettled"]),
            document["size"],
            document.get("hold", 0),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "lease": self.lease,
            "rows": self.rows.to_json(),
            "unsettled": self.unsettled.to_json(),
            "size": self.size,
            "hold": self.hold,
        }

    def next_size(self, tried: Tried, most: int) -> tuple[int, int]:
        """Return how large the batch after this one may be, or 0 for as large as any; and of how
        many messages from there on one has failed."""
        count = len(tried.rows)
        if count < len(self.rows):
            failed = min(len(self.rows), REDUCTION * (count + 1) - 1)  # At most.
            # Nothing is left of it when the one that failed was alone, and is dead.
            return (count, failed - count) if count else (1, 0)
        if self.hold > count:
            return self.size, self.hold - count
        size = self.size * GROWTH
        return (size, 0) if size < most else (0, 0)


@dataclass(frozen=True, slots=True)
class Tried:
    """What is read of a plan, and how often that failed."""

    rows: Spans
    failures: int = 0
    reduced: int = 0
    lease: str | None = None  # Of the driver that reads it.

    @property
    def is_reduced(self) -> bool:
        return self.reduced > 0

    def failed(self) -> Tried:
        return replace(self, failures=self.failures + 1)

    def for_next_try(self) -> Tried:
        if self.failures < FAILURES_AS_PLANNED or self.failures == self.reduced:
            return self
        rows = self.rows.first(max(1, len(self.rows) // REDUCTION))
        return replace(self, rows=rows, reduced=self.failures)


async def recall_tried(client: Client, plan: Plan) -> Tried:
    found = await recall(client, TOPIC, plan.id)
    if found is None:
        return Tried(plan.rows, lease=plan.lease)
    try:
        rows = plan.rows if found["rows"] is None else Spans(found["rows"])
        return Tried(rows, found["failures"], found["reduced"], found["lease"])
    except (KeyError, TypeError, ValueError) as error:
        raise BadAnswer(f"topic {TOPIC} has a record that is not ours: {error}") from None


async def remember_tried(client: Client, clock: Clock, plan: Plan, tried: Tried) -> None:
    value = {
        "failures": tried.failures,
        "reduced": tried.reduced,
        "rows": tried.rows.to_json() if tried.is_reduced else None,
        "lease": tried.lease,
    }
    await remember(client, clock, TOPIC, plan.id, value)
