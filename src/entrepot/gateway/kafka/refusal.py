"""An error that carries its Kafka error code, for mistakes that only Kafka's protocol has."""

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import code_of


class Refusal(PeerError):
    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def reason_of(error: Exception) -> tuple[ErrorCode, str]:
    """Return the code and the text of an error, as answers have them."""
    return error.code if isinstance(error, Refusal) else code_of(error), str(error)


def check_on_cluster(context: Context, operation: Operation) -> None:
    if not context.allows_on_cluster(operation):
        raise Refusal(
            ErrorCode.cluster_authorization_failed, f"not allowed to {operation.value} the cluster"
        )


def check_node_id(context: Context, name: str) -> None:
    """Raise PeerError, with Kafka's text, if the request is meant for another node."""
    if not name.isdecimal():
        raise PeerError(f"Broker id must be an integer, but it is: {name}")
    if name != str(context.node_id):
        raise PeerError(f"Unexpected broker id, expected {context.node_id}, but received {name}")
