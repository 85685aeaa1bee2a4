"""Bounds of AMQP 1.0. Those of messages and queues are the broker's, in `core.limits`."""

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, MIB

# Frames and what is in them.
FRAME_BYTES_MIN = 512  # Of the specification: everybody must accept frames of this size.
FRAME_BYTES_MAX = 128 * KIB  # What we accept, and send at most.
VALUE_DEPTH_MAX = 32  # How deep lists, maps, arrays and described values may be nested.
VALUES_MAX = 10_000  # In one performative, or in the sections of a message before its body.
HEAD_BYTES_MAX = 64 * KIB  # The sections of a message before its body.

assert FRAME_BYTES_MIN < LOGIN_FRAME_BYTES_MAX

# Open connections.
IDLE_MS = 120_000  # A connection that was silent for so long is closed.
IDLE_MS_MIN = 1_000  # A client that asks for more frequent frames is refused.
SESSIONS_MAX = 256  # Of one connection.
LINKS_MAX = 2_000  # Of one connection.
INCOMING_WINDOW = 2_000  # Transfers of one session that a client may send ahead.
CREDIT = 1_000  # Messages of one link that a client may send ahead.
UNSETTLED_MAX = 50_000  # Deliveries of one session that the client has not settled.
OUTGOING_WINDOW = 2**31 - 1  # Ours is bounded by credit, and by what the client reads.
# Messages of one connection that are sent and not committed to disk.
UNCOMMITTED_BYTES_MAX = 16 * MIB
UNCOMMITTED_RUNS_MAX = 10_000
TRANSACTIONS_MAX = 100  # Open at once on one connection.
# In all open transactions of a connection.
TRANSACTION_BYTES_MAX = 128 * MIB
TRANSACTION_ACTIONS_MAX = 100_000  # Messages and dispositions.

assert UNCOMMITTED_BYTES_MAX <= MESSAGE_BYTES_MAX <= TRANSACTION_BYTES_MAX
