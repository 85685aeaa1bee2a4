"""What the requests about transactions have in common: who may, and what went wrong."""

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import State
from entrepot.core.errors import FencedProducer, PeerError, StorageError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.refusal import Refusal, reason_of

TRANSACTION_VERSION = 2  # The newest we speak; announced as a feature.


def check_transactional_id(
    context: Context, operation: Operation, transactional_id: str | None
) -> None:
    if not transactional_id:
        raise PeerError("an empty transactional id")
    if not context.allows(operation, ResourceKind.TRANSACTIONAL_ID, transactional_id):
        raise Refusal(
            ErrorCode.transactional_id_authorization_failed,
            f"not allowed to {operation.value} the transactional id",
        )


def coordinator_code(error: Exception, *, knows_fenced: bool) -> ErrorCode:
    """As elsewhere, but for two: who lost its transactional id is told so, if its version has
    a word for it; and a disk that fails is a coordinator to be asked again later.
    """
    if isinstance(error, FencedProducer) and knows_fenced:
        return ErrorCode.producer_fenced
    if isinstance(error, StorageError | OSError):
        return ErrorCode.coordinator_not_available
    return reason_of(error)[0]


def state_name(state: State) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))
