"""How a partition stores and keeps its records."""

from dataclasses import dataclass
from enum import StrEnum

from entrepot.core import limits


class Durability(StrEnum):
    """When an append is acknowledged; named after what makes it permanent."""

    FSYNC = "fsync"  # After fsync: acknowledged records survive power loss.
    INTERVAL = "interval"  # Synced every flush_ms: power loss takes what was written since.
    OS = "os"  # Left to the operating system: survives kill -9, not power loss.


INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class Policy:
    durability: Durability = Durability.FSYNC
    # None means: INTERVAL_MS with `interval`, otherwise not synced by time.
    flush_ms: int | None = None
    # Once so many records are unsynced, sync before acknowledging.
    flush_messages: int | None = None
    segment_bytes: int = limits.SEGMENT_BYTES
    segment_ms: int = 7 * 24 * 3_600_000
    retention_ms: int = 7 * 24 * 3_600_000  # -1 means: for ever.
    retention_bytes: int = -1  # -1 means: no limit.
    file_delete_delay_ms: int = 60_000
    expires: bool = True  # Whether retention applies.
    compacts: bool = False  # Whether only the last record of each key is kept.
    dirty_ratio_min: float = 0.5  # Compaction is due when this share of the bytes is new.
    # How long a tombstone is kept, from the first compaction that met it.
    tombstone_ms: int = 24 * 3_600_000
    compaction_lag_ms_min: int = 0  # Younger records are not compacted.
    # Older records are compacted whatever the ratio; None means: no limit.
    compaction_lag_ms_max: int | None = None
    # The object store that full segments are copied to before retention removes them; None means:
    # they are not copied.
    tier: str | None = None

    @property
    def flush_after_ms(self) -> int | None:
        """Return how long a record may stay unsynced; None means: the system decides."""
        if self.flush_ms is None and self.durability is Durability.INTERVAL:
            return INTERVAL_MS
        return self.flush_ms
