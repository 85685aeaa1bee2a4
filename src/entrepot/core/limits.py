"""Every bound in the system, in one place, with the relations between them asserted."""

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

# Frames and requests.
FRAME_BYTES_MAX = 129 * MIB  # A produce request; Kafka's socket.request.max.bytes.
REQUEST_BYTES_MAX = 8 * MIB  # Any request that carries no records.
REQUEST_ELEMENTS_MAX = 200_000  # Array elements in one request, all nesting levels together.
FRAMES_WAITING_MAX = 128  # Requests of one connection that wait to be processed.
REQUEST_BYTES_NARROW = 16 * KIB  # A longer request is decoded in turns.
TURN_MS = 5  # How long one request may keep the loop; then others run before it goes on.
# Changes of one request that are appended together and committed together.
CHANGES_AT_ONCE_MAX = 100
# Requests begun in one iteration of the loop, of those that a task of their own serves.
REQUESTS_AT_ONCE_MAX = 100
RESPONSES_WAITING_MAX = 1_000  # Requests of one connection that are appended but not answered.
CONNECTIONS_MAX = 20_000  # Without TLS; as many again with TLS.
# Input of all connections that is not processed yet; configurable.
UNFINISHED_BYTES_MAX = 256 * MIB
# How long such input waits for its rest while nothing arrives; configurable.
UNFINISHED_MS_MAX = 60_000
# Of a kind that metrics list one by one: partitions, queues, partitions that groups read.
METRICS_ROWS_MAX = 1_000
SPANS_AT_ONCE_MAX = 100  # Messages of one run, or request, that spans are made of.
SPANS_WAITING_MAX = 10_000  # To be sent; others are dropped.
DISK_FREE_BYTES_LOW = 512 * MIB  # With less free, health and metrics say so.

# Batches.
BATCH_BYTES_MAX = 1 * MIB + 12  # Kafka's default of max.message.bytes.
DECOMPRESSED_BYTES_MAX = 129 * MIB  # One batch, decompressed.
LARGE_BYTES = 2 * MIB  # A larger batch or message is written in turns.
BATCH_BYTES_AT_ONCE_MAX = 64 * KIB  # A longer batch is decoded in turns or in a worker thread.
RECORDS_PER_BATCH_MAX = 10_000_000
HEADERS_PER_RECORD_MAX = 100_000
INVALID_RECORDS_TOLD_MAX = 1_000  # Records listed in the answer to a batch that is refused.

# Answers.
FETCH_BYTES_MAX = 55 * MIB  # One fetch response, whatever the client asks for.
FETCH_SESSIONS_MAX = 1_000
FETCH_SESSION_IDLE_MS_MIN = 120_000  # A younger session is not evicted for a new one.
BACKLOG_BYTES_HIGH = 4 * MIB  # Unsent output above which a connection is not read from.
# Output of a connection in the system's buffer; Linux allocates twice as much.
SEND_BUFFER_BYTES = 256 * KIB

# The log.
SEGMENT_BYTES = 1 * GIB
SEGMENT_BYTES_MIN = 14
SEGMENT_BYTES_MAX = 2**31 - 1  # Positions in an index are 32 bits.
INDEX_INTERVAL_BYTES = 16 * KIB
SENDFILE_BYTES_MIN = 32 * KIB  # A smaller range of a file is read and sent: that is faster.
READ_HEADERS_MAX = 2_000  # Headers, written by an earlier process, that are checked in one read.
INDEXES_CACHED_MAX = 128  # Indexes of sealed segments held in memory.
MANIFEST_BYTES_MAX = 16 * MIB  # Of one partition's archive: about 100,000 segments.
FILES_OPEN_MAX = 1_024
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_MAX = 100_000
PRODUCERS_PER_PARTITION_MAX = 10_000
PRODUCER_BATCHES_REMEMBERED = 5  # Kafka's clients keep at most five requests in flight.
MARKERS_PER_PARTITION_MAX = 4_096  # Whose offsets are remembered; the others are estimated.

