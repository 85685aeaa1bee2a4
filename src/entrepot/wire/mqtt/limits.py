"""Bounds of MQTT. Those of messages and sessions are the broker's, in `core.limits`."""

from entrepot.core.limits import KIB, LOGIN_FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, MIB

# Packets and what is in them.
REMAINING_BYTES_MAX = 268_435_455  # Four bytes of seven bits, by the specification.
TEXT_BYTES_MAX = 65_535  # A text or binary value, by the specification.
# A PUBLISH besides its payload: topic, properties, and the fixed header.
PUBLISH_EXTRA_BYTES_MAX = 256 * KIB
PACKET_BYTES_MAX = 1 * MIB  # Any packet that is not a PUBLISH.
TOPIC_LEVELS_MAX = 200  # Of a topic name or filter, as in Mosquitto.
FILTERS_MAX = 10_000  # In one SUBSCRIBE or UNSUBSCRIBE.
USER_PROPERTIES_MAX = 1_000  # In one packet.
ENVELOPES_CACHED_MAX = 10_000  # Topics and properties that need not be checked again.
ENVELOPES_ALIASED_MAX = 64  # Of one connection, with topic aliases.
ENVELOPES_CACHED_BYTES_MAX = 1 * KIB  # A longer topic with its properties is checked each time.

assert LOGIN_FRAME_BYTES_MAX <= PACKET_BYTES_MAX
assert MESSAGE_BYTES_MAX + PUBLISH_EXTRA_BYTES_MAX <= REMAINING_BYTES_MAX

# Open connections.
PACKET_ID_END = 65_536  # Packet identifiers are 16 bits, and 0 is none.
RECEIVE_MAXIMUM = 1_000  # QoS 1 and 2 publishes of a client that are not answered yet.
TOPIC_ALIASES_IN_MAX = 100  # That a client may define.
TOPIC_ALIASES_OUT_MAX = 100  # That are defined for a client, at most.
IN_FLIGHT_MAX = 1_000  # Messages delivered to a client and not acknowledged.
# Messages of one connection that are published and not committed to disk.
UNCOMMITTED_BYTES_MAX = 16 * MIB
UNCOMMITTED_RUNS_MAX = 10_000

assert RECEIVE_MAXIMUM < PACKET_ID_END
assert IN_FLIGHT_MAX < PACKET_ID_END
