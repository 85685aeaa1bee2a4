"""What a Kafka request handler may use."""

from dataclasses import dataclass
from datetime import timedelta

from kio.static.primitive import i32Timedelta

from entrepot.broker.broker import Broker
from entrepot.core.ports import Clock
from entrepot.gateway.kafka.fetch_session import FetchSessions

NO_THROTTLE = i32Timedelta.parse(timedelta())


@dataclass(slots=True)
class Context:
    """One per listener. The address is what clients are told to connect to."""

    broker: Broker
    clock: Clock
    sessions: FetchSessions
    node_id: int
    host: str
    port: int
