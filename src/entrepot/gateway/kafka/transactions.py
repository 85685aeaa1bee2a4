"""Checks rights and maps errors, for all requests about transactions."""

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import TransactionStatus
from entrepot.core.errors import FencedProducer, PeerError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.groups import group_code
from entrepot.gateway.kafka.refusal import Refusal

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
    """Return the code of an error, as `code_of` does with two exceptions.

    A fenced producer gets PRODUCER_FENCED if the request's version has it. What a client asks again
    is as for groups: another node coordinates, or this one is not ready, or its disk fails.
    """
    if isinstance(error, FencedProducer) and knows_fenced:
        return ErrorCode.producer_fenced
    return group_code(error)


def state_name(state: TransactionStatus) -> str:
    return "".join(word.capitalize() for word in state.name.split("_"))
