"""Every bound in the system, in one place, with the relations between them asserted."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Frames and requests.
FRAME_BYTES_MAX = 100 * MIB  # A produce request; Kafka's socket.request.max.bytes.
REQUEST_BYTES_MAX = 8 * MIB  # Any request that carries no records.
REQUEST_ELEMENTS_MAX = 200_000  # Array elements in one request, all nesting levels together.
FRAMES_WAITING_MAX = 128  # Requests of one connection that wait for their turn.
RESPONSES_WAITING_MAX = 1_000  # Requests of one connection that are appended but not answered.
CONNECTIONS_MAX = 20_000  # Of each net: as many again under TLS.

# Batches.
BATCH_BYTES_MAX = 1 * MIB + 12  # Kafka's default of max.message.bytes.
DECOMPRESSED_BYTES_MAX = 128 * MIB  # What one batch may unpack to.
RECORDS_PER_BATCH_MAX = 10_000_000
HEADERS_PER_RECORD_MAX = 100_000

# Answers.
FETCH_BYTES_MAX = 55 * MIB  # One fetch response, whatever the client asks for.
FETCH_SESSIONS_MAX = 1_000
FETCH_SESSION_IDLE_MS_MIN = 120_000  # A younger session is not evicted for a new one.
BACKLOG_BYTES_HIGH = 4 * MIB  # Unsent output above which a connection is not read from.
SEND_BUFFER_BYTES = 256 * KIB  # Output of a connection that the system holds; Linux takes it twice.

# The log.
SEGMENT_BYTES = 1 * GIB
SEGMENT_BYTES_MIN = 14
SEGMENT_BYTES_MAX = 2**31 - 1  # Positions in an index are 32 bits.
INDEX_INTERVAL_BYTES = 16 * KIB
INDEXES_CACHED_MAX = 128  # Indexes of sealed segments held in memory.
FILES_OPEN_MAX = 1_024
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 100_000
PRODUCERS_PER_PARTITION_MAX = 10_000
PRODUCER_BATCHES_REMEMBERED = 5  # Kafka's clients keep at most five requests in flight.

TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_IDLE_MS_MAX = 7 * 24 * 3_600_000  # Then it is forgotten.
TRANSACTION_TIMEOUT_MS_MAX = 900_000  # Kafka's transaction.max.timeout.ms.
CLEANER_KEYS_MAX = 500_000  # Keys one compaction pass remembers, about 100 bytes each.

# Who may come in, and what they may do.
LOGIN_FRAME_BYTES_MAX = 64 * KIB  # A request before the peer has said who it is.
LOGIN_MS_MAX = 30_000  # How long it has for that.
LOGIN_FAILURE_MS = 250  # When a failed login is answered, counted from the attempt.
TLS_HANDSHAKE_MS_MAX = 10_000
USERS_MAX = 100_000
USER_NAME_CHARACTERS_MAX = 255
SCRAM_ITERATIONS = 8_192  # For a password that is set here.
SCRAM_ITERATIONS_MIN = 4_096  # RFC 7677's least.
SCRAM_ITERATIONS_MAX = 16_384  # Kafka's most.
SCRAM_SALT_BYTES_MAX = 1 * KIB
ACLS_MAX = 100_000
ACCESS_ANSWERS_MAX = 50_000  # Remembered, until the entries change.
QUOTAS_MAX = 100_000
QUOTA_BUCKETS_MAX = 10_000
QUOTA_BURST_SECONDS = 10  # What may be used at once: so many seconds of the quota.
THROTTLE_MS_MAX = 10_000  # One wait. Who owes more waits again.

# Consumer groups.
GROUPS_MAX = 100_000
GROUP_MEMBERS_MAX = 10_000
GROUP_BYTES_MAX = 32 * MIB  # What the members of one classic group say of themselves.
OFFSET_METADATA_SIZE_MAX = 4_096  # Characters beside a committed offset.
TOPIC_REGEX_SIZE_MAX = 1_000  # Characters of a regular expression for topics.
TOPIC_REGEX_STATES_MAX = 1_000  # Of the automaton that it becomes.
TOPIC_REGEX_CACHED_MAX = 10_000  # Its combinations of states that are remembered.

# The commit.
SEGMENTS_SYNCED_DIRECTLY_MAX = 8  # A tick that touches more goes through the journal.
JOURNAL_BYTES_MAX = 64 * MIB  # One journal file, before the other takes over.

assert REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX <= FRAME_BYTES_MAX <= DECOMPRESSED_BYTES_MAX
assert FETCH_BYTES_MAX < 2**31  # A frame's size is a signed 32-bit number.
assert SEGMENT_BYTES <= SEGMENT_BYTES_MAX < 2**32
assert LOGIN_FRAME_BYTES_MAX <= REQUEST_BYTES_MAX
assert SCRAM_ITERATIONS_MIN <= SCRAM_ITERATIONS <= SCRAM_ITERATIONS_MAX

# Exchanges and bindings, of one virtual host.
EXCHANGES_MAX = 100_000
BINDINGS_MAX = 1_000_000
BINDING_WEIGHT_MAX = 10_000  # Of a binding to a consistent-hash exchange; RabbitMQ's.
ROUTE_CACHED_NAMES_MAX = 1_000  # A key and its queues, in one remembered answer,
ROUTES_CACHED_NAMES_MAX = 100_000  # and in all of them.
DELAY_MS_MAX = 2**32 - 1  # A longer delay is none, as in RabbitMQ.

assert ROUTE_CACHED_NAMES_MAX <= ROUTES_CACHED_NAMES_MAX

# AMQP 0-9-1.
AMQP_FRAME_BYTES_MIN = 4 * KIB  # What every peer must take, by the specification.
AMQP_FRAME_BYTES_MAX = 128 * KIB  # Offered when a connection is tuned, as RabbitMQ does.
AMQP_MESSAGE_BYTES_MAX = 16 * MIB  # One body; RabbitMQ's max_message_size.
AMQP_UNFINISHED_BYTES_MAX = 256 * MIB  # Of one connection: contents that are not whole yet.
AMQP_TABLE_DEPTH_MAX = 32  # Tables and arrays within tables and arrays.
AMQP_TARGETS_CACHED_MAX = 1_000  # Of one connection: exchanges and keys that it publishes to.

assert AMQP_FRAME_BYTES_MIN <= LOGIN_FRAME_BYTES_MAX <= AMQP_FRAME_BYTES_MAX
assert AMQP_MESSAGE_BYTES_MAX <= AMQP_UNFINISHED_BYTES_MAX
assert AMQP_MESSAGE_BYTES_MAX <= FRAME_BYTES_MAX  # So that Kafka's clients can read it.
