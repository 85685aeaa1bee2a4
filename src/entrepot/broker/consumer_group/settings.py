"""What an operator may set about groups. The defaults are Kafka's unless a comment says why not."""

from dataclasses import dataclass

from entrepot.core import limits


@dataclass(frozen=True, slots=True)
class GroupSettings:
    # Kafka waits three seconds for more members of a new group, to spare large groups
    # rebalances. Here a rebalance costs little, and a person waits for the first record.
    initial_rebalance_delay_ms: int = 100
    session_ms_min: int = 6_000
    session_ms_max: int = 1_800_000
    members_max: int = limits.GROUP_MEMBERS_MAX
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    # The modern protocol: the broker says how often its members are to be heard of.
    heartbeat_ms: int = 5_000
    session_ms: int = 45_000
