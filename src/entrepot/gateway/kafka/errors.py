"""What Kafka calls the things that go wrong here."""

from kio.schema.errors import ErrorCode

from entrepot.core import errors

_CODES: dict[type[Exception], ErrorCode] = {
    errors.InvalidBatch: ErrorCode.corrupt_message,
    errors.BatchTooLarge: ErrorCode.message_too_large,
    errors.InvalidTimestamp: ErrorCode.invalid_timestamp,
    errors.UnknownTopic: ErrorCode.unknown_topic_or_partition,
    errors.UnknownTopicId: ErrorCode.unknown_topic_id,
    errors.TopicExists: ErrorCode.topic_already_exists,
    errors.InvalidName: ErrorCode.invalid_topic_exception,
    errors.InvalidPartitions: ErrorCode.invalid_partitions,
    errors.InvalidConfig: ErrorCode.invalid_config,
    errors.OffsetOutOfRange: ErrorCode.offset_out_of_range,
    errors.StaleEpoch: ErrorCode.fenced_leader_epoch,
    errors.UnknownEpoch: ErrorCode.unknown_leader_epoch,
    errors.OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    errors.DuplicateSequence: ErrorCode.duplicate_sequence_number,
    errors.FencedProducer: ErrorCode.invalid_producer_epoch,
    errors.StorageError: ErrorCode.kafka_storage_error,
    errors.Corruption: ErrorCode.kafka_storage_error,
}

# What a request may fail with: the peer's mistakes, and the disk's.
KNOWN = (errors.PeerError, errors.StorageError, OSError)


def code_of(error: Exception) -> ErrorCode:
    if isinstance(error, OSError):
        return ErrorCode.kafka_storage_error
    return _CODES.get(type(error), ErrorCode.invalid_request)
