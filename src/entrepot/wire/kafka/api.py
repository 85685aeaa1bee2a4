"""The catalogue of Kafka's APIs: key, versions, and where the flexible encoding begins.

The messages themselves are kio's: one dataclass per API, version and direction. Its
modules are many and slow to import, so this table says what they hold and each is
loaded when a peer first needs it. A test holds the table against kio.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Self

NEVER = 1 << 15  # Above any version: versions are signed 16-bit numbers.


class Api(IntEnum):
    """An API's key, its oldest and newest version, and its first flexible version."""

    version_first: int
    version_last: int
    flexible_from: int

    if not TYPE_CHECKING:  # A type checker would want four arguments in Api(key).

        def __new__(cls, key: int, first: int, last: int, flexible_from: int) -> Self:
            api = int.__new__(cls, key)
            api._value_ = key
            api.version_first = first
            api.version_last = last
            api.flexible_from = flexible_from
            return api

    PRODUCE = 0, 3, 13, 9
    FETCH = 1, 4, 18, 12
    LIST_OFFSETS = 2, 1, 11, 6
    METADATA = 3, 0, 13, 9
    OFFSET_COMMIT = 8, 2, 10, 8
    OFFSET_FETCH = 9, 1, 10, 6
    FIND_COORDINATOR = 10, 0, 6, 3
    JOIN_GROUP = 11, 0, 9, 6
    HEARTBEAT = 12, 0, 4, 4
    LEAVE_GROUP = 13, 0, 5, 4
    SYNC_GROUP = 14, 0, 5, 4
    DESCRIBE_GROUPS = 15, 0, 6, 5
    LIST_GROUPS = 16, 0, 5, 3
    SASL_HANDSHAKE = 17, 0, 1, NEVER
    API_VERSIONS = 18, 0, 4, 3
    CREATE_TOPICS = 19, 2, 7, 5
    DELETE_TOPICS = 20, 1, 6, 4
    DELETE_RECORDS = 21, 0, 2, 2
    INIT_PRODUCER_ID = 22, 0, 6, 2
    OFFSET_FOR_LEADER_EPOCH = 23, 2, 4, 4
    ADD_PARTITIONS_TO_TXN = 24, 0, 5, 3
    ADD_OFFSETS_TO_TXN = 25, 0, 4, 3
    END_TXN = 26, 0, 5, 3
    WRITE_TXN_MARKERS = 27, 1, 2, 1
    TXN_OFFSET_COMMIT = 28, 0, 5, 3
    DESCRIBE_ACLS = 29, 1, 3, 2
    CREATE_ACLS = 30, 1, 3, 2
    DELETE_ACLS = 31, 1, 3, 2
    DESCRIBE_CONFIGS = 32, 1, 4, 4
    ALTER_CONFIGS = 33, 0, 2, 2
    ALTER_REPLICA_LOG_DIRS = 34, 1, 2, 2
    DESCRIBE_LOG_DIRS = 35, 1, 5, 2
    SASL_AUTHENTICATE = 36, 0, 2, 2
    CREATE_PARTITIONS = 37, 0, 3, 2
    CREATE_DELEGATION_TOKEN = 38, 1, 3, 2
    RENEW_DELEGATION_TOKEN = 39, 1, 2, 2
    EXPIRE_DELEGATION_TOKEN = 40, 1, 2, 2
    DESCRIBE_DELEGATION_TOKEN = 41, 1, 3, 2
    DELETE_GROUPS = 42, 0, 2, 2
    ELECT_LEADERS = 43, 0, 2, 2
    INCREMENTAL_ALTER_CONFIGS = 44, 0, 1, 1
    ALTER_PARTITION_REASSIGNMENTS = 45, 0, 1, 0
    LIST_PARTITION_REASSIGNMENTS = 46, 0, 0, 0
    OFFSET_DELETE = 47, 0, 0, NEVER
    DESCRIBE_CLIENT_QUOTAS = 48, 0, 1, 1
    ALTER_CLIENT_QUOTAS = 49, 0, 1, 1
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50, 0, 0, 0
    ALTER_USER_SCRAM_CREDENTIALS = 51, 0, 0, 0
    VOTE = 52, 0, 2, 0
    BEGIN_QUORUM_EPOCH = 53, 0, 1, 1
    END_QUORUM_EPOCH = 54, 0, 1, 1
    DESCRIBE_QUORUM = 55, 0, 2, 0
    ALTER_PARTITION = 56, 2, 3, 2
    UPDATE_FEATURES = 57, 0, 2, 0
    ENVELOPE = 58, 0, 0, 0
    FETCH_SNAPSHOT = 59, 0, 1, 0
    DESCRIBE_CLUSTER = 60, 0, 2, 0
    DESCRIBE_PRODUCERS = 61, 0, 0, 0
    BROKER_REGISTRATION = 62, 0, 4, 0
    BROKER_HEARTBEAT = 63, 0, 2, 0
    UNREGISTER_BROKER = 64, 0, 0, 0
    DESCRIBE_TRANSACTIONS = 65, 0, 0, 0
    LIST_TRANSACTIONS = 66, 0, 2, 0
    ALLOCATE_PRODUCER_IDS = 67, 0, 0, 0
    CONSUMER_GROUP_HEARTBEAT = 68, 0, 1, 0
    CONSUMER_GROUP_DESCRIBE = 69, 0, 1, 0
    CONTROLLER_REGISTRATION = 70, 0, 0, 0
    GET_TELEMETRY_SUBSCRIPTIONS = 71, 0, 0, 0
    PUSH_TELEMETRY = 72, 0, 0, 0
    ASSIGN_REPLICAS_TO_DIRS = 73, 0, 0, 0
    LIST_CONFIG_RESOURCES = 74, 0, 1, 0
    DESCRIBE_TOPIC_PARTITIONS = 75, 0, 0, 0
    SHARE_GROUP_HEARTBEAT = 76, 1, 1, 1
    SHARE_GROUP_DESCRIBE = 77, 1, 1, 1
    SHARE_FETCH = 78, 1, 2, 1
    SHARE_ACKNOWLEDGE = 79, 1, 2, 1
    ADD_RAFT_VOTER = 80, 0, 1, 0
    REMOVE_RAFT_VOTER = 81, 0, 0, 0
    UPDATE_RAFT_VOTER = 82, 0, 0, 0
    INITIALIZE_SHARE_GROUP_STATE = 83, 0, 0, 0
    READ_SHARE_GROUP_STATE = 84, 0, 0, 0
    WRITE_SHARE_GROUP_STATE = 85, 0, 1, 0
    DELETE_SHARE_GROUP_STATE = 86, 0, 0, 0
    READ_SHARE_GROUP_STATE_SUMMARY = 87, 0, 1, 0
    STREAMS_GROUP_HEARTBEAT = 88, 0, 0, 0
    STREAMS_GROUP_DESCRIBE = 89, 0, 0, 0
    DESCRIBE_SHARE_GROUP_OFFSETS = 90, 0, 1, 0
    ALTER_SHARE_GROUP_OFFSETS = 91, 0, 0, 0
    DELETE_SHARE_GROUP_OFFSETS = 92, 0, 0, 0


# The first flexible version by API key. The key is a plain number, because every request looks
# this up, also one for an API that is not in the catalogue.
FLEXIBLE_FROM: dict[int, int] = {int(api): api.flexible_from for api in Api}


def versions(api: Api) -> tuple[int, int]:
    """Return the oldest and the newest version that kio has messages for."""
    return api.version_first, api.version_last


@cache
def request_class(api: Api, version: int) -> type[Any]:
    """Return kio's class of this request. The version must be one of `versions`."""
    return _message_class(api, version, "Request")


@cache
def response_class(api: Api, version: int) -> type[Any]:
    """Return kio's class of this response. The version must be one of `versions`."""
    return _message_class(api, version, "Response")


def _message_class(api: Api, version: int, direction: str) -> type[Any]:
    assert api.version_first <= version <= api.version_last, (api, version)
    module = import_module(f"kio.schema.{api.name.lower()}.v{version}.{direction.lower()}")
    name = "".join(part.capitalize() for part in api.name.split("_"))
    message: type[Any] = getattr(module, name + direction)
    return message
