"""Bounds of AMQP 0-9-1. Those of messages and queues are the broker's, in `core.limits`."""

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, MIB

# Frames and what is in them.
FRAME_BYTES_MIN = 4 * KIB  # Every peer must accept this size, by the specification.
FRAME_BYTES_MAX = 128 * KIB  # Offered when a connection is tuned, as RabbitMQ does.
UNFINISHED_BYTES_MAX = 256 * MIB  # Incomplete message contents of one connection.
ROUTES_CACHED_MAX = 4_000  # Exchanges and routing keys of one connection, in each direction.

assert FRAME_BYTES_MIN <= LOGIN_FRAME_BYTES_MAX <= FRAME_BYTES_MAX
assert MESSAGE_BYTES_MAX <= UNFINISHED_BYTES_MAX

# Open connections.
CHANNELS_MAX = 2_047  # Of one connection, as RabbitMQ offers.
HEARTBEAT_S = 60  # Offered when a connection is tuned, as RabbitMQ does.
CONSUMERS_MAX = 10_000  # Of one channel.
BATCH_COUNT_MAX = 100_000  # Messages of a batch that a consumer may ask for.
BATCH_MS_MAX = 60_000  # How long a batch may wait to become full.
UNACKED_MAX = 250_000  # Messages of one channel that are delivered and not acknowledged.
# Messages of one connection that are published and not committed to disk.
UNCOMMITTED_BYTES_MAX = 16 * MIB
UNCONFIRMED_RUNS_MAX = 10_000  # Runs of one connection that are not committed to disk.
# Messages of one channel that are published in an open transaction.
TRANSACTION_BYTES_MAX = 128 * MIB
TRANSACTION_MESSAGES_MAX = 500_000
READ_AHEAD_MAX = 1_000  # Messages of a stream read at once for one consumer.

assert UNCOMMITTED_BYTES_MAX <= MESSAGE_BYTES_MAX <= TRANSACTION_BYTES_MAX
