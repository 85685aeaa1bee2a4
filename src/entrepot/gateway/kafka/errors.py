"""Maps the broker's errors to Kafka's error codes."""

from kio.schema.errors import ErrorCode

from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.core import errors

_CODES: dict[type[Exception], ErrorCode] = {
    errors.InvalidBatch: ErrorCode.corrupt_message,
    errors.InvalidRecord: ErrorCode.invalid_record,
    errors.BatchTooLarge: ErrorCode.message_too_large,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.TopicDenied: ErrorCode.topic_authorization_failed,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.InvalidName: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitions: ErrorCode.invalid_partitions,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.StaleEpoch: ErrorCode.fenced_leader_epoch,
    errors.UnknownEpoch: ErrorCode.unknown_leader_epoch,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.DuplicateSequence: ErrorCode.duplicate_sequence_number,
    errors.FencedCoordinator: ErrorCode.transaction_coordinator_fenced,
    errors.FencedProducer: ErrorCode.invalid_producer_epoch,
    errors.InvalidTransactionState: ErrorCode.invalid_txn_state,
    errors.NotInTransaction: ErrorCode.invalid_txn_state,
    errors.ConcurrentTransactions: ErrorCode.concurrent_transactions,
    errors.InvalidProducerMapping: ErrorCode.invalid_producer_id_mapping,
    errors.InvalidTransactionTimeout: ErrorCode.invalid_transaction_timeout,
    errors.TooManyTransactions: ErrorCode.policy_violation,
    errors.InvalidRecordState: ErrorCode.invalid_record_state,
    errors.InvalidAcknowledgement: ErrorCode.invalid_request,
    errors.NotLeader: ErrorCode.not_leader_or_follower,
    errors.StillLoading: ErrorCode.coordinator_load_in_progress,
    errors.NotEnoughReplicas: ErrorCode.not_enough_replicas,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.not_enough_replicas_after_append,
    errors.OffsetNotAvailable: ErrorCode.offset_not_available,
    errors.InvalidReplication: ErrorCode.invalid_replication_factor,
    errors.InvalidAssignment: ErrorCode.invalid_replica_assignment,
    errors.ElectionNotNeeded: ErrorCode.election_not_needed,
    errors.NoLeaderToElect: ErrorCode.eligible_leaders_not_available,
    errors.NotMoving: ErrorCode.no_reassignment_in_progress,
    errors.StorageError: ErrorCode.kafka_storage_error,
    errors.Corruption: ErrorCode.kafka_storage_error,
    errors.DamagedBatch: ErrorCode.corrupt_message,  # Consumers show this code to their users.
}

# Errors that are answered with a code; all others are bugs and close the connection.
KNOWN = (errors.PeerError, errors.StorageError, OSError)


def code_of_fault(fault: Fault | None) -> ErrorCode:
    """Return the code for a fault of a group, which has the code's name."""
    return ErrorCode.none if fault is None else ErrorCode[fault.name.lower()]


def code_of(error: Exception) -> ErrorCode:
    if isinstance(error, GroupError):
        return code_of_fault(error.fault)
    if isinstance(error, OSError):
        return ErrorCode.kafka_storage_error
    return _CODES.get(type(error), ErrorCode.invalid_request)
