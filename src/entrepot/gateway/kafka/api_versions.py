"""ApiVersions (key 18), v0 to v4: list the APIs and versions that this broker supports.

A client sends the newest version it knows. If the broker does not know that version, it answers
in v0 with UNSUPPORTED_VERSION and the list, so that the client can choose one. From v3 on the
answer also lists features: the transaction version, the group version and the share version.
"""

from typing import Any

from kio.schema.api_versions.v4.request import ApiVersionsRequest
from kio.schema.api_versions.v4.response import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i16, i64

from entrepot.core.ports import Chunk
from entrepot.gateway.kafka import apis
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.transactions import TRANSACTION_VERSION
from entrepot.wire.kafka.api import Api, response_class
from entrepot.wire.kafka.frames import response_start
from entrepot.wire.kafka.layout import encode

# Each has a name, its first version, and the version in use. The first is never 0, which clients
# take only from v4 of the answer on. In a cluster there is no share version yet: requests
# of share groups are answered with UNSUPPORTED_VERSION, as by Kafka where it is switched off.
_FEATURES = (
    ("group.version", 1, 1),
    ("transaction.version", 1, TRANSACTION_VERSION),
    ("share.version", 1, 1),
)


def handle(context: Context, request: ApiVersionsRequest) -> ApiVersionsResponse:
    context.software = request.client_software_name, request.client_software_version
    return _answer(ErrorCode.none, is_alone=context.broker.cluster is None)


def unsupported(correlation_id: int) -> list[Chunk]:
    """Return the whole frame of the answer to a version that is not served: it is in version 0."""
    layout: type[Any] = response_class(Api.API_VERSIONS, 0)
    body = encode(_answer(ErrorCode.unsupported_version), layout)
    return [response_start(Api.API_VERSIONS, 0, correlation_id, len(body)), body]


def _answer(error: ErrorCode, *, is_alone: bool = True) -> ApiVersionsResponse:
    features = _FEATURES if is_alone else _FEATURES[:-1]
    served = (
        ApiVersion(
            api_key=i16(entry.api),
            min_version=i16(_announced_first(entry.api)),
            max_version=i16(entry.api.version_last),
        )
        for entry in apis.SERVED
    )
    return ApiVersionsResponse(
        error_code=error,
        api_keys=tuple(served),
        throttle_time=NO_THROTTLE,
        supported_features=tuple(
            SupportedFeatureKey(name=name, min_version=i16(first), max_version=i16(level))
            for name, first, level in features
        ),
        finalized_features_epoch=i64(0),
        finalized_features=tuple(
            FinalizedFeatureKey(
                name=name, min_version_level=i16(level), max_version_level=i16(level)
            )
            for name, _, level in features
        ),
    )


def _announced_first(api: Api) -> int:
    """Return the oldest version to announce.

    For Produce that is v0, as with Kafka 4: without it librdkafka believes that there are no
    codecs. No client uses it, because a version before 3 cannot carry record batches.
    """
    return 0 if api is Api.PRODUCE else api.version_first
