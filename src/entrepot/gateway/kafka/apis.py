"""Lists the APIs that are served.

Each entry has the API with its key and versions, how it is served (`serving`), and a function
that imports its handler (`handlers`). `login.SERVED` lists those that a client may use before it
has logged in.

The first request for an API imports its handler, in a turn of its own, so that a client which
uses one API after the other does not delay other clients for long.
"""

from functools import lru_cache

from entrepot.gateway.kafka import handlers
from entrepot.gateway.kafka.repeated import Repeated
from entrepot.gateway.kafka.serving import (
    AtOnce,
    Awaited,
    AwaitedWithHeader,
    FromFrame,
    InSteps,
    Serve,
    ServedApi,
)
from entrepot.wire.kafka.api import Api

SERVED: tuple[ServedApi, ...] = (
    FromFrame(Api.PRODUCE, handlers.produce, is_light=True),
    FromFrame(Api.FETCH, handlers.fetch, is_light=True),
    InSteps(Api.LIST_OFFSETS, handlers.list_offsets),
    Awaited(Api.METADATA, handlers.metadata, models=(0, 10, 11)),
    AwaitedWithHeader(Api.OFFSET_COMMIT, handlers.offset_commit, models=(9,)),
    InSteps(Api.OFFSET_FETCH, handlers.offset_fetch, models=(7, 9)),
    Awaited(Api.FIND_COORDINATOR, handlers.find_coordinator, models=(3,)),
    AwaitedWithHeader(Api.JOIN_GROUP, handlers.join_group),
    Repeated(Api.HEARTBEAT, handlers.heartbeat),
    AtOnce(Api.LEAVE_GROUP, handlers.leave_group, models=(2,)),
    Awaited(Api.SYNC_GROUP, handlers.sync_group),
    AwaitedWithHeader(Api.DESCRIBE_GROUPS, handlers.describe_groups),
    InSteps(Api.LIST_GROUPS, handlers.list_groups),
    AtOnce(Api.SASL_HANDSHAKE, handlers.sasl_handshake, models=(0,)),
    AtOnce(Api.API_VERSIONS, handlers.api_versions, is_light=True),
    Awaited(Api.CREATE_TOPICS, handlers.create_topics),
    Awaited(Api.DELETE_TOPICS, handlers.delete_topics, models=(5,)),
    Awaited(Api.DELETE_RECORDS, handlers.delete_records),
    AwaitedWithHeader(Api.INIT_PRODUCER_ID, handlers.init_producer_id),
    InSteps(Api.OFFSET_FOR_LEADER_EPOCH, handlers.offset_for_leader_epoch),
    AwaitedWithHeader(Api.ADD_PARTITIONS_TO_TXN, handlers.add_partitions_to_txn, models=(3,)),
    AwaitedWithHeader(Api.ADD_OFFSETS_TO_TXN, handlers.add_offsets_to_txn),
    AwaitedWithHeader(Api.END_TXN, handlers.end_txn),
    Awaited(Api.WRITE_TXN_MARKERS, handlers.write_txn_markers),
    AwaitedWithHeader(Api.TXN_OFFSET_COMMIT, handlers.txn_offset_commit),
    InSteps(Api.DESCRIBE_ACLS, handlers.describe_acls),
    Awaited(Api.CREATE_ACLS, handlers.create_acls),
    Awaited(Api.DELETE_ACLS, handlers.delete_acls),
    InSteps(Api.DESCRIBE_CONFIGS, handlers.describe_configs),
    Awaited(Api.ALTER_CONFIGS, handlers.alter_configs),
    AtOnce(Api.ALTER_REPLICA_LOG_DIRS, handlers.alter_replica_log_dirs),
    InSteps(Api.DESCRIBE_LOG_DIRS, handlers.describe_log_dirs),
    Awaited(Api.SASL_AUTHENTICATE, handlers.sasl_authenticate),
    Awaited(Api.CREATE_PARTITIONS, handlers.create_partitions),
    Awaited(Api.DELETE_GROUPS, handlers.delete_groups),
    Awaited(Api.ELECT_LEADERS, handlers.elect_leaders),
    Awaited(Api.INCREMENTAL_ALTER_CONFIGS, handlers.incremental_alter_configs),
    Awaited(Api.ALTER_PARTITION_REASSIGNMENTS, handlers.alter_partition_reassignments),
    InSteps(Api.LIST_PARTITION_REASSIGNMENTS, handlers.list_partition_reassignments),
    Awaited(Api.OFFSET_DELETE, handlers.offset_delete),
    AtOnce(Api.DESCRIBE_CLIENT_QUOTAS, handlers.describe_client_quotas),
    Awaited(Api.ALTER_CLIENT_QUOTAS, handlers.alter_client_quotas),
    AtOnce(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, handlers.describe_user_scram_credentials),
    Awaited(Api.ALTER_USER_SCRAM_CREDENTIALS, handlers.alter_user_scram_credentials),
    AtOnce(Api.DESCRIBE_QUORUM, handlers.describe_quorum),
    AtOnce(Api.DESCRIBE_CLUSTER, handlers.describe_cluster),
    InSteps(Api.DESCRIBE_PRODUCERS, handlers.describe_producers),
    InSteps(Api.DESCRIBE_TRANSACTIONS, handlers.describe_transactions),
    Awaited(Api.LIST_TRANSACTIONS, handlers.list_transactions),
    Repeated(Api.CONSUMER_GROUP_HEARTBEAT, handlers.consumer_group_heartbeat),
    InSteps(Api.CONSUMER_GROUP_DESCRIBE, handlers.consumer_group_describe),
    AwaitedWithHeader(Api.LIST_CONFIG_RESOURCES, handlers.list_config_resources),
    InSteps(Api.DESCRIBE_TOPIC_PARTITIONS, handlers.describe_topic_partitions),
    Repeated(Api.SHARE_GROUP_HEARTBEAT, handlers.share_group_heartbeat),
    InSteps(Api.SHARE_GROUP_DESCRIBE, handlers.share_group_describe),
    FromFrame(Api.SHARE_FETCH, handlers.share_fetch),
    Awaited(Api.SHARE_ACKNOWLEDGE, handlers.share_acknowledge),
    InSteps(Api.DESCRIBE_SHARE_GROUP_OFFSETS, handlers.describe_share_group_offsets),
    Awaited(Api.ALTER_SHARE_GROUP_OFFSETS, handlers.alter_share_group_offsets),
    Awaited(Api.DELETE_SHARE_GROUP_OFFSETS, handlers.delete_share_group_offsets),
)

_BY_KEY: dict[int, ServedApi] = {int(entry.api): entry for entry in SERVED}

# Keys of those whose requests are served by a task of their own, which takes longer.
AWAITED = {int(each.api): None for each in SERVED if isinstance(each, Awaited | AwaitedWithHeader)}


def is_heavy(api_key: int, version: int) -> bool:
    """Return whether this version is served and its handler takes long to import."""
    entry = _entry(api_key, version)
    return entry is not None and not entry.is_light


@lru_cache(maxsize=1_000)  # Called for every request; clients can ask for anything.
def find(api_key: int, version: int) -> Serve | None:
    """Import and return the handler of this version. None means: it is not served."""
    entry = _entry(api_key, version)
    return None if entry is None else entry.serve_version(version)


def _entry(api_key: int, version: int) -> ServedApi | None:
    entry = _BY_KEY.get(api_key)
    if entry is None or not entry.api.version_first <= version <= entry.api.version_last:
        return None
    return entry
