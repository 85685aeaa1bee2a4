"""Imports the handlers of the APIs, each when it is first needed.

The modules and kio's classes are slow to import. There is one function for each API, named like
it, which returns the handler; `apis` defines how the handler is called.
"""

from __future__ import annotations

from typing import Any

from entrepot.gateway.kafka.repeated import RepeatedHandler
from entrepot.gateway.kafka.serving import (
    HandleAtOnce,
    HandleAwaited,
    HandleInSteps,
    HandleWithHeader,
    Serve,
)


def produce() -> Serve:
    from entrepot.gateway.kafka.produce import serve

    return serve


def fetch() -> Serve:
    from entrepot.gateway.kafka.fetch import serve

    return serve


def list_offsets() -> HandleInSteps:
    from entrepot.gateway.kafka.list_offsets import handle

    return handle


def metadata() -> HandleAwaited:
    from entrepot.gateway.kafka.metadata import handle

    return handle


def offset_commit() -> HandleWithHeader:
    from entrepot.gateway.kafka.offset_commit import handle

    return handle


def offset_fetch() -> HandleInSteps:
    from entrepot.gateway.kafka.offset_fetch import handle

    return handle


def find_coordinator() -> HandleAwaited:
    from entrepot.gateway.kafka.find_coordinator import handle

    return handle


def join_group() -> HandleWithHeader:
    from entrepot.gateway.kafka.join_group import handle

    return handle


def heartbeat() -> RepeatedHandler[Any, Any]:
    from entrepot.gateway.kafka.heartbeat import HANDLER

    return HANDLER


def leave_group() -> HandleAtOnce:
    from entrepot.gateway.kafka.leave_group import handle

    return handle


def sync_group() -> HandleAwaited:
    from entrepot.gateway.kafka.sync_group import handle

    return handle


def describe_groups() -> HandleWithHeader:
    from entrepot.gateway.kafka.describe_groups import handle

    return handle


def list_groups() -> HandleInSteps:
    from entrepot.gateway.kafka.list_groups import handle

    return handle


def sasl_handshake() -> HandleAtOnce:
    from entrepot.gateway.kafka.sasl_handshake import handle

    return handle


def api_versions() -> HandleAtOnce:
    from entrepot.gateway.kafka.api_versions import handle

    return handle


def create_topics() -> HandleAwaited:
    from entrepot.gateway.kafka.create_topics import handle

    return handle


def delete_topics() -> HandleAwaited:
    from entrepot.gateway.kafka.delete_topics import handle

    return handle


def delete_records() -> HandleAwaited:
    from entrepot.gateway.kafka.delete_records import handle

    return handle


def init_producer_id() -> HandleWithHeader:
    from entrepot.gateway.kafka.init_producer_id import handle

    return handle


def offset_for_leader_epoch() -> HandleInSteps:
    from entrepot.gateway.kafka.offset_for_leader_epoch import handle

    return handle


def add_partitions_to_txn() -> HandleWithHeader:
    from entrepot.gateway.kafka.add_partitions_to_txn import handle

    return handle


def add_offsets_to_txn() -> HandleWithHeader:
    from entrepot.gateway.kafka.add_offsets_to_txn import handle

    return handle


def end_txn() -> HandleWithHeader:
    from entrepot.gateway.kafka.end_txn import handle

    return handle


def write_txn_markers() -> HandleAwaited:
    from entrepot.gateway.kafka.write_txn_markers import handle

    return handle


def txn_offset_commit() -> HandleWithHeader:
    from entrepot.gateway.kafka.txn_offset_commit import handle

    return handle


def describe_acls() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_acls import handle

    return handle


def create_acls() -> HandleAwaited:
    from entrepot.gateway.kafka.create_acls import handle

    return handle


def delete_acls() -> HandleAwaited:
    from entrepot.gateway.kafka.delete_acls import handle

    return handle


def describe_configs() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_configs import handle

    return handle


