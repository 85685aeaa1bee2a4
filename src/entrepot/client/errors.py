"""What can go wrong for a client, in words for the person who called.

`retriable` says whether the same request may succeed later: connections break and
leaders move. The client repeats those itself, a bounded number of times.
"""

from typing import NoReturn

from kio.schema.errors import ErrorCode

_WORDS = {
    ErrorCode.unknown_server_error: "the broker failed; its log says why",
    ErrorCode.offset_out_of_range: "the offset is not in the log",
    ErrorCode.corrupt_message: "the batch is damaged",
    ErrorCode.unknown_topic_or_partition: "there is no such topic or partition",
    ErrorCode.leader_not_available: "the partition has no leader at the moment",
    ErrorCode.not_leader_or_follower: "the partition is led by another broker",
    ErrorCode.request_timed_out: "the broker did not finish in time",
    ErrorCode.message_too_large: "the batch is larger than the topic allows",
    ErrorCode.invalid_topic_exception: "the topic's name is not legal",
    ErrorCode.not_enough_replicas: "too few replicas are in sync",
    ErrorCode.unsupported_version: "the broker does not know this version of the request",
    ErrorCode.topic_already_exists: "the topic exists already",
    ErrorCode.invalid_partitions: "the number of partitions is not legal",
    ErrorCode.invalid_replication_factor: "the replication factor is not legal",
    ErrorCode.invalid_config: "a setting is unknown or its value is not legal",
    ErrorCode.invalid_request: "the broker does not understand the request",
    ErrorCode.invalid_timestamp: "the timestamp is too far from the broker's clock",
    ErrorCode.policy_violation: "the broker's policy forbids it",
    ErrorCode.out_of_order_sequence_number: "a batch of this producer is missing",
    ErrorCode.kafka_storage_error: "the broker's disk failed",
    ErrorCode.sasl_authentication_failed: "wrong user or password",
    ErrorCode.illegal_sasl_state: "the broker asks nobody who they are",
    ErrorCode.unsupported_sasl_mechanism: "the broker does not know this SASL mechanism",
    ErrorCode.topic_authorization_failed: "no permission for this topic",
    ErrorCode.cluster_authorization_failed: "no permission for this cluster",
    ErrorCode.coordinator_not_available: "the group has no coordinator at the moment",
    ErrorCode.not_coordinator: "the group is coordinated by another broker",
    ErrorCode.illegal_generation: "the group has gone on without this member",
    ErrorCode.inconsistent_group_protocol: "the group's members do not divide by `range`",
    ErrorCode.unknown_member_id: "the group does not know this member",
    ErrorCode.invalid_session_timeout: "the broker allows no such session timeout",
    ErrorCode.rebalance_in_progress: "the group is dividing its partitions",
    ErrorCode.invalid_group_id: "the group's name is not legal",
    ErrorCode.group_authorization_failed: "no permission for this group",
    ErrorCode.group_max_size_reached: "the group has as many members as it may have",
    ErrorCode.group_id_not_found: "there is no such group",
    ErrorCode.non_empty_group: "the group has members",
    ErrorCode.group_subscribed_to_topic: "the group's members read this topic",
    ErrorCode.transactional_id_not_found: "there is no such transactional id",
    ErrorCode.transactional_id_authorization_failed: "no permission for this transactional id",
    ErrorCode.invalid_producer_epoch: "the producer has another epoch by now",
    ErrorCode.producer_fenced: "another producer has taken the transactional id",
    ErrorCode.concurrent_transactions: "the transaction is being ended",
    ErrorCode.invalid_record: "the broker refuses a record of the batch",
    ErrorCode.unknown_topic_id: "there is no topic of that id",
}


class ClientError(Exception):
    """The request did not succeed. The text is one line."""

    retriable = False


class Unreachable(ClientError):
    """No connection, or it is gone, or no answer came. Whether it was done is unknown."""

    retriable = True


class Unsupported(ClientError):
    """The broker does not have what this needs."""


class BadAnswer(ClientError):
    """The broker's bytes are not the protocol."""


class Refused(ClientError):
    """The broker's answer is an error code of the protocol."""

    def __init__(self, code: ErrorCode, about: object = "", message: str | None = None) -> None:
        self.code = code
        self.about = about
        self.retriable = code.retriable
        self.words = message or _WORDS.get(code) or "the broker refuses"
        text = f"{self.words} ({self.name})"
        super().__init__(f"{about}: {text}" if about else text)

    @property
    def name(self) -> str:
        """As Kafka's documentation spells it."""
        return self.code.name.upper()


def check(code: ErrorCode, about: object = "", message: str | None = None) -> None:
    if code is not ErrorCode.none:
        raise Refused(code, about, message)


def explain(error: BaseException, address: str) -> NoReturn:
    """Raise what went wrong while a connection was opened: Unreachable for what the net said."""
    if isinstance(error, TimeoutError):
        raise Unreachable(f"no broker answers at {address}: timed out") from None
    if isinstance(error, ConnectionRefusedError):
        raise Unreachable(f"no broker answers at {address}: nobody listens") from None
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
        raise Unreachable(f"no broker answers at {address}: {reason}") from None
    raise error
