"""The errors of group requests, by Kafka's names.

A group answers many requests at once, some of them much later, so an error is a value first
and becomes an exception only where it is raised.
"""

from enum import Enum, auto

from entrepot.core.errors import PeerError


class Fault(Enum):
    COORDINATOR_NOT_AVAILABLE = auto()
    FENCED_INSTANCE_ID = auto()
    FENCED_MEMBER_EPOCH = auto()
    GROUP_ID_NOT_FOUND = auto()
    GROUP_MAX_SIZE_REACHED = auto()
    GROUP_SUBSCRIBED_TO_TOPIC = auto()
    ILLEGAL_GENERATION = auto()
    INCONSISTENT_GROUP_PROTOCOL = auto()
    INVALID_GROUP_ID = auto()
    INVALID_REGULAR_EXPRESSION = auto()
    INVALID_REQUEST = auto()
    INVALID_SESSION_TIMEOUT = auto()
    MEMBER_ID_REQUIRED = auto()
    NON_EMPTY_GROUP = auto()
    NOT_COORDINATOR = auto()
    OFFSET_METADATA_TOO_LARGE = auto()
    REBALANCE_IN_PROGRESS = auto()
    STALE_MEMBER_EPOCH = auto()
    UNKNOWN_MEMBER_ID = auto()
    UNRELEASED_INSTANCE_ID = auto()
    UNSTABLE_OFFSET_COMMIT = auto()
    UNSUPPORTED_ASSIGNOR = auto()
    UNSUPPORTED_VERSION = auto()


class GroupError(PeerError):
    """A request to a group that is refused with a fault."""

    def __init__(self, fault: Fault, text: str = "") -> None:
        super().__init__(text or fault.name.lower().replace("_", " "))
        self.fault = fault
