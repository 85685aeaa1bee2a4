"""Bounds of STOMP. Those of messages and queues are the broker's, in `core.limits`."""

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, MIB

# Frames and what is in them.
HEAD_BYTES_MAX = 64 * KIB  # A command and its headers.
HEADERS_MAX = 1_000  # Of one frame.
HEADS_CACHED_MAX = 64  # Decoded heads that a connection remembers,
ENVELOPES_CACHED_MAX = 64  # and envelopes of messages that it sends.
HEAD_CACHED_BYTES_MAX = 512  # Longer ones are not remembered.
MESSAGE_HEADS_CACHED_MAX = 4_000  # Encoded heads of messages that an endpoint delivers.

assert HEAD_BYTES_MAX <= LOGIN_FRAME_BYTES_MAX
assert HEAD_CACHED_BYTES_MAX <= HEAD_BYTES_MAX

# Open connections.
HEART_BEAT_MS_MIN = 100  # A client that asks for shorter intervals gets this one.
HEART_BEAT_MS_MAX = 24 * 3_600_000
SUBSCRIPTIONS_MAX = 10_000  # Of one connection, with the queues for replies.
UNACKED_MAX = 250_000  # Messages of one connection that are delivered and not acknowledged.
# Messages of one connection that are sent and not committed to disk.
UNCOMMITTED_BYTES_MAX = 16 * MIB
UNCOMMITTED_RUNS_MAX = 10_000  # Runs of one connection that are not committed to disk.
TRANSACTIONS_MAX = 100  # Open at once on one connection.
# In all open transactions of a connection.
TRANSACTION_BYTES_MAX = 128 * MIB
TRANSACTION_ACTIONS_MAX = 100_000  # Messages, acknowledgements and refusals.

assert UNCOMMITTED_BYTES_MAX <= MESSAGE_BYTES_MAX <= TRANSACTION_BYTES_MAX
