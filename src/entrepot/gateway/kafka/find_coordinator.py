"""FindCoordinator (key 10), v0 to v6: who looks after a group or a transaction. Nobody yet.

Served all the same, because librdkafka compresses with lz4 only for brokers that know
this API. COORDINATOR_NOT_AVAILABLE makes clients ask again, quietly: a consumer that
assigns itself partitions, but has a group's name in its settings, is not disturbed.

v4: several at once.
"""

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as RequestForOne
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as ResponseForOne
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from entrepot.gateway.kafka.context import NO_THROTTLE, Context

MODEL_VERSIONS = (3,)

_NOBODY = BrokerId(-1)
_WHY = "groups and transactions are not served yet"


def handle(
    context: Context, request: FindCoordinatorRequest | RequestForOne
) -> FindCoordinatorResponse | ResponseForOne:
    if isinstance(request, RequestForOne):
        return ResponseForOne(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.coordinator_not_available,
            error_message=_WHY,
            node_id=_NOBODY,
            host="",
            port=i32(-1),
        )
    return FindCoordinatorResponse(
        throttle_time=NO_THROTTLE,
        coordinators=tuple(
            Coordinator(
                key=key,
                node_id=_NOBODY,
                host="",
                port=i32(-1),
                error_code=ErrorCode.coordinator_not_available,
                error_message=_WHY,
            )
            for key in request.coordinator_keys
        ),
    )
