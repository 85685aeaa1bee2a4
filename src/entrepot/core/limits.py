"""Every bound in the system, in one place, with the relations between them asserted."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Frames and requests.
FRAME_BYTES_MAX = 129 * MIB  # A produce request; Kafka's socket.request.max.bytes.
REQUEST_BYTES_MAX = 8 * MIB  # Any request that carries no records.
REQUEST_ELEMENTS_MAX = 200_000  # Array elements in one request, all nesting levels together.
FRAMES_WAITING_MAX = 128  # Requests of one connection that wait for their turn.
REQUEST_BYTES_NARROW = 16 * KIB  # A longer request is read a turn at a time.
TURN_MS = 5  # How long one request's work keeps all others waiting; then it waits for its turn.
CHANGES_AT_ONCE_MAX = 100  # Of what one request changes: begun together and committed together.
RESPONSES_WAITING_MAX = 1_000  # Requests of one connection that are appended but not answered.
CONNECTIONS_MAX = 20_000  # Of each net: as many again under TLS.
UNFINISHED_BYTES_MAX = 256 * MIB  # Input of all connections that is not dealt with; a default.
UNFINISHED_MS_MAX = 60_000  # How long it waits for its rest while nothing comes; a default.

# Batches.
BATCH_BYTES_MAX = 1 * MIB + 12  # Kafka's default of max.message.bytes.
DECOMPRESSED_BYTES_MAX = 129 * MIB  # What one batch may unpack to.
LARGE_BYTES = 2 * MIB  # A batch or a message that is written in turns.
BATCH_BYTES_AT_ONCE_MAX = 64 * KIB  # A longer one is looked into a turn at a time, where it is.
RECORDS_PER_BATCH_MAX = 10_000_000
HEADERS_PER_RECORD_MAX = 100_000
INVALID_RECORDS_TOLD_MAX = 1_000  # Of one batch that is refused: which records are wrong.

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
READ_HEADERS_MAX = 2_000  # Of batches that an earlier process wrote: looked at in one read.
INDEXES_CACHED_MAX = 128  # Indexes of sealed segments held in memory.
FILES_OPEN_MAX = 1_024
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 100_000
PRODUCERS_PER_PARTITION_MAX = 10_000
PRODUCER_BATCHES_REMEMBERED = 5  # Kafka's clients keep at most five requests in flight.

TRANSACTIONAL_IDS_MAX = 100_000
TRANSACTIONAL_ID_IDLE_MS_MAX = 7 * 24 * 3_600_000  # Then it is forgotten.
TRANSACTION_PARTITIONS_MAX = 10_000  # Each change of a transaction is written with all of them.
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
OFFSETS_AT_ONCE_MAX = 1_000  # Committed or deleted in one record batch; a request has several.
OFFSET_METADATA_SIZE_MAX = 4_096  # Characters beside a committed offset.
REGEX_CHARACTERS_MAX = 1_000  # Of a regular expression for names.
REGEX_BYTES_MAX = 1 * MIB  # Of the automaton that it becomes.

# The commit.
SEGMENTS_SYNCED_DIRECTLY_MAX = 8  # A tick that touches more goes through the journal.
JOURNAL_PARTITION_BYTES_MAX = 4 * MIB  # Of one partition and tick; more is synced where it is.
JOURNAL_BYTES_MAX = 64 * MIB  # One journal file, before the other takes over.

assert REQUEST_BYTES_NARROW <= REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX <= FRAME_BYTES_MAX <= DECOMPRESSED_BYTES_MAX
assert FRAME_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert FETCH_BYTES_MAX < 2**31  # A frame's size is a signed 32-bit number.
assert SEGMENT_BYTES <= SEGMENT_BYTES_MAX < 2**32
assert LOGIN_FRAME_BYTES_MAX <= REQUEST_BYTES_MAX
assert SCRAM_ITERATIONS_MIN <= SCRAM_ITERATIONS <= SCRAM_ITERATIONS_MAX

# Names of queues, exchanges and virtual hosts, and keys of messages and bindings: whatever
# they come by, they must fit into a short string of AMQP, or nobody could be told of them.
NAME_BYTES_MAX = 255

# Exchanges and bindings, of one virtual host.
EXCHANGES_MAX = 100_000
BINDINGS_MAX = 1_000_000
BINDINGS_AT_ONCE_MAX = 1_000  # That go with their exchange. Of more, some go before it.
BINDING_WEIGHT_MAX = 10_000  # Of a binding to a consistent-hash exchange; RabbitMQ's.
DESTINATIONS_AT_ONCE_MAX = 500  # That a message goes to. More have it a turn at a time.
ROUTE_CACHED_NAMES_MAX = 1_000  # A key and its queues, in one remembered answer,
ROUTES_CACHED_NAMES_MAX = 100_000  # and in all of them.
DELAY_MS_MAX = 2**32 - 1  # A longer delay is none, as in RabbitMQ.

assert ROUTE_CACHED_NAMES_MAX <= ROUTES_CACHED_NAMES_MAX

# AMQP 0-9-1.
AMQP_FRAME_BYTES_MIN = 4 * KIB  # What every peer must take, by the specification.
AMQP_FRAME_BYTES_MAX = 128 * KIB  # Offered when a connection is tuned, as RabbitMQ does.
AMQP_MESSAGE_BYTES = 16 * MIB  # One body, unless it is set otherwise; RabbitMQ's default.
AMQP_MESSAGE_BYTES_MAX = 128 * MIB  # What queues.max_message_bytes may be.
AMQP_UNFINISHED_BYTES_MAX = 256 * MIB  # Of one connection: contents that are not whole yet.
AMQP_TABLE_DEPTH_MAX = 32  # Tables and arrays within tables and arrays.
AMQP_PLACES_CACHED_MAX = 4_000  # Of one connection: exchanges and keys, each way.

assert AMQP_FRAME_BYTES_MIN <= LOGIN_FRAME_BYTES_MAX <= AMQP_FRAME_BYTES_MAX
assert AMQP_MESSAGE_BYTES <= AMQP_MESSAGE_BYTES_MAX <= AMQP_UNFINISHED_BYTES_MAX
assert AMQP_MESSAGE_BYTES_MAX + MIB <= FRAME_BYTES_MAX  # So that Kafka's clients can read it.

# AMQP 0-9-1, a connection that is open.
AMQP_CHANNELS_MAX = 2_047  # Of one connection, as RabbitMQ offers.
AMQP_HEARTBEAT_S = 60  # Offered when a connection is tuned, as RabbitMQ does.
AMQP_CONSUMERS_MAX = 10_000  # Of one channel.
AMQP_BATCH_COUNT_MAX = 100_000  # What a consumer may wait for, to be sent it together,
AMQP_BATCH_MS_MAX = 60_000  # and how long.
AMQP_UNACKED_MAX = 250_000  # Of one channel: delivered and not acknowledged.
AMQP_UNCOMMITTED_BYTES_MAX = 16 * MIB  # Of one connection: published and not permanent.
AMQP_UNCONFIRMED_RUNS_MAX = 10_000  # Of one connection: runs that are not permanent.
AMQP_TRANSACTION_BYTES_MAX = 128 * MIB  # Of one channel: published and not committed.
AMQP_TRANSACTION_MESSAGES_MAX = 500_000
AMQP_PROPERTIES_CACHED_MAX = 10_000  # What was found in different properties.
AMQP_READ_AHEAD_MAX = 1_000  # Messages of a stream that are read at once for a consumer.

assert AMQP_UNCOMMITTED_BYTES_MAX <= AMQP_MESSAGE_BYTES_MAX <= AMQP_TRANSACTION_BYTES_MAX

# Queues.
QUEUE_TTL_MS_MAX = 315_360_000_000  # Of a message or of an unused queue: ten years, RabbitMQ's.
QUEUE_RETENTION_MS = 24 * 3_600_000  # How long settled messages are kept to be rewound to.
QUEUE_TURN_MESSAGES_MAX = 1_000  # Handed out, expired or counted before others have their turn.
QUEUE_TURN_BYTES_MAX = 4 * MIB  # Read at once to be handed out, about.
QUEUES_AT_ONCE_MAX = 500  # That go with their connection. More go a turn at a time.
QUEUE_CONSUMERS_MAX = 100_000
QUEUE_DEFERRED_MAX = 1_000_000  # Messages that wait for a time, each with an entry in memory.
LANE_ATTEMPTS_MAX = 1_000_000  # Messages that came back, and how often is remembered on disk.
QUEUE_WATCHED_MAX = 1_000_000  # Messages whose publishers wait until they are consumed.
QUEUE_OFFSETS_CHECKED_MAX = 10_000  # With more out of order, an account is checked by counts.
QUEUE_TIMER_MS_MAX = 3_600_000  # Then it is looked again: clocks may be set.
DEAD_LETTER_DEATHS_MAX = 100  # The newest in `x-death`: together they fit into AMQP's frame.
DEAD_LETTER_RETRY_MS = 1_000  # When a dead letter is tried again that found no room.

# HTTP.
HTTP_HEAD_BYTES_MAX = 32 * KIB  # The first line and the headers of a request.
HTTP_HEADERS_MAX = 100
HTTP_BODY_BYTES_MAX = 32 * MIB  # One request: a message, as base64 in JSON.
HTTP_JSON_VALUES_MAX = 1_000_000  # In one document; in memory, each is about a hundred bytes.
HTTP_PIPELINED_MAX = 16  # Requests of one connection that wait; then it is not read from.
HTTP_QUERY_FIELDS_MAX = 100
HTTP_PAGE_ROWS_MAX = 500  # Of a list that is asked for in pages; RabbitMQ's.
HTTP_MESSAGES_MAX = 10_000  # Taken from a queue, or looked at, by one request,
HTTP_MESSAGES_BYTES_MAX = 32 * MIB  # and what they weigh: then there are fewer.
HTTP_CHECK_MS = 30_000  # How often a connection is looked at, and so how exact these are:
HTTP_REQUEST_MS_MAX = 60_000  # From a request's first byte to its last.
HTTP_IDLE_MS_MAX = 300_000  # Between requests.

assert AMQP_MESSAGE_BYTES * 4 // 3 <= HTTP_BODY_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert HTTP_CHECK_MS <= HTTP_REQUEST_MS_MAX <= HTTP_IDLE_MS_MAX

# Virtual hosts.
VHOSTS_MAX = 10_000
QUEUES_PER_VHOST_MAX = 200_000
QUEUE_SEGMENT_BYTES = 64 * MIB  # Settled messages leave the disk a segment at a time.
DEDUPLICATION_IDS_MAX = 1_000_000  # That a deduplicating exchange remembers for one queue.
DELAYED_IN_FLIGHT_MAX = 1_000  # Of one virtual host: messages that are due and on their way.
STREAM_BATCH_BYTES_MAX = 129 * MIB  # Of a topic that AMQP made: one message must fit in.

assert AMQP_MESSAGE_BYTES_MAX < STREAM_BATCH_BYTES_MAX <= FRAME_BYTES_MAX

# Share groups.
SHARE_GROUPS_MAX = 10_000
SHARE_PARTITIONS_MAX = PARTITIONS_MAX  # Of all groups together: what is remembered of each.
SHARE_SESSIONS_MAX = 2_000  # Kafka's group.share.max.share.sessions.
SHARE_SESSION_PARTITIONS_MAX = 2 * PARTITIONS_MAX  # Of all sessions together.
SHARE_LOCKS_MAX = 10_000  # A group's share.partition.max.record.locks.
SHARE_RECORDS_MAX = 10_000  # Acquired of one partition at once, however large a batch is.
SHARE_DELIVERIES_MAX = 1_000
SHARE_DEAD_LETTERS_MAX = 1_000  # Copied at once; others wait.

# Lanes of queues: where messages are kept, and what is remembered of them.
QUEUE_BATCH_BYTES = 1 * MIB  # One batch of messages, unless one message is larger.
QUEUE_READ_BYTES = 256 * KIB  # Read from the log at once, unless one batch is larger.
QUEUE_CACHE_BYTES_MAX = 64 * MIB  # Messages of the log in memory, unless one is larger.
QUEUE_CACHE_LANE_BYTES_MAX = 8 * MIB  # Of one; more than a batch is, however small its messages.
QUEUE_HEADERS_CACHED_MAX = 4_000  # Of one lane: ways in which messages' headers are written.
QUEUE_HEADERS_CACHED_BYTES_MAX = 1 * KIB  # A longer one is written anew each time.
TRANSIENT_BYTES_MAX = 1 * GIB  # Messages that are in memory alone; then publishers wait.
STREAM_READ_AHEAD_BYTES = 256 * KIB  # Of one reader, unless one batch is larger.

assert QUEUE_READ_BYTES <= QUEUE_BATCH_BYTES
assert QUEUE_BATCH_BYTES + AMQP_MESSAGE_BYTES <= QUEUE_CACHE_BYTES_MAX
assert 8 * QUEUE_BATCH_BYTES <= QUEUE_CACHE_LANE_BYTES_MAX <= QUEUE_CACHE_BYTES_MAX

# Leases of queues' messages until a time.
QUEUE_TIMED_LEASES_MAX = 1_000  # Of one queue,
QUEUE_TIMED_LEASED_MAX = 1_000_000  # and messages in all of them, each with an entry in memory.
LEASE_MS_MAX = 12 * 3_600_000
LEASE_MESSAGES_MAX = 100_000  # Of one request.
LEASE_RANGES_MAX = 100_000  # In one request.

assert LEASE_MESSAGES_MAX <= QUEUE_TIMED_LEASED_MAX