def alter_configs() -> HandleAwaited:
    from entrepot.gateway.kafka.alter_configs import handle

    return handle


def alter_replica_log_dirs() -> HandleAtOnce:
    from entrepot.gateway.kafka.alter_replica_log_dirs import handle

    return handle


def describe_log_dirs() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_log_dirs import handle

    return handle


def sasl_authenticate() -> HandleAwaited:
    from entrepot.gateway.kafka.sasl_authenticate import handle

    return handle


def create_partitions() -> HandleAwaited:
    from entrepot.gateway.kafka.create_partitions import handle

    return handle


def delete_groups() -> HandleAwaited:
    from entrepot.gateway.kafka.delete_groups import handle

    return handle


def elect_leaders() -> HandleAwaited:
    from entrepot.gateway.kafka.elect_leaders import handle

    return handle


def incremental_alter_configs() -> HandleAwaited:
    from entrepot.gateway.kafka.incremental_alter_configs import handle

    return handle


def alter_partition_reassignments() -> HandleAwaited:
    from entrepot.gateway.kafka.alter_partition_reassignments import handle

    return handle


def list_partition_reassignments() -> HandleInSteps:
    from entrepot.gateway.kafka.list_partition_reassignments import handle

    return handle


def offset_delete() -> HandleAwaited:
    from entrepot.gateway.kafka.offset_delete import handle

    return handle


def describe_client_quotas() -> HandleAtOnce:
    from entrepot.gateway.kafka.describe_client_quotas import handle

    return handle


def alter_client_quotas() -> HandleAwaited:
    from entrepot.gateway.kafka.alter_client_quotas import handle

    return handle


def describe_user_scram_credentials() -> HandleAtOnce:
    from entrepot.gateway.kafka.describe_user_scram_credentials import handle

    return handle


def alter_user_scram_credentials() -> HandleAwaited:
    from entrepot.gateway.kafka.alter_user_scram_credentials import handle

    return handle


def describe_quorum() -> HandleAtOnce:
    from entrepot.gateway.kafka.describe_quorum import handle

    return handle


def describe_cluster() -> HandleAtOnce:
    from entrepot.gateway.kafka.describe_cluster import handle

    return handle


def describe_producers() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_producers import handle

    return handle


def describe_transactions() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_transactions import handle

    return handle


def list_transactions() -> HandleAwaited:
    from entrepot.gateway.kafka.list_transactions import handle

    return handle


def consumer_group_heartbeat() -> RepeatedHandler[Any, Any]:
    from entrepot.gateway.kafka.consumer_group_heartbeat import HANDLER

    return HANDLER


def consumer_group_describe() -> HandleInSteps:
    from entrepot.gateway.kafka.consumer_group_describe import handle

    return handle


def list_config_resources() -> HandleWithHeader:
    from entrepot.gateway.kafka.list_config_resources import handle

    return handle


def describe_topic_partitions() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_topic_partitions import handle

    return handle


def share_group_heartbeat() -> RepeatedHandler[Any, Any]:
    from entrepot.gateway.kafka.share_group_heartbeat import HANDLER

    return HANDLER


def share_group_describe() -> HandleInSteps:
    from entrepot.gateway.kafka.share_group_describe import handle

    return handle


def share_fetch() -> Serve:
    from entrepot.gateway.kafka.share_fetch import serve

    return serve


def share_acknowledge() -> HandleAwaited:
    from entrepot.gateway.kafka.share_acknowledge import handle

    return handle


def describe_share_group_offsets() -> HandleInSteps:
    from entrepot.gateway.kafka.describe_share_group_offsets import handle

    return handle


def alter_share_group_offsets() -> HandleAwaited:
    from entrepot.gateway.kafka.alter_share_group_offsets import handle

    return handle


def delete_share_group_offsets() -> HandleAwaited:
    from entrepot.gateway.kafka.delete_share_group_offsets import handle

    return handle