EPOCHS_PER_PARTITION_MAX = 1_000  # Leader epochs whose beginnings are remembered, the last ones.

TRANSACTIONAL_IDS_MAX = 100_000
# A transactional id that is unused for longer is forgotten.
TRANSACTIONAL_ID_IDLE_MS_MAX = 7 * 24 * 3_600_000
TRANSACTION_PARTITIONS_MAX = 10_000  # Every record about a transaction lists all of them.
TRANSACTION_TIMEOUT_MS_MAX = 900_000  # Kafka's transaction.max.timeout.ms.
CLEANER_KEYS_MAX = 500_000  # Keys that one compaction pass keeps in memory, about 100 bytes each.

# Logins, permissions and quotas.
LOGIN_FRAME_BYTES_MAX = 64 * KIB  # A request of a peer that has not logged in.
LOGIN_MS_MAX = 30_000  # From the connection to the login.
LOGIN_FAILURE_MS = 250  # A failed login is answered this long after the attempt.
TLS_HANDSHAKE_MS_MAX = 10_000
USERS_MAX = 100_000
USER_KEYS_MAX = 10  # Access keys of one user.
USER_NAME_CHARACTERS_MAX = 255
SCRAM_ITERATIONS = 8_192  # For a password that is set here.
SCRAM_ITERATIONS_MIN = 4_096  # RFC 7677's minimum.
SCRAM_ITERATIONS_MAX = 16_384  # Kafka's maximum.
SCRAM_SALT_BYTES_MAX = 1 * KIB
ACLS_MAX = 100_000
ACCESS_ANSWERS_MAX = 50_000  # Access decisions that are cached until ACLs or permissions change.
QUOTAS_MAX = 100_000
QUOTA_BUCKETS_MAX = 10_000
QUOTA_BURST_SECONDS = 10  # The burst of a quota: so many seconds of its rate.
THROTTLE_MS_MAX = 10_000  # One delay. A client with a larger debt is delayed again.

# Consumer groups.
GROUPS_MAX = 100_000
GROUP_MEMBERS_MAX = 10_000
GROUP_BYTES_MAX = 32 * MIB  # What the members of one group send about themselves.
# Offsets committed or deleted in one record batch; a request may need several.
OFFSETS_AT_ONCE_MAX = 1_000
OFFSET_METADATA_SIZE_MAX = 4_096  # Characters beside a committed offset.
REGEX_CHARACTERS_MAX = 1_000  # A regular expression for topic names.
REGEX_BYTES_MAX = 1 * MIB  # The automaton that it is compiled to.

# The commit.
SEGMENTS_SYNCED_DIRECTLY_MAX = 2  # A tick that touches more goes through the journal.
COMMIT_DEFERRED_MS = 5  # How long a write or a commit that nobody waits for may wait for others.
# One partition in one tick; with more, its segment is synced directly.
JOURNAL_PARTITION_BYTES_MAX = 4 * MIB
JOURNAL_BYTES_MAX = 64 * MIB  # One journal file; then the other is used.

assert REQUEST_BYTES_NARROW <= REQUEST_BYTES_MAX <= FRAME_BYTES_MAX
assert BATCH_BYTES_MAX <= FRAME_BYTES_MAX <= DECOMPRESSED_BYTES_MAX
assert FRAME_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert FETCH_BYTES_MAX < 2**31  # A frame's size is a signed 32-bit number.
assert SEGMENT_BYTES <= SEGMENT_BYTES_MAX < 2**32
assert LOGIN_FRAME_BYTES_MAX <= REQUEST_BYTES_MAX
assert SCRAM_ITERATIONS_MIN <= SCRAM_ITERATIONS <= SCRAM_ITERATIONS_MAX

# Names of queues, exchanges and virtual hosts, routing keys and binding keys. Whatever protocol
# they come from, every protocol must be able to carry them.
NAME_BYTES_MAX = 255

# Names of subjects and filters. A name longer than NAME_BYTES_MAX reaches sessions only.
SUBJECT_BYTES_MAX = 65_535
SUBJECT_LEVELS_MAX = 256
SUBJECTS_REMEMBERED_MAX = 50_000  # Names of which is remembered who gets what is published there.
SUBJECT_REMEMBERED_CHARACTERS_MAX = 512  # Longer names are matched each time.

