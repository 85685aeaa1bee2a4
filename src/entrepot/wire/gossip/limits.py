"""Every bound of what nodes gossip, with the relations between them asserted."""

DATAGRAM_BYTES_MAX = 1400  # Fits a frame of Ethernet with the headers of IPv6 and UDP.
HEADER_BYTES = 36
SEAL_BYTES = 16  # Of the HMAC that ends a packet.
BODY_BYTES_MAX = DATAGRAM_BYTES_MAX - HEADER_BYTES - SEAL_BYTES
MEMBERS_MAX = 1_000  # Nodes that are known, the dead ones that are remembered included.
MESSAGES_PER_PACKET_MAX = 16
HOST_BYTES_MAX = 64  # An address in digits.
SENDERS_MAX = 2 * MEMBERS_MAX  # Whose packets are recognised.
JOIN_PACKETS_MAX = 3  # In answer to somebody whose address nobody vouches for.
UPDATES_PER_PACKET_MAX = 8  # Changes of members that ride on a probe or its answer.
ENTRIES_MAX = 10_000  # Facts that a node keeps, of all nodes.
KEY_BYTES_MAX = 128
VALUE_BYTES_MAX = 512
DIGEST_OWNERS_MAX = 50  # Nodes that one digest is about; the others have their turn later.
CARRIED_BYTES_MAX = 1_000  # Of a message that nodes hand on, or of a piece of a longer one.
PIECES_MAX = 256  # Of one message.
PIECES_UNDER_WAY_MAX = 64  # To one node, and not acknowledged yet.
PIECES_WAITING_MAX = 10_000  # For one node; what is more is dropped and counted.
SEEN_NUMBERS_MAX = 1_024  # Of each sender: packets that are recognised when they come again.
CLOCK_MS_MAX = 60_000  # How far the clocks of two nodes may be apart, with a secret.
SECRET_BYTES_MIN = 16

assert KEY_BYTES_MAX + VALUE_BYTES_MAX < BODY_BYTES_MAX // 2
assert DIGEST_OWNERS_MAX * 20 < BODY_BYTES_MAX
assert CARRIED_BYTES_MAX + 32 < BODY_BYTES_MAX
assert PIECES_UNDER_WAY_MAX < PIECES_WAITING_MAX
