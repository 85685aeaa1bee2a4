"""Bounds of SQS, as Amazon has them. Those of HTTP are in `wire.http.limits`."""

from entrepot.core.limits import KIB, LEASE_MS_MAX, MIB

BODY_BYTES_MAX = 8 * MIB  # One request: a message or batch, every character of it escaped.
VALUES_MAX = 10_000  # In a long request; ten messages with ten attributes have a tenth of that.
BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = 1 * MIB  # All messages of one batch.
MESSAGE_BYTES = 256 * KIB  # The default of a queue's MaximumMessageSize,
MESSAGE_BYTES_LEAST = 1 * KIB  # and what it may be.
MESSAGE_BYTES_MAX = 1 * MIB
MESSAGES_MAX = 10  # In one answer.
ATTRIBUTES_MAX = 10  # Of a message that is sent.
ATTRIBUTE_NAME_MAX = 256  # Characters; also of its type.
ENTRY_ID_MAX = 80
QUEUE_NAME_MAX = 80
ID_MAX = 128  # Characters of a message's group, or of its deduplication id.
TOPIC_NAME_MAX = 240  # Amazon has 256, and a topic 249 with what is added to it.
SUBSCRIPTIONS_MAX = 100  # Of one topic: copies are made in one turn.
SNS_PAGE_MAX = 100  # Topics or subscriptions in one answer.
DELIVERY_S_MAX = 3_600  # From the first attempt to reach an HTTP endpoint to the last,
RETRIES_MAX = 100  # and how many there are at most.
FILTER_POLICY_CHARACTERS_MAX = 10 * KIB
FILTER_CONDITIONS_MAX = 150
FILTER_DEPTH_MAX = 5
GRANTS_MAX = 100  # Users in all permissions of a queue.
PAGE_MAX = 1_000  # Queues in one answer.
LABELS_MAX = 50  # Tags of a queue,
LABEL_NAME_MAX = 128  # and characters of them.
LABEL_VALUE_MAX = 256

# Of HTTP endpoints that subscribe to topics:
ENDPOINT_CHARACTERS_MAX = 2_048
ENDPOINT_MESSAGES_MAX = 1_000  # Of one endpoint, that are being sent or wait for a retry,
ENDPOINT_BYTES_MAX = 4 * MIB  # and their bytes, unless one is larger.
ENDPOINT_POSTS_MAX = 4  # Requests to one endpoint at once,
POSTS_MAX = 128  # and to all.
POST_S_MAX = 15  # From the connection to the answer.
POST_ANSWER_BYTES_MAX = 64 * KIB  # Nothing of it counts but the status.
CONFIRMATION_S = 48 * 3_600  # How long a subscription may wait to be confirmed.

VISIBILITY_S = 30
VISIBILITY_S_MAX = 12 * 3_600
DELAY_S_MAX = 900
WAIT_S_MAX = 20
RETENTION_S = 4 * 24 * 3_600
RETENTION_S_MIN = 60
RETENTION_S_MAX = 14 * 24 * 3_600
DEDUPLICATION_S = 300  # How long a FIFO queue remembers the ids of messages.
RECEIVES_MAX = 1_000  # maxReceiveCount of a redrive policy.
MOVE_TASKS_MAX = 100  # That run at once,
MOVE_TASKS_KEPT = 10  # and that are told of one queue,
MOVE_SOURCES_MAX = 1_000  # for so many queues.
MOVE_RATE_MAX = 500  # Messages in a second, if a task has a limit.
PURGE_EVERY_MS = 60_000  # A queue is purged once in this time.

assert VISIBILITY_S_MAX * 1_000 == LEASE_MS_MAX
assert 6 * MESSAGE_BYTES_MAX <= 6 * BATCH_BYTES_MAX < BODY_BYTES_MAX