assert NAME_BYTES_MAX < SUBJECT_LEVELS_MAX <= SUBJECT_BYTES_MAX

# Exchanges and bindings of one virtual host.
EXCHANGES_MAX = 100_000
BINDINGS_MAX = 1_000_000
# Bindings deleted together with their exchange. If there are more, some are deleted before.
BINDINGS_AT_ONCE_MAX = 1_000
# The weight of a binding to a consistent-hash exchange.
BINDING_WEIGHT_MAX = 10_000
# Destinations of one message that are served at once, unless it is large; more in turns.
DESTINATIONS_AT_ONCE_MAX = 100
ROUTE_CACHED_NAMES_MAX = 1_000  # Names in one cached route: a key and its queues.
ROUTES_CACHED_NAMES_MAX = 100_000  # Names in all cached routes.
DELAY_MS_MAX = 2**32 - 1  # A message with a longer delay is not delayed.

assert ROUTE_CACHED_NAMES_MAX <= ROUTES_CACHED_NAMES_MAX

# Messages.
MESSAGE_BYTES = 16 * MIB  # One message body by default.
MESSAGE_BYTES_MAX = 128 * MIB  # The maximum of the setting queues.max_message_bytes.
TABLE_DEPTH_MAX = 32  # Nesting of tables and arrays in headers and arguments.

# So that Kafka's clients can read any message.
assert MESSAGE_BYTES <= MESSAGE_BYTES_MAX <= FRAME_BYTES_MAX - MIB

# Queues.
# The TTL of messages and of unused queues: ten years.
QUEUE_TTL_MS_MAX = 315_360_000_000
QUEUE_RETENTION_MS = 24 * 3_600_000  # How long settled messages are kept for a rewind.
QUEUE_TURN_MESSAGES_MAX = 1_000  # Messages delivered, expired or counted in one turn.
QUEUE_TURN_BYTES_MAX = 4 * MIB  # About how many bytes are read at once for delivery.
QUEUES_AT_ONCE_MAX = 500  # With more exclusive queues, a connection's are deleted in turns.
QUEUE_CONSUMERS_MAX = 100_000
QUEUE_GROUPED_MAX = 20_000  # Messages whose groups are known, in a queue with ordered groups.
QUEUE_IDENTITIES_MAX = 1_000_000  # Ids that a queue remembers, each with an entry in memory.
QUEUE_DEFERRED_MAX = 1_000_000  # Deferred messages, each with an entry in memory.
LANE_ATTEMPTS_MAX = 1_000_000  # Returned messages of a lane whose delivery count is kept on disk.
QUEUE_WATCHED_MAX = 1_000_000  # Messages whose publishers wait until they are settled.
# With more offsets out of order, an account is checked by counts only.
QUEUE_OFFSETS_CHECKED_MAX = 10_000
# A longer timer is set again after this time: the wall clock may be changed.
QUEUE_TIMER_MS_MAX = 3_600_000
# Newest deaths of a message that are kept: every protocol must be able to carry them.
DEAD_LETTER_DEATHS_MAX = 100
DEAD_LETTER_RETRY_MS = 1_000  # After this time a dead letter that was refused is published again,
DEAD_LETTER_UNROUTABLE_RETRY_MS = 10_000  # and one that no queue gets, if it must not be lost.

# Virtual hosts.
VHOSTS_MAX = 10_000
QUEUES_PER_VHOST_MAX = 200_000
QUEUE_SEGMENT_BYTES = 64 * MIB  # Settled messages leave the disk a segment at a time.
# Message ids that a deduplicating exchange remembers for one queue.
DEDUPLICATION_IDS_MAX = 1_000_000
# Delayed messages of one virtual host that are due and being published.
DELAYED_IN_FLIGHT_MAX = 1_000
# The batch limit of topics that are declared as queues: one message must fit.
STREAM_BATCH_BYTES_MAX = 129 * MIB

