"""Reason codes of MQTT 5, which packets may have them, and the errors that carry them.

Versions before 5 have return codes in CONNACK and SUBACK only, and answer everything else by
closing the connection.
"""

from enum import IntEnum

from entrepot.core.errors import PeerError

FAILURE = 0x80  # Codes from here on are failures.


class Reason(IntEnum):
    """Section 2.4 of the specification of version 5."""

    SUCCESS = 0x00  # Also: normal disconnection, granted QoS 0.
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    REAUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC_ERROR = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_IDENTIFIER_NOT_VALID = 0x85
    BAD_USER_NAME_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_IDENTIFIER_IN_USE = 0x91
    PACKET_IDENTIFIER_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDENTIFIERS_NOT_SUPPORTED = 0xA1
    WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED = 0xA2


class MqttError(PeerError):
    """A mistake of the peer, with the reason code that tells it."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


class UnknownVersion(MqttError):
    """A CONNECT of a version that there is not."""

    def __init__(self, version: int) -> None:
        super().__init__(Reason.UNSUPPORTED_PROTOCOL_VERSION, f"protocol level {version}")
        self.version = version


def malformed(text: str) -> MqttError:
    """Return the error for bytes that cannot be read."""
    return MqttError(Reason.MALFORMED_PACKET, text)


def violated(text: str) -> MqttError:
    """Return the error for a packet that can be read and is not allowed."""
    return MqttError(Reason.PROTOCOL_ERROR, text)


# Return codes of CONNACK before version 5 (section 3.2.2.3 of version 3.1.1).
_RETURN_CODES = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_IDENTIFIER_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.BAD_USER_NAME_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
_REASONS = {
    0: Reason.SUCCESS,
    1: Reason.UNSUPPORTED_PROTOCOL_VERSION,
    2: Reason.CLIENT_IDENTIFIER_NOT_VALID,
    3: Reason.SERVER_UNAVAILABLE,
    4: Reason.BAD_USER_NAME_OR_PASSWORD,
    5: Reason.NOT_AUTHORIZED,
}


def return_code(reason: Reason) -> int | None:
    """Return the code for a CONNACK before version 5. None means: close without a CONNACK."""
    return _RETURN_CODES.get(reason)


def reason_of(code: int) -> Reason:
    """Return the reason for a return code of CONNACK before version 5. Raises MqttError."""
    try:
        return _REASONS[code]
    except KeyError:
        raise malformed(f"return code {code}") from None
