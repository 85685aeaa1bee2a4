"""Settings of consumer groups. The defaults are Kafka's unless a comment says why not."""

from dataclasses import dataclass

from entrepot.core import limits


@dataclass(frozen=True, slots=True)
class GroupSettings:
    # Kafka waits three seconds for more members of a new group, to save rebalances of large groups.
    # Here a rebalance costs little, and somebody waits for the first record.
    initial_rebalance_delay_ms: int = 100
    session_ms_min: int = 6_000
    session_ms_max: int = 1_800_000
    members_max: int = limits.GROUP_MEMBERS_MAX
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    # For the modern protocol, in which the broker tells members how often to send heartbeats.
    heartbeat_ms: int = 5_000
    session_ms: int = 45_000