assert MESSAGE_BYTES_MAX < STREAM_BATCH_BYTES_MAX <= FRAME_BYTES_MAX

# Sessions of one virtual host.
SESSIONS_MAX = 200_000  # With more, none is opened.
SESSIONS_KEPT_MAX = 50_000  # Of these, those that outlive their connection.
SESSION_SUBSCRIPTIONS_MAX = 100_000  # Of one session; more are refused.
# Messages that wait for one session, and their bytes; with more, the oldest are dropped.
SESSION_MESSAGES_MAX = 100_000
SESSION_BYTES_MAX = 256 * MIB
SESSION_RETENTION_MS = 60_000  # How long settled messages are kept at least.
SESSION_EXPIRY_MS_MAX = 2**32 * 1_000  # A longer expiry is none.
SHARED_QUEUES_MAX = 10_000  # Of shared subscriptions; more are refused.
SHARED_QUEUE_UNUSED_MS = 7 * 24 * 3_600_000  # Without subscribers, it is deleted after this time.
# Newest messages of a queue or topic among which a repeated one is looked for.
REPEATS_SEARCHED_MAX = 10_000

# Retained messages of one virtual host. What exceeds a limit is delivered and not retained.
RETAINED_MAX = 1_000_000
RETAINED_BYTES_MAX = 512 * MIB
RETAINED_MESSAGE_BYTES_MAX = 1 * MIB
UNORDERED_MAX = 1_000  # Filters of topics that are unordered.
REWRITES_MAX = 100  # Rules that change topics; each new topic is compared with all.
RETAINED_AT_ONCE_MAX = 100  # Retained messages that are delivered to a session in one turn.

# Share groups.
SHARE_GROUPS_MAX = 10_000
SHARE_PARTITIONS_MAX = PARTITIONS_MAX  # Partitions in all groups together.
SHARE_SESSIONS_MAX = 2_000  # Kafka's group.share.max.share.sessions.
SHARE_SESSION_PARTITIONS_MAX = 2 * PARTITIONS_MAX  # Partitions in all sessions together.
SHARE_LOCKS_MAX = 10_000  # The maximum of the setting share.partition.max.record.locks.
# Records of one partition acquired by one fetch, however large a batch is.
SHARE_RECORDS_MAX = 10_000
SHARE_DELIVERIES_MAX = 1_000
SHARE_DEAD_LETTERS_MAX = 1_000  # Dead letters copied at once; others wait.

# Lanes of queues: the partitions, or memory, that messages are kept in.
QUEUE_BATCH_BYTES = 1 * MIB  # One batch of messages, unless one message is larger.
QUEUE_READ_BYTES = 256 * KIB  # Read from the log at once, unless one batch is larger,
QUEUE_READ_RUNS = 32  # and decoded, unless one batch has more.
QUEUE_READ_RUN_BYTES = 128 * KIB  # What is read in one turn: a small run takes as long as so many.
# Messages of durable queues cached in memory, unless one is larger.
QUEUE_CACHE_BYTES_MAX = 64 * MIB
# Cached messages of one lane; more than a batch of the smallest messages takes.
QUEUE_CACHE_LANE_BYTES_MAX = 8 * MIB
QUEUE_HEADERS_CACHED_MAX = 4_000  # Distinct decoded headers cached for one lane.
QUEUE_HEADERS_CACHED_BYTES_MAX = 1 * KIB  # Longer headers are decoded again each time.
# Messages of transient queues, in memory alone; with more, publishers wait.
TRANSIENT_BYTES_MAX = 1 * GIB
STREAM_READ_AHEAD_BYTES = 256 * KIB  # Read ahead for one reader, unless one batch is larger.

assert QUEUE_READ_BYTES <= QUEUE_BATCH_BYTES
assert QUEUE_BATCH_BYTES + MESSAGE_BYTES <= QUEUE_CACHE_BYTES_MAX
assert 8 * QUEUE_BATCH_BYTES <= QUEUE_CACHE_LANE_BYTES_MAX <= QUEUE_CACHE_BYTES_MAX

