"""Records that retention will remove as soon as they are written.

Retention counts the records' own timestamps, so an old one is acknowledged and soon gone. Whoever
writes with timestamps of their own asks here first, and tells people.
"""

import contextlib

from entrepot.client.admin import Admin
from entrepot.client.client import Client
from entrepot.client.errors import ClientError
from entrepot.core.ports import Clock

RETENTION, POLICY, TIMESTAMP_TYPE = "retention.ms", "cleanup.policy", "message.timestamp.type"


class RetentionWatch:
    """Says it once for each topic."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._kept_ms: dict[str, int | None] = {}  # By topic; None means: for ever, or not known.
        self._told: set[str] = set()

    async def warning(self, topic: str, timestamp_ms: int) -> str | None:
        """Return what to tell of a record with this timestamp; None when there is nothing to."""
        if timestamp_ms < 0 or topic in self._told:
            return None
        if topic not in self._kept_ms:
            self._kept_ms[topic] = await self._find(topic)
        kept_ms = self._kept_ms[topic]
        if kept_ms is None or timestamp_ms >= self._clock.now_ms() - kept_ms:
            return None
        self._told.add(topic)
        return (
            f"topic {topic}: a record is older than the topic keeps records "
            f"({RETENTION}={kept_ms}), so it is removed soon after it is written; "
            f"{RETENTION}=-1 keeps it"
        )

    async def _find(self, topic: str) -> int | None:
        with contextlib.suppress(ClientError, ValueError):  # Nobody must be allowed to ask.
            found = (await Admin(self._client).settings([topic]))[topic]
            said = {each.name: each.value or "" for each in found}
            if "delete" in said[POLICY] and said[TIMESTAMP_TYPE] == "CreateTime":
                kept_ms = int(said[RETENTION])
                return kept_ms if kept_ms >= 0 else None
        return None
