"""Which packet may come when (sections 3.1 and 4.12). What is not in these tables is refused.

A client may send packets before it gets CONNACK, so for a server the connection is open with
CONNECT. Whether the client may already be served, only the login can tell.
"""

from enum import Enum

from entrepot.wire.mqtt.properties import PacketType

_P = PacketType


class State(Enum):
    OPENING = "opening"
    OPEN = "open"
    CLOSED = "closed"


Transitions = dict[tuple[State, int], State]

FROM_CLIENT: Transitions = {
    (State.OPENING, _P.CONNECT): State.OPEN,
    (State.OPEN, _P.PUBLISH): State.OPEN,
    (State.OPEN, _P.PUBACK): State.OPEN,
    (State.OPEN, _P.PUBREC): State.OPEN,
    (State.OPEN, _P.PUBREL): State.OPEN,
    (State.OPEN, _P.PUBCOMP): State.OPEN,
    (State.OPEN, _P.SUBSCRIBE): State.OPEN,
    (State.OPEN, _P.UNSUBSCRIBE): State.OPEN,
    (State.OPEN, _P.PINGREQ): State.OPEN,
    (State.OPEN, _P.AUTH): State.OPEN,
    (State.OPEN, _P.DISCONNECT): State.CLOSED,
}

FROM_SERVER: Transitions = {
    (State.OPENING, _P.AUTH): State.OPENING,
    (State.OPENING, _P.CONNACK): State.OPEN,
    (State.OPEN, _P.PUBLISH): State.OPEN,
    (State.OPEN, _P.PUBACK): State.OPEN,
    (State.OPEN, _P.PUBREC): State.OPEN,
    (State.OPEN, _P.PUBREL): State.OPEN,
    (State.OPEN, _P.PUBCOMP): State.OPEN,
    (State.OPEN, _P.SUBACK): State.OPEN,
    (State.OPEN, _P.UNSUBACK): State.OPEN,
    (State.OPEN, _P.PINGRESP): State.OPEN,
    (State.OPEN, _P.AUTH): State.OPEN,
    (State.OPEN, _P.DISCONNECT): State.CLOSED,
}