# Selectors of consumers.
SELECTOR_CHARACTERS_MAX = 8_192
SELECTOR_DEPTH_MAX = 50  # Parentheses, and signs of operands.
SELECTOR_NUMBER_CHARACTERS_MAX = 40
SELECTOR_LIKE_CHARACTERS_MAX = 4_096  # A longer text is not compared with a pattern.
# Offsets that are searched at once for ready messages.
SELECTION_WINDOW = 16 * QUEUE_TURN_MESSAGES_MAX

# Leases of messages that end at a time.
QUEUE_TIMED_LEASES_MAX = 1_000  # Leases of one queue,
QUEUE_TIMED_LEASED_MAX = 1_000_000  # and messages in all of them, each with an entry in memory.
LEASE_MS_MAX = 12 * 3_600_000
LEASE_MESSAGES_MAX = 100_000  # Messages leased by one request.
LEASE_RANGES_MAX = 100_000  # Ranges of offsets in one request.

# Leases of single messages.
QUEUE_RECEIPTS_MAX = 120_000  # Of one queue, as SQS has it.
QUEUE_RECEIPTS_KEPT_MAX = 10_000  # Receipts of messages that are ready again.
QUEUE_ATTEMPTS_KEPT_MAX = 1_000  # Requests for messages that may be repeated,
QUEUE_ATTEMPTS_KEPT_MS = 300_000  # for this time.

assert LEASE_MESSAGES_MAX <= QUEUE_TIMED_LEASED_MAX
assert QUEUE_RECEIPTS_KEPT_MAX <= QUEUE_RECEIPTS_MAX

# Links to other queue managers.
LINKS_MAX = 100
LINK_MESSAGES_MAX = 1_000  # Of one link: sent and not confirmed,
LINK_BYTES_MAX = 4 * MIB  # and their bytes, unless one is larger.
LINK_HOPS_MAX = 15  # With more a message is a dead letter: it may go round.
LINK_MANAGERS_MAX = 1_000  # That one neighbour announces,
LINK_QUEUES_ANNOUNCED_MAX = 10_000  # and queues.
LINK_ANNOUNCEMENT_BYTES_MAX = 4 * MIB
LINK_ANNOUNCEMENTS_MAX = 100  # That wait to be read.
LINK_ANNOUNCE_MS = 5_000  # Between two announcements to a neighbour.
LINK_ROUTES_KEPT_MS = 20_000  # Without being announced again.
LINK_IDS_MAX = 10_000  # Ids of messages that are remembered for each queue.

# Bridges to other brokers.
BRIDGES_MAX = 100
BRIDGE_TOPICS_MAX = 1_000  # Routes of one bridge.
BRIDGE_CONNECT_MS_MAX = 10_000  # Until the other side has answered.
BRIDGE_RETRY_MS_MIN = 1_000  # Between two attempts to connect: at first,
BRIDGE_RETRY_MS_MAX = 60_000  # and after many.

# The coordinator.
TRANSACTION_CHANGES_MAX = 128  # In one transaction, and conditions: etcd's default.
COORDINATOR_ENDPOINTS_MAX = 16  # Addresses of one etcd.
COORDINATOR_EVENTS_MAX = 10_000  # Changes that a local coordinator remembers for its watches.
COORDINATOR_ANSWER_BYTES_MAX = 64 * MIB  # One answer, or one message of a watch.
COORDINATOR_ANSWER_MS = 5_000  # How long an answer is waited for.
COORDINATOR_REQUESTS_MAX = 16  # At once, each on a connection of its own; others wait.
COORDINATOR_SILENCE_MS = 60_000  # A watch that says nothing for so long is begun anew.

# A cluster.
REPLICAS_MAX = 16  # Of a partition.
REPLICA_FETCH_BYTES = 10 * MIB  # That a follower asks for at once,
REPLICA_FETCH_PARTITION_BYTES = 1 * MIB  # and of one partition.
REPLICAS_CHANGED_AT_ONCE_MAX = 100  # Partitions whose holders one transaction changes.
