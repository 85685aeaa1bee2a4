"""What a partition is told about keeping its records."""

from dataclasses import dataclass
from enum import StrEnum

from entrepot.core import limits


class Durability(StrEnum):
    """What an acknowledgement means. The name says what is given up."""

    FSYNC = "fsync"  # On disk: survives power loss.
    INTERVAL = "interval"  # Synced every flush_ms: power loss takes the last interval.
    OS = "os"  # Left to the operating system: survives kill -9, not power loss.


INTERVAL_MS = 1_000


@dataclass(frozen=True, slots=True)
class Policy:
    durability: Durability = Durability.FSYNC
    flush_ms: int | None = None  # None: INTERVAL_MS with `interval`, else never by time.
    flush_messages: int | None = None  # Sync before the answer once so many are unsynced.
    segment_bytes: int = limits.SEGMENT_BYTES
    segment_ms: int = 7 * 24 * 3_600_000
    retention_ms: int = 7 * 24 * 3_600_000  # -1: for ever.
    retention_bytes: int = -1  # -1: any size.
    file_delete_delay_ms: int = 60_000
    expires: bool = True  # Whether retention applies.
    compacts: bool = False  # Whether only the last record of each key is kept.
    dirty_ratio_min: float = 0.5  # Of the bytes, how many are new before it is worth it.
    tombstone_ms: int = 24 * 3_600_000  # How long a deletion stays visible.
    compaction_lag_ms_min: int = 0  # Younger records are left alone.
    compaction_lag_ms_max: int | None = None  # Older ones are not, whatever the ratio.

    @property
    def flush_after_ms(self) -> int | None:
        """How long a record may stay unsynced; None: as long as the system likes."""
        if self.flush_ms is None and self.durability is Durability.INTERVAL:
            return INTERVAL_MS
        return self.flush_ms
